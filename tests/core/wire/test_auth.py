"""Connections prove run, term, direction and place, or are dropped."""

from __future__ import annotations

import pytest

from skippyd.core.wire.auth import (
    AuthParser,
    connection_token,
    lane_purpose,
    match_token,
    return_purpose,
)
from skippyd.core.wire.encode import encode_auth_preamble
from skippyd.errors import LocalProtocolError, RemoteProtocolError


KEY = bytes(32)


def tokens(*purposes: str) -> dict[str, bytes]:
    return {purpose: connection_token(KEY, purpose) for purpose in purposes}


def test_purposes_name_direction_and_both_stages() -> None:
    assert lane_purpose(0, 1) == "lane:0>1"
    assert return_purpose(0, 12) == "return:0>12"


def test_tokens_differ_by_key_direction_and_place() -> None:
    drawn = {
        connection_token(key, purpose)
        for key in (KEY, b"\x01" * 32)
        for purpose in ("lane:0>1", "lane:1>0", "lane:0>2", "return:0>1")
    }
    assert len(drawn) == 8
    assert {len(token) for token in drawn} == {32}


def test_a_run_key_of_another_size_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError, match="32 bytes, got 31"):
        connection_token(KEY[:31], "lane:0>1")


def test_the_purpose_that_was_proved_is_named() -> None:
    expected = tokens("lane:1>2", "return:0>2")
    for purpose, token in expected.items():
        parser = AuthParser(expected)
        assert parser.wanted_bytes == 5
        parser.receive_data(encode_auth_preamble(token) + b"rest")
        assert parser.next_purpose() == purpose
        assert parser.take_unread() == b"rest"
        assert parser.at_boundary


def test_a_shell_reads_the_preamble_exactly() -> None:
    parser = AuthParser(tokens("lane:0>1"))
    data = encode_auth_preamble(connection_token(KEY, "lane:0>1"))
    assert parser.next_purpose() is None
    parser.receive_data(data[: parser.wanted_bytes])
    assert parser.next_purpose() is None
    assert parser.wanted_bytes == 32
    parser.receive_data(data[5:])
    assert parser.next_purpose() == "lane:0>1"


@pytest.mark.parametrize(
    "presented",
    [
        connection_token(KEY, "lane:0>2"),
        connection_token(b"\x01" * 32, "lane:0>1"),
        connection_token(KEY, "lane:0>1")[:31],
        connection_token(KEY, "lane:0>1") + b"\x00",
    ],
    ids=["place", "run", "shorter", "longer"],
)
def test_another_token_is_a_mismatch(presented: bytes) -> None:
    parser = AuthParser(tokens("lane:0>1"))
    parser.receive_data(encode_auth_preamble(presented))
    with pytest.raises(
        RemoteProtocolError, match=r"^transport auth token mismatch"
    ) as caught:
        parser.next_purpose()
    assert presented.hex() not in str(caught.value)


def test_a_parser_does_not_show_its_tokens() -> None:
    assert "lane" not in repr(AuthParser(tokens("lane:0>1")))


def test_nothing_expected_means_nothing_matches() -> None:
    with pytest.raises(RemoteProtocolError, match=r"^transport auth token mismatch"):
        match_token(bytes(32), {})


def test_a_foreign_magic_is_refused_before_its_token() -> None:
    parser = AuthParser(tokens("lane:0>1"))
    parser.receive_data(b"YDRS\x20")
    with pytest.raises(
        RemoteProtocolError, match=r"^transport auth magic mismatch: got 0x53524459"
    ):
        parser.next_purpose()


@pytest.mark.parametrize("size", [0, 65, 255])
def test_a_token_length_out_of_range_is_refused(size: int) -> None:
    parser = AuthParser(tokens("lane:0>1"))
    parser.receive_data(b"TUAS" + bytes([size]))
    with pytest.raises(
        RemoteProtocolError, match=r"^transport auth token length out of range"
    ):
        parser.next_purpose()


def test_half_a_preamble_at_the_end_is_refused() -> None:
    parser = AuthParser(tokens("lane:0>1"))
    parser.receive_data(b"TUAS\x20abc")
    with pytest.raises(RemoteProtocolError, match="29 of 32 bytes of the transport"):
        parser.receive_eof()
