"""The byte reader: exact pieces, one copy at most, failure for good."""

from __future__ import annotations

import sys

import pytest

from skippyd.core.wire.reader import ByteReader, Parser, Parsing
from skippyd.errors import LocalProtocolError, RemoteProtocolError


def parse_pair(reader: ByteReader) -> Parser[tuple[bytes, bytes]]:
    """A head of one byte that counts the body."""
    head = yield from reader.read_exact(1, "the head")
    if head[0] == 255:
        raise RemoteProtocolError("255 is refused")
    if head[0] == 254:
        raise LocalProtocolError("254 breaks a shared rule")
    body = yield from reader.read_exact(head[0], "the body")
    return bytes(head), bytes(body)


def parse_eight(reader: ByteReader) -> Parser[memoryview]:
    return (yield from reader.read_exact(8, "eight bytes"))


def pairs() -> Parsing[tuple[bytes, bytes]]:
    return Parsing("the head", 1, parse_pair)


def test_an_element_within_one_received_object_is_a_view_of_it() -> None:
    parsing = Parsing("eight bytes", 8, parse_eight)
    data = bytes(range(16))
    parsing.receive_data(data)
    for _ in range(2):
        value = parsing.next_value()
        assert value is not None
        assert value.obj is data
    assert parsing.next_value() is None


def test_an_element_spread_over_pieces_is_gathered_and_read_only() -> None:
    parsing = Parsing("eight bytes", 8, parse_eight)
    for start in range(0, 9, 3):
        assert parsing.next_value() is None
        parsing.receive_data(bytearray(range(start, start + 3)))
    value = parsing.next_value()
    assert value is not None
    assert bytes(value) == bytes(range(8))
    assert value.readonly
    assert parsing.take_unread() == b"\x08"


def test_pieces_may_pile_up_before_they_are_read() -> None:
    parsing = pairs()
    for byte in b"\x02ab\x00\x01":
        parsing.receive_data(bytes([byte]))
    assert parsing.next_value() == (b"\x02", b"ab")
    assert parsing.next_value() == (b"\x00", b"")
    assert parsing.next_value() is None
    assert parsing.wanted_bytes == 1
    parsing.receive_data(b"cd")
    parsing.receive_data(b"")
    assert parsing.next_value() == (b"\x01", b"c")
    assert not parsing.at_boundary
    assert parsing.take_unread() == b"d"
    assert parsing.at_boundary


def test_a_filled_element_leaves_later_bytes_for_the_next() -> None:
    """Bytes beyond an element in progress are kept apart although nobody reads."""
    parsing = pairs()
    parsing.receive_data(b"\x04a")
    assert parsing.next_value() is None
    assert parsing.wanted_bytes == 3
    parsing.receive_data(b"bcd")
    assert parsing.wanted_bytes == 0
    parsing.receive_data(b"\x01")
    parsing.receive_data(b"e")
    assert parsing.next_value() == (b"\x04", b"abcd")
    assert parsing.next_value() == (b"\x01", b"e")


def test_bytes_of_wide_items_count_as_bytes() -> None:
    parsing = pairs()
    parsing.receive_data(b"\x08a")
    assert parsing.next_value() is None
    parsing.receive_data(memoryview(b"bcdefgh\x00").cast("i"))
    assert parsing.next_value() == (b"\x08", b"abcdefgh")
    assert parsing.next_value() == (b"\x00", b"")


def test_an_idle_connection_does_not_keep_its_last_bytes_alive() -> None:
    parsing = Parsing("eight bytes", 8, parse_eight)
    data = bytes(range(8))
    references = sys.getrefcount(data)
    parsing.receive_data(data)
    assert sys.getrefcount(data) > references
    assert parsing.next_value() is not None
    assert sys.getrefcount(data) == references
    assert parsing.at_boundary


def test_the_end_at_a_boundary_is_no_error() -> None:
    parsing = pairs()
    parsing.receive_data(b"\x00")
    assert parsing.next_value() == (b"\x00", b"")
    parsing.receive_eof()
    assert parsing.next_value() is None


def test_whole_values_before_the_end_are_still_given() -> None:
    parsing = pairs()
    parsing.receive_data(b"\x00\x01a\x02b")
    parsing.receive_eof()
    parsing.receive_eof()
    assert parsing.next_value() == (b"\x00", b"")
    assert parsing.next_value() == (b"\x01", b"a")
    with pytest.raises(RemoteProtocolError, match="1 of 2 bytes of the body never"):
        parsing.next_value()


def test_bytes_after_the_end_are_our_own_fault() -> None:
    parsing = pairs()
    parsing.receive_eof()
    with pytest.raises(LocalProtocolError, match="3 bytes were given"):
        parsing.receive_data(b"abc")


@pytest.mark.parametrize("head", [b"\xff", b"\xfe"], ids=["remote", "shared rule"])
def test_a_broken_rule_is_the_peers_and_stays(head: bytes) -> None:
    parsing = pairs()
    parsing.receive_data(b"\x00" + head)
    assert parsing.next_value() == (b"\x00", b"")
    with pytest.raises(RemoteProtocolError) as first:
        parsing.next_value()
    for again in (
        parsing.next_value,
        parsing.receive_eof,
        lambda: parsing.receive_data(b"\x00"),
    ):
        with pytest.raises(RemoteProtocolError) as later:
            again()
        assert str(later.value) == str(first.value)


def test_a_parser_is_at_a_boundary_until_it_holds_a_byte_and_when_all_is_taken() -> (
    None
):
    parsing = pairs()
    at_boundary, taken = [parsing.at_boundary], []
    for piece in (b"\x02a", b"b"):
        parsing.receive_data(piece)
        at_boundary.append(parsing.at_boundary)
        taken.append(parsing.next_value())
        at_boundary.append(parsing.at_boundary)
    assert taken == [None, (b"\x02", b"ab")]
    assert at_boundary == [True, False, False, False, True]
