"""The client's half of WebSocket against a library's server half, and against liars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    Request,
    TextMessage,
)

from skippyctl.frames import (
    MESSAGE_MAX_BYTES,
    FrameError,
    FrameReader,
    Opcode,
    check_response,
    client_frame,
    request_head,
)


KEY = bytes(range(16))
MASK = b"\x01\x02\x03\x04"


def open_server() -> tuple[WSConnection, bytes]:
    """A server that has accepted, and what it said."""
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(request_head("/v1", KEY))
    (request,) = server.events()
    assert isinstance(request, Request)
    assert request.target == "/v1"
    return server, server.send(AcceptConnection())


def reader_of(*parts: bytes) -> FrameReader:
    reader = FrameReader()
    for part in parts:
        reader.feed(part)
    return reader


def test_a_server_accepts_and_its_proof_is_checked() -> None:
    _, answer = open_server()
    reader = reader_of(answer[:20])
    assert reader.head() is None
    reader.feed(answer[20:])
    head = reader.head()
    assert head is not None
    check_response(head, KEY)
    with pytest.raises(FrameError, match="does not fit"):
        check_response(head, bytes(16))


def test_a_refusal_is_told_by_its_status() -> None:
    with pytest.raises(FrameError, match="404 Not Found"):
        check_response(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0", KEY)


def test_an_endless_answer_to_the_handshake_ends() -> None:
    with pytest.raises(FrameError, match="too long"):
        reader_of(b"x" * 8193).head()


@given(st.text(max_size=300))
def test_a_server_reads_what_the_client_writes(text: str) -> None:
    server, _ = open_server()
    server.receive_data(client_frame(Opcode.TEXT, text.encode(), MASK))
    (message,) = server.events()
    assert isinstance(message, TextMessage)
    assert message.data == text


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 200_000])
def test_every_form_of_length_is_written_and_read(size: int) -> None:
    server, _ = open_server()
    server.receive_data(client_frame(Opcode.TEXT, b"x" * size, MASK))
    texts = [each.data for each in server.events() if isinstance(each, TextMessage)]
    assert "".join(texts) == "x" * size
    reader = reader_of(server.send(TextMessage("y" * size)))
    assert reader.next_message() == (Opcode.TEXT, b"y" * size)


@given(st.lists(st.text(max_size=200), max_size=5), st.integers(1, 40))
def test_messages_come_whole_however_they_are_cut(texts: list[str], step: int) -> None:
    server, _ = open_server()
    data = b"".join(server.send(TextMessage(text)) for text in texts)
    reader, found = FrameReader(), []
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
        while (message := reader.next_message()) is not None:
            found.append(message)
    assert found == [(Opcode.TEXT, text.encode()) for text in texts]


def test_fragments_are_joined_and_pings_may_come_between() -> None:
    server, _ = open_server()
    data = server.send(TextMessage("one ", message_finished=False))
    data += server.send(Ping(b"hi"))
    data += server.send(TextMessage("two"))
    reader = reader_of(data)
    assert reader.next_message() == (Opcode.PING, b"hi")
    assert reader.next_message() == (Opcode.TEXT, b"one two")
    assert reader.next_message() is None


def test_last_words_are_read() -> None:
    server, _ = open_server()
    reader = reader_of(server.send(CloseConnection(code=1000, reason="bye")))
    assert reader.next_message() == (Opcode.CLOSE, b"\x03\xe8bye")


def test_pings_and_pongs_reach_the_server() -> None:
    server, _ = open_server()
    server.receive_data(client_frame(Opcode.PING, b"", MASK))
    server.receive_data(client_frame(Opcode.PONG, b"x", MASK))
    ping, pong = server.events()
    assert isinstance(ping, Ping)
    assert isinstance(pong, Pong)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x81\x80\0\0\0\0", "only clients do"),
        (b"\xf1\x00", "extensions"),
        (b"\x83\x00", "kind 3"),
        (b"\x89\x7e\x00\x7e" + b"x" * 126, "control frame"),
        (b"\x09\x00", "control frame"),
        (b"\x80\x01x", "out of order"),
        (b"\x01\x01x\x81\x01x", "out of order"),
        (b"\x81\x7f" + (MESSAGE_MAX_BYTES + 1).to_bytes(8, "big"), "too long"),
    ],
)
def test_frames_that_no_server_may_send_are_refused(
    data: bytes, complaint: str
) -> None:
    with pytest.raises(FrameError, match=complaint):
        read_all(reader_of(data))


def read_all(reader: FrameReader) -> None:
    while reader.next_message() is not None:
        pass


def test_bytes_and_endless_fragments_are_refused() -> None:
    server, _ = open_server()
    with pytest.raises(FrameError, match="texts are due"):
        reader_of(server.send(BytesMessage(b"x"))).next_message()
    part = b"\x7f" + (MESSAGE_MAX_BYTES // 2 + 1).to_bytes(8, "big")
    body = bytes(MESSAGE_MAX_BYTES // 2 + 1)
    reader = reader_of(b"\x01" + part + body, b"\x80" + part + body)
    with pytest.raises(FrameError, match="too long"):
        reader.next_message()
