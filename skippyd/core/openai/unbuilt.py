"""Fields that clients know and this server does not act on yet.

None is ignored: a value that asks for nothing (its neutral values, or null) is
accepted, any other is refused by name.  A field that is built leaves this file.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import attrs

from skippyd.core.openai.errors import ApiRefusedError, unsupported_feature
from skippyd.core.openai.fields import FieldReader, refuse, shown


if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@attrs.frozen
class Unbuilt:
    """One field.

    Args:
        neutral: Values that ask for nothing.
        lowest: Numbers below are wrong rather than unsupported.
        highest: Numbers above, likewise.
    """

    neutral: tuple[object, ...] = ()
    lowest: float | None = attrs.field(default=None, kw_only=True)
    highest: float | None = attrs.field(default=None, kw_only=True)


_NONE_WANTED = Unbuilt()
_PENALTY = Unbuilt((0,), lowest=-2, highest=2)
_REPEAT = Unbuilt((1,), lowest=0, highest=100)
_OFF = Unbuilt((False,))
_EMPTY_OBJECT = Unbuilt(({},))
_EMPTY_TEXT = Unbuilt(("",))

# Fields of both routes: OpenAI's, then those of llama.cpp's server.
_BOTH: Mapping[str, Unbuilt] = {
    "frequency_penalty": _PENALTY,
    "presence_penalty": _PENALTY,
    "logit_bias": _EMPTY_OBJECT,
    "n": Unbuilt((1,), lowest=1),
    "user": _EMPTY_TEXT,
    "metadata": _EMPTY_OBJECT,
    "adaptive": _NONE_WANTED,
    "backend_sampling": _OFF,
    "dry": _EMPTY_OBJECT,
    "dynatemp_exponent": Unbuilt((1,)),
    "dynatemp_range": Unbuilt((0,)),
    "grammar": _EMPTY_TEXT,
    "ignore_eos": _OFF,
    "json_schema": _NONE_WANTED,
    "mirostat_entropy": _NONE_WANTED,
    "mirostat_learning_rate": _NONE_WANTED,
    "mirostat_mode": Unbuilt((0,), lowest=0, highest=2),
    "repeat_last_n": Unbuilt((-1, 0), lowest=-1),
    "repeat_penalty": _REPEAT,
    "repetition_penalty": _REPEAT,
    "sampler_sequence": _NONE_WANTED,
    "samplers": _NONE_WANTED,
    "top_nsigma": Unbuilt((-1,)),
    "typical_p": Unbuilt((1,), lowest=0, highest=1),
    "xtc": _EMPTY_OBJECT,
}

CHAT_UNBUILT: Mapping[str, Unbuilt] = {
    **_BOTH,
    "audio": _NONE_WANTED,
    "chat_template": _NONE_WANTED,
    "chat_template_kwargs": _EMPTY_OBJECT,
    "enable_thinking": _NONE_WANTED,
    "function_call": Unbuilt(("none", "auto")),
    "functions": Unbuilt(([],)),
    "jinja": Unbuilt((True,)),
    "logprobs": _OFF,
    "modalities": Unbuilt((["text"],)),
    "moderation": _NONE_WANTED,
    "parallel_tool_calls": Unbuilt((True, False)),
    "prediction": _NONE_WANTED,
    "prefill_assistant": _NONE_WANTED,
    "prompt_cache_key": _EMPTY_TEXT,
    "prompt_cache_options": _EMPTY_OBJECT,
    "prompt_cache_retention": _NONE_WANTED,
    "reasoning": _EMPTY_OBJECT,
    "reasoning_effort": _NONE_WANTED,
    "reasoning_format": Unbuilt(("none",)),
    "response_format": Unbuilt(({"type": "text"},)),
    "safety_identifier": _EMPTY_TEXT,
    "service_tier": Unbuilt(("auto", "default")),
    "skip_chat_parsing": _OFF,
    "store": _OFF,
    "system_prompt": _EMPTY_TEXT,
    "thinking_budget": _NONE_WANTED,
    "tool_choice": Unbuilt(("none", "auto")),
    "tools": Unbuilt(([],)),
    "top_logprobs": Unbuilt((0,), lowest=0, highest=20),
    "verbosity": _NONE_WANTED,
    "web_search_options": _NONE_WANTED,
}

COMPLETION_UNBUILT: Mapping[str, Unbuilt] = {
    **_BOTH,
    "best_of": Unbuilt((1,), lowest=1),
    "echo": _OFF,
    # 0 asks for the chosen token's log-probability, so no number is neutral.
    "logprobs": Unbuilt((False,)),
    "suffix": _EMPTY_TEXT,
}

MESSAGE_UNBUILT: Mapping[str, Unbuilt] = {
    "annotations": Unbuilt(([],)),
    "audio": _NONE_WANTED,
    "function_call": _NONE_WANTED,
    "name": _EMPTY_TEXT,
    "reasoning_content": _EMPTY_TEXT,
    "refusal": _EMPTY_TEXT,
    "tool_call_id": _NONE_WANTED,
    "tool_calls": Unbuilt(([],)),
}


def refuse_unbuilt(reader: FieldReader, table: Mapping[str, Unbuilt]) -> None:
    """Refuse the first field of the table whose value asks for something.

    Raises:
        ApiRefusedError: `invalid_value` outside the field's own range, else
            `unsupported_model_feature`.
    """
    for name, field in table.items():
        value = reader.value(name)
        if value is None or _is_neutral(value, field.neutral):
            continue
        where = reader.path + name
        _check_range(value, field, where)
        raise ApiRefusedError(
            unsupported_feature(
                f"{where} = {shown(value)} is not supported yet; leave it out", where
            )
        )


def refuse_unknown(reader: FieldReader, known: Collection[str]) -> None:
    """Refuse the first field that no table knows, with the nearest right name.

    Raises:
        ApiRefusedError: `invalid_value`.
    """
    for name in reader.values:
        if name not in known:
            hint = _nearest(name, known)
            raise refuse(f"unknown field {reader.path}{name[:64]!r}{hint}", name[:64])


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name[:64], sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _is_neutral(value: object, neutral: tuple[object, ...]) -> bool:
    # In Python True == 1, in JSON it is another value.
    return any(
        value == candidate and isinstance(value, bool) == isinstance(candidate, bool)
        for candidate in neutral
    )


def _check_range(value: object, field: Unbuilt, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if field.lowest is not None and value < field.lowest:
        raise refuse(f"{where} must be at least {field.lowest:g}", where)
    if field.highest is not None and value > field.highest:
        raise refuse(f"{where} must be at most {field.highest:g}", where)
