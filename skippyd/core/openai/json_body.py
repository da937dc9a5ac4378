"""A request body to a JSON object: strict, and safe against hostile nesting."""

from __future__ import annotations

import json

from skippyd.core.openai.errors import ApiRefusedError, invalid_value


def parse_json_object(body: bytes) -> dict[str, object]:
    """Parse a body that must be one JSON object.

    NaN and infinities, a key given twice and text that is not UTF-8 are refused.

    Raises:
        ApiRefusedError: With what is wrong.
    """
    try:
        value: object = json.loads(
            body.decode("utf-8"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_object_of,
        )
    except RecursionError:
        raise _refusal("it is nested too deeply") from None
    except ValueError as error:
        raise _refusal(str(error)) from None
    if not isinstance(value, dict):
        raise _refusal('it must be an object, such as {"model": …}')
    return value


def _object_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice[:64]!r} is given twice")
    return values


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _refusal(reason: str) -> ApiRefusedError:
    return ApiRefusedError(invalid_value(f"invalid JSON request body: {reason}"))
