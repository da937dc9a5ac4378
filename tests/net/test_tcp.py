"""Blocking sockets with deadlines, and a last word that arrives."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from skippyd.net import tcp
from skippyd.net.tcp import (
    Address,
    close_after_last_words,
    close_all,
    dial,
    interrupt,
    prepare,
    receive,
    send_buffers,
)


if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Somebody who listens."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener


@pytest.fixture
def ends(listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection whose reads and writes may stall for 50 ms, and its peer."""
    ours = socket.create_connection(listener.getsockname())
    theirs, _address = listener.accept()
    prepare(ours, io_timeout_s=0.05)
    with ours, theirs:
        yield ours, theirs


def address_of(listener: socket.socket) -> Address:
    return Address(HOST, listener.getsockname()[1])


@pytest.mark.parametrize("source", [None, "0.0.0.0", "127.0.0.1", "127.0.0.7"])
def test_a_dial_leaves_from_the_address_that_was_asked_for(
    listener: socket.socket, source: str | None
) -> None:
    with dial(address_of(listener), source_host=source, timeout_s=1) as connection:
        expected = source if source and source != "0.0.0.0" else HOST
        assert connection.getsockname()[0] == expected


def test_a_dial_from_an_address_of_another_machine_fails(
    listener: socket.socket,
) -> None:
    with pytest.raises(OSError, match="assign"):
        dial(address_of(listener), source_host="192.0.2.1", timeout_s=1)


def test_a_port_that_meets_itself_counts_as_refused() -> None:
    """Dialling a free port of the ephemeral range from that very port connects."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        tcp._connected((HOST, port), (HOST, port), 1.0)


def test_an_address_reads_as_people_write_it() -> None:
    assert str(Address("h", 1)) == "h:1"
    assert str(Address("::1", 1)) == "[::1]:1"


def test_a_prepared_socket_has_no_nagle_and_notices_dead_peers(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, _theirs = ends
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


def test_buffers_are_sent_whole_even_when_the_kernel_takes_little(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    prepare(ours, io_timeout_s=5.0)
    pieces = [bytes([n]) * 700_000 for n in range(6)]
    sending = threading.Thread(target=send_buffers, args=(ours, [b"", *pieces, b"end"]))
    sending.start()
    whole = b"".join(pieces) + b"end"
    assert theirs.recv(len(whole), socket.MSG_WAITALL) == whole
    sending.join()


def test_a_peer_that_takes_nothing_is_a_timeout(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    with pytest.raises(TimeoutError, match="stopped reading"):
        send_buffers(ends[0], [bytes(50_000_000)])


def test_a_peer_that_says_nothing_is_a_timeout(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    with pytest.raises(TimeoutError, match="sent nothing more"):
        receive(ends[0], 10)


def test_the_end_of_a_stream_is_empty(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    theirs.shutdown(socket.SHUT_WR)
    assert receive(ours, 10) == b""


def test_an_interrupt_wakes_a_reader(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _theirs = ends
    prepare(ours, io_timeout_s=10.0)
    threading.Timer(0.02, interrupt, (ours,)).start()
    began = time.monotonic()
    assert receive(ours, 10) == b""
    assert time.monotonic() - began < 5
    ours.close()
    interrupt(ours)


def test_last_words_arrive_although_the_peer_still_talks(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """Closing with unread bytes would reset the connection and lose the words."""
    ours, theirs = ends
    theirs.sendall(bytes(100_000))
    send_buffers(ours, [b"the reason"])
    closing = threading.Thread(target=close_after_last_words, args=(ours,))
    closing.start()
    assert theirs.recv(100) == b"the reason"
    assert theirs.recv(100) == b""
    theirs.close()
    closing.join()
    assert ours.fileno() == -1


def test_a_peer_that_never_stops_talking_does_not_hold_the_close(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skippyd.net.tcp.LINGER_SECONDS", 0.1)
    began = time.monotonic()
    close_after_last_words(ends[0])
    assert time.monotonic() - began < 1


def test_whatever_is_open_is_closed(ends: tuple[socket.socket, socket.socket]) -> None:
    close_all([ends[0], None])
    assert ends[0].fileno() == -1
