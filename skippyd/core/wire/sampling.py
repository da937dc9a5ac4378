"""The sampling block: how the final stage draws tokens, as it travels.

The field order below is the wire order; `encode_sampling` and `parse_sampling` are to
be edited together with it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import attrs

from skippyd.core.wire.limits import (
    DRY_BREAKERS_MAX,
    LOGIT_BIAS_MAX,
    SAMPLERS_MAX,
    SAMPLING_STRING_MAX_BYTES,
)
from skippyd.errors import LocalProtocolError, RemoteProtocolError


if TYPE_CHECKING:
    from skippyd.core.wire.reader import ByteReader, Parser


DEFAULT_DRY_BREAKERS: Final = ("\n", ":", '"', "*")
DEFAULT_SAMPLERS: Final = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)

_HEAD: Final = struct.Struct("<IIffiffffiI")  # flags .. penalty_last_n, bias count
_MIDDLE: Final = struct.Struct("<ffffffiiI")  # typical_p .., breaker count
_TAIL: Final = struct.Struct("<ffiffI")  # xtc .. mirostat, sampler count
_BIAS: Final = struct.Struct("<if")
_U32: Final = struct.Struct("<I")


@attrs.frozen(kw_only=True)
class SamplingBlock:
    """Sampling parameters with the wire's defaults; enabled when flags is not 0.

    Floats are f32 on the wire. `logit_bias` holds (token id, bias) pairs.
    """

    flags: int = 0
    seed: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_penalty: float = 1.0
    penalty_last_n: int = -1
    logit_bias: tuple[tuple[int, float], ...] = ()
    typical_p: float = 1.0
    top_nsigma: float = -1.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = DEFAULT_DRY_BREAKERS
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat_mode: int = 0
    mirostat_entropy: float = 5.0
    mirostat_learning_rate: float = 0.1
    samplers: tuple[str, ...] = DEFAULT_SAMPLERS
    ignore_eos: int = 0

    @property
    def enabled(self) -> bool:
        """Whether the final stage samples by this block instead of greedily."""
        return self.flags != 0


def encode_sampling(block: SamplingBlock) -> bytes:
    """Encode a block; lists beyond their maximum are cut, as the wire's rule says.

    Who takes parameters from a user refuses such lists before (`limits.py`).

    Raises:
        LocalProtocolError: A string is longer than its maximum.
        struct.error, OverflowError: A number does not fit its width.
    """
    bias = block.logit_bias[:LOGIT_BIAS_MAX]
    breakers = block.dry_sequence_breakers[:DRY_BREAKERS_MAX]
    samplers = block.samplers[:SAMPLERS_MAX]
    parts = [
        _HEAD.pack(
            block.flags,
            block.seed,
            block.temperature,
            block.top_p,
            block.top_k,
            block.min_p,
            block.presence_penalty,
            block.frequency_penalty,
            block.repeat_penalty,
            block.penalty_last_n,
            len(bias),
        ),
        *(_BIAS.pack(token, value) for token, value in bias),
        _MIDDLE.pack(
            block.typical_p,
            block.top_nsigma,
            block.dynatemp_range,
            block.dynatemp_exponent,
            block.dry_multiplier,
            block.dry_base,
            block.dry_allowed_length,
            block.dry_penalty_last_n,
            len(breakers),
        ),
        *map(_encode_string, breakers),
        _TAIL.pack(
            block.xtc_probability,
            block.xtc_threshold,
            block.mirostat_mode,
            block.mirostat_entropy,
            block.mirostat_learning_rate,
            len(samplers),
        ),
        *map(_encode_string, samplers),
        _U32.pack(block.ignore_eos),
    ]
    return b"".join(parts)


def parse_sampling(reader: ByteReader) -> Parser[SamplingBlock]:
    """Parse a block; every count and length is checked before its bytes are awaited."""
    head = _HEAD.unpack((yield from reader.read_exact(_HEAD.size, "sampling block")))
    bias = yield from _parse_logit_bias(reader, head[10])
    middle = _MIDDLE.unpack(
        (yield from reader.read_exact(_MIDDLE.size, "sampling block"))
    )
    breakers = yield from _parse_strings(reader, middle[8], DRY_BREAKERS_MAX)
    tail = _TAIL.unpack((yield from reader.read_exact(_TAIL.size, "sampling block")))
    samplers = yield from _parse_strings(reader, tail[5], SAMPLERS_MAX)
    (ignore_eos,) = _U32.unpack(
        (yield from reader.read_exact(_U32.size, "sampling block"))
    )
    return SamplingBlock(
        flags=head[0],
        seed=head[1],
        temperature=head[2],
        top_p=head[3],
        top_k=head[4],
        min_p=head[5],
        presence_penalty=head[6],
        frequency_penalty=head[7],
        repeat_penalty=head[8],
        penalty_last_n=head[9],
        logit_bias=bias,
        typical_p=middle[0],
        top_nsigma=middle[1],
        dynatemp_range=middle[2],
        dynatemp_exponent=middle[3],
        dry_multiplier=middle[4],
        dry_base=middle[5],
        dry_allowed_length=middle[6],
        dry_penalty_last_n=middle[7],
        dry_sequence_breakers=breakers,
        xtc_probability=tail[0],
        xtc_threshold=tail[1],
        mirostat_mode=tail[2],
        mirostat_entropy=tail[3],
        mirostat_learning_rate=tail[4],
        samplers=samplers,
        ignore_eos=ignore_eos,
    )


def _encode_string(text: str) -> bytes:
    data = text.encode("utf-8")
    if len(data) > SAMPLING_STRING_MAX_BYTES:
        raise LocalProtocolError(
            f"sampling string exceeds maximum length: {text!r} has {len(data)} bytes,"
            f" above {SAMPLING_STRING_MAX_BYTES}"
        )
    return _U32.pack(len(data)) + data


def _parse_logit_bias(
    reader: ByteReader, count: int
) -> Parser[tuple[tuple[int, float], ...]]:
    if count > LOGIT_BIAS_MAX:
        raise RemoteProtocolError(
            f"logit bias count exceeds maximum: {count}, above {LOGIT_BIAS_MAX}"
        )
    data = yield from reader.read_exact(count * _BIAS.size, "logit bias")
    return tuple((token, bias) for token, bias in _BIAS.iter_unpack(data))


def _parse_strings(
    reader: ByteReader, count: int, maximum: int
) -> Parser[tuple[str, ...]]:
    if count > maximum:
        raise RemoteProtocolError(
            f"sampling string count exceeds maximum: {count}, above {maximum}"
        )
    strings: list[str] = []
    for _ in range(count):
        strings.append((yield from _parse_string(reader)))  # noqa: PERF401 - a generator
    return tuple(strings)


def _parse_string(reader: ByteReader) -> Parser[str]:
    (size,) = _U32.unpack((yield from reader.read_exact(_U32.size, "sampling string")))
    if size > SAMPLING_STRING_MAX_BYTES:
        raise RemoteProtocolError(
            f"sampling string exceeds maximum length: {size} bytes,"
            f" above {SAMPLING_STRING_MAX_BYTES}"
        )
    data = yield from reader.read_exact(size, "sampling string")
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(
            f"sampling string is not UTF-8: {bytes(data)!r}"
        ) from error
