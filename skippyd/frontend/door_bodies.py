"""What the front door reads of bodies that it passes on: as little as it needs."""

from __future__ import annotations

import json

import trio

from skippyd.core.openai.json_body import parse_json_object
from skippyd.units import KIB


_PARSED_IN_THREAD_BYTES = 256 * KIB
REASON_MAX_CHARACTERS = 500


async def model_of(body: bytes) -> str | None:
    """The model that a request names; None when it names none that is a text.

    Raises:
        ApiRefusedError: The body is no JSON object.
    """
    if len(body) > _PARSED_IN_THREAD_BYTES:
        document = await trio.to_thread.run_sync(parse_json_object, body)
    else:
        document = parse_json_object(body)
    model = document.get("model")
    return model if isinstance(model, str) else None


def reason_in(body: bytes) -> str:
    """Why a first stage is not well, as its health says."""
    try:
        document = json.loads(body)
    except ValueError:
        return "its health is not good"
    reason = document.get("reason") if isinstance(document, dict) else None
    return (
        reason[:REASON_MAX_CHARACTERS]
        if isinstance(reason, str)
        else "its health is not good"
    )
