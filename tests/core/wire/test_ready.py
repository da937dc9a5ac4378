"""The ready word is recognised, and nothing else is."""

from __future__ import annotations

import pytest

from skippyd.core.wire.ready import ReadyParser, is_client_hello
from skippyd.errors import RemoteProtocolError


def test_bytes_behind_the_ready_word_are_left_for_the_next_parser() -> None:
    parser = ReadyParser()
    assert parser.next_ready() is None
    assert parser.wanted_bytes == 4
    parser.receive_data(b"YDRSmore")
    assert parser.next_ready() is True
    assert parser.take_unread() == b"more"
    assert parser.at_boundary


def test_another_word_is_refused_by_name() -> None:
    parser = ReadyParser()
    parser.receive_data(b"HTTP")
    with pytest.raises(
        RemoteProtocolError, match=r"^stage ready magic mismatch: got 0x50545448"
    ):
        parser.next_ready()


def test_half_a_word_at_the_end_is_refused() -> None:
    parser = ReadyParser()
    parser.receive_data(b"YD")
    with pytest.raises(RemoteProtocolError, match="2 of 4 bytes of the stage ready"):
        parser.receive_eof()


def test_only_the_same_word_is_a_client_hello() -> None:
    assert is_client_hello(b"YDRS")
    assert not is_client_hello(b"SRDY")
    assert not is_client_hello(b"YDR")
