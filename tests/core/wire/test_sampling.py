"""The sampling block: defaults, cuts of the writer, refusals of the reader."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings

from skippyd.core.wire.reader import Parsing
from skippyd.core.wire.sampling import (
    SamplingBlock,
    encode_sampling,
    parse_sampling,
)
from skippyd.errors import LocalProtocolError, RemoteProtocolError
from support.wire_strategies import sampling_blocks


EMPTY = SamplingBlock(dry_sequence_breakers=(), samplers=())
BIAS_COUNT_AT = 40
BREAKER_COUNT_AT = 76
SAMPLER_COUNT_AT = 100


def parsed(data: bytes) -> SamplingBlock | None:
    parsing = Parsing("sampling block", 44, parse_sampling)
    parsing.receive_data(data)
    return parsing.next_value()


def with_count(at: int, count: int, behind: bytes = b"") -> bytes:
    data = bytearray(encode_sampling(EMPTY))
    data[at : at + 4] = struct.pack("<I", count)
    return bytes(data[: at + 4]) + behind


@settings(deadline=None, max_examples=25)
@given(sampling_blocks())
def test_a_block_survives_the_round_trip(block: SamplingBlock) -> None:
    assert parsed(encode_sampling(block)) == block


def test_a_block_with_empty_lists_has_27_words() -> None:
    assert len(encode_sampling(EMPTY)) == 108


def test_a_block_is_enabled_by_its_flags_alone() -> None:
    assert not SamplingBlock(temperature=0.5).enabled
    assert SamplingBlock(flags=1).enabled


def test_the_writer_cuts_lists_to_their_maxima() -> None:
    block = SamplingBlock(
        logit_bias=tuple((token, 1.0) for token in range(257)),
        dry_sequence_breakers=tuple("abcdefghi"),
        samplers=tuple(f"s{n}" for n in range(17)),
    )
    got = parsed(encode_sampling(block))
    assert got is not None
    assert got.logit_bias == block.logit_bias[:256]
    assert got.dry_sequence_breakers == tuple("abcdefgh")
    assert got.samplers == block.samplers[:16]


def test_the_writer_refuses_a_string_that_is_too_long() -> None:
    encode_sampling(SamplingBlock(samplers=("é" * 32,)))
    with pytest.raises(
        LocalProtocolError, match=r"^sampling string exceeds maximum length"
    ):
        encode_sampling(SamplingBlock(samplers=("é" * 33,)))


def test_the_reader_refuses_too_many_biases() -> None:
    with pytest.raises(
        RemoteProtocolError, match=r"^logit bias count exceeds maximum: 257"
    ):
        parsed(with_count(BIAS_COUNT_AT, 257))


@pytest.mark.parametrize(
    ("at", "count"), [(BREAKER_COUNT_AT, 9), (SAMPLER_COUNT_AT, 17)]
)
def test_the_reader_refuses_too_many_strings(at: int, count: int) -> None:
    with pytest.raises(
        RemoteProtocolError, match=r"^sampling string count exceeds maximum"
    ):
        parsed(with_count(at, count))


def test_the_reader_refuses_a_string_that_is_too_long() -> None:
    with pytest.raises(
        RemoteProtocolError, match=r"^sampling string exceeds maximum length: 65"
    ):
        parsed(with_count(BREAKER_COUNT_AT, 1, struct.pack("<I", 65)))


def test_the_reader_refuses_a_string_that_is_not_utf8() -> None:
    behind = struct.pack("<I", 2) + b"\xc3("
    with pytest.raises(RemoteProtocolError, match=r"^sampling string is not UTF-8"):
        parsed(with_count(SAMPLER_COUNT_AT, 1, behind))
