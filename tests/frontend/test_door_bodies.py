"""The little that the door reads: the model of a request, the reason of a health."""

from __future__ import annotations

import json

import pytest

from skippyd.core.openai.errors import ApiRefusedError
from skippyd.frontend.door_bodies import REASON_MAX_CHARACTERS, model_of, reason_in


@pytest.mark.parametrize(
    ("document", "model"),
    [({"model": "m"}, "m"), ({"model": 7}, None), ({}, None)],
)
async def test_the_model_is_read(
    document: dict[str, object], model: str | None
) -> None:
    assert await model_of(json.dumps(document).encode()) == model


async def test_a_large_body_is_read_too() -> None:
    body = json.dumps({"model": "m", "prompt": "x" * 600_000}).encode()
    assert await model_of(body) == "m"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 300_000])
async def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiRefusedError, match="invalid JSON"):
        await model_of(body)


def test_the_reason_of_a_health_is_bounded() -> None:
    assert reason_in(b'{"reason":"stage 1 lost"}') == "stage 1 lost"
    long = json.dumps({"reason": "x" * 2 * REASON_MAX_CHARACTERS}).encode()
    assert len(reason_in(long)) == REASON_MAX_CHARACTERS


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"reason":1}', b"\xff"])
def test_a_health_without_a_reason_is_just_not_good(body: bytes) -> None:
    assert reason_in(body) == "its health is not good"
