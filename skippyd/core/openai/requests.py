"""Chat and completion requests: a parsed JSON object to checked values.

Nothing is ignored.  A field is acted on (here), refused by name as not supported
yet (`unbuilt.py`), or unknown and refused with the nearest right name.  null is
the same as absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.openai.errors import ApiRefusedError, unsupported_feature
from skippyd.core.openai.fields import FieldReader, as_text, refuse, shown
from skippyd.core.openai.messages import Message, read_messages
from skippyd.core.openai.unbuilt import (
    CHAT_UNBUILT,
    COMPLETION_UNBUILT,
    refuse_unbuilt,
    refuse_unknown,
)
from skippyd.units import I32_MAX, U32_MAX


if TYPE_CHECKING:
    from collections.abc import Mapping


# Defaults of the OpenAI path (skippy-facts 5.3); the wire's own differ.
DEFAULT_TEMPERATURE = 0.8
DEFAULT_TOP_P = 0.95
DEFAULT_TOP_K = 40
DEFAULT_MIN_P = 0.05

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1024
MAX_MODEL_CHARACTERS = 512

# llama.cpp reads the first as "random"; the contract turns it into the second.
RANDOM_SEED = 0xFFFFFFFF
RANDOM_SEED_STAND_IN = 0x7FFFFFFF

_BUILT_IN_BOTH = (
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
)
CHAT_FIELDS = frozenset(
    {*_BUILT_IN_BOTH, "messages", "max_completion_tokens", *CHAT_UNBUILT}
)
COMPLETION_FIELDS = frozenset({*_BUILT_IN_BOTH, "prompt", *COMPLETION_UNBUILT})


@attrs.frozen
class SamplingFields:
    """How tokens are drawn; `seed` None lets the server draw one and report it."""

    temperature: float
    top_p: float
    top_k: int = attrs.field(kw_only=True)
    min_p: float = attrs.field(kw_only=True)
    seed: int | None = attrs.field(kw_only=True)


@attrs.frozen
class AnswerFields:
    """What chat and completion requests share.

    Args:
        model: The asked model; not compared yet.
        max_tokens: Ceiling of the answer; None is the rest of the context.
        stops: Texts that end the answer before them.
        sampling: How tokens are drawn.
        stream: Events instead of one document.
        include_usage: One more event with the usage, when streaming.
    """

    model: str
    max_tokens: int | None
    stops: tuple[str, ...] = attrs.field(kw_only=True)
    sampling: SamplingFields = attrs.field(kw_only=True)
    stream: bool = attrs.field(kw_only=True)
    include_usage: bool = attrs.field(kw_only=True)


@attrs.frozen
class ChatRequest:
    """A chat to be answered."""

    messages: tuple[Message, ...]
    answer: AnswerFields


@attrs.frozen
class CompletionRequest:
    """A text to be continued; control texts in it are tokens."""

    prompt: str
    answer: AnswerFields


def parse_chat_request(body: Mapping[str, object]) -> ChatRequest:
    """Check the body of `POST /v1/chat/completions`.

    `max_completion_tokens` wins over `max_tokens`.

    Raises:
        ApiRefusedError: With the field that is wrong.
    """
    reader = FieldReader(body)
    refuse_unknown(reader, CHAT_FIELDS)
    _check_top_logprobs(reader)
    refuse_unbuilt(reader, CHAT_UNBUILT)
    ceiling = _token_count(reader, "max_tokens")
    newer_ceiling = _token_count(reader, "max_completion_tokens")
    answer = _read_answer(reader, ceiling if newer_ceiling is None else newer_ceiling)
    return ChatRequest(read_messages(reader), answer)


def parse_completion_request(body: Mapping[str, object]) -> CompletionRequest:
    """Check the body of `POST /v1/completions`.

    Raises:
        ApiRefusedError: With the field that is wrong.
    """
    reader = FieldReader(body)
    refuse_unknown(reader, COMPLETION_FIELDS)
    refuse_unbuilt(reader, COMPLETION_UNBUILT)
    answer = _read_answer(reader, _token_count(reader, "max_tokens"))
    return CompletionRequest(_read_prompt(reader), answer)


def _read_prompt(reader: FieldReader) -> str:
    prompt = reader.value("prompt")
    if isinstance(prompt, list):
        raise ApiRefusedError(
            unsupported_feature(
                "a prompt of several texts or of token ids is not supported yet; "
                "send one string a request",
                "prompt",
            )
        )
    if prompt is None or prompt == "":
        raise refuse("prompt is missing or empty; give some text", "prompt")
    return as_text(prompt, "prompt")


def _check_top_logprobs(reader: FieldReader) -> None:
    wanted = reader.value("top_logprobs")
    if wanted is not None and wanted != 0 and not reader.flag("logprobs"):
        raise refuse("top_logprobs needs logprobs: true", "top_logprobs")


def _read_answer(reader: FieldReader, max_tokens: int | None) -> AnswerFields:
    stream = reader.flag("stream")
    return AnswerFields(
        _read_model(reader),
        max_tokens,
        stops=_read_stops(reader),
        sampling=_read_sampling(reader),
        stream=stream,
        include_usage=_read_include_usage(reader, stream=stream),
    )


def _read_model(reader: FieldReader) -> str:
    model = reader.text("model")
    if model is None or not model.strip():
        raise refuse("model is missing or blank; GET /v1/models names it", "model")
    if len(model) > MAX_MODEL_CHARACTERS:
        raise refuse(f"model is longer than {MAX_MODEL_CHARACTERS} characters", "model")
    return model


def _token_count(reader: FieldReader, name: str) -> int | None:
    return reader.integer(name, 1, U32_MAX)


def _read_sampling(reader: FieldReader) -> SamplingFields:
    temperature = reader.number("temperature", 0, 100)
    top_p = reader.number("top_p", 0, 1)
    top_k = reader.integer("top_k", 0, I32_MAX)
    min_p = reader.number("min_p", 0, 1)
    seed = reader.integer("seed", 0, U32_MAX)
    return SamplingFields(
        DEFAULT_TEMPERATURE if temperature is None else temperature,
        DEFAULT_TOP_P if top_p is None else top_p,
        top_k=DEFAULT_TOP_K if top_k is None else top_k,
        min_p=DEFAULT_MIN_P if min_p is None else min_p,
        seed=RANDOM_SEED_STAND_IN if seed == RANDOM_SEED else seed,
    )


def _read_stops(reader: FieldReader) -> tuple[str, ...]:
    value = reader.value("stop")
    if value is None:
        return ()
    texts: list[object] = value if isinstance(value, list) else [value]
    if len(texts) > MAX_STOPS:
        raise refuse(f"stop has {len(texts)} texts; at most {MAX_STOPS}", "stop")
    stops = tuple(as_text(text, "stop") for text in texts)
    for stop in stops:
        if not 1 <= len(stop) <= MAX_STOP_CHARACTERS:
            raise refuse(
                f"a stop text must have 1 to {MAX_STOP_CHARACTERS} characters, "
                f"not {len(stop)}",
                "stop",
            )
    return stops


def _read_include_usage(reader: FieldReader, *, stream: bool) -> bool:
    value = reader.value("stream_options")
    if value is None:
        return False
    if not stream:
        raise refuse("stream_options needs stream: true", "stream_options")
    if not isinstance(value, dict):
        raise refuse(
            f"stream_options must be an object, not {shown(value)}", "stream_options"
        )
    options = FieldReader(value, "stream_options.")
    refuse_unknown(options, {"include_usage", "include_obfuscation"})
    if options.flag("include_obfuscation"):
        raise ApiRefusedError(
            unsupported_feature(
                "stream_options.include_obfuscation is not supported yet",
                "stream_options.include_obfuscation",
            )
        )
    return options.flag("include_usage")


def is_same_model(asked: str, served: str) -> bool:
    """Whether a client's model name means the served one.

    Equal, or equal after dropping the revision `@main` at the end or before `:`.
    """
    return asked == served or _without_main(asked) == _without_main(served)


def _without_main(name: str) -> str:
    return name.removesuffix("@main").replace("@main:", ":")
