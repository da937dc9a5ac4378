"""TLS in memory over a blocking socket: whole, bounded in time, and clear when not."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from skippyd.coordination.identity import Identity, load_or_create
from skippyd.net.tcp import close_after_last_words, interrupt, prepare, receive
from skippyd.net.tcp import send_buffers as send
from skippyd.net.tls import TlsRefusedError, client_context, server_context
from skippyd.net.tls_socket import TlsSocket
from skippyd.stage.waiting import wait_readable


if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

PROTOCOL = ["test/1"]


@pytest.fixture
def nodes(tmp_path: Path) -> list[Identity]:
    made = []
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        made.append(load_or_create(tmp_path / name))
    return made


def connected(io_timeout_s: float) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far = listener.accept()[0]
    for end in (near, far):
        prepare(end, io_timeout_s=io_timeout_s)
    return near, far


def shaken(connection: TlsSocket) -> str:
    def wait() -> None:
        if not wait_readable([connection], 5.0):
            raise TimeoutError("nothing came")

    return connection.shake_hands(wait)


def contexts(
    nodes: list[Identity], *, wanted: int = 1, trusted: int = 0
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Node 0 dials, node 1 accepts; by default they know each other."""
    return (
        client_context(
            nodes[0].own_certificate,
            trusted_pem=nodes[wanted].certificate_pem,
            alpn=PROTOCOL,
        ),
        server_context(
            nodes[1].own_certificate,
            trusted_pems=[nodes[trusted].certificate_pem],
            alpn=PROTOCOL,
        ),
    )


@contextlib.contextmanager
def met(
    nodes: list[Identity], *, io_timeout_s: float = 5.0
) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    near, far = connected(io_timeout_s)
    client, server = contexts(nodes)
    ends = (
        TlsSocket(near, client, is_server=False),
        TlsSocket(far, server, is_server=True),
    )
    try:
        with ThreadPoolExecutor(2) as pool:
            keys = list(pool.map(shaken, ends))
        assert keys == [nodes[1].node_id, nodes[0].node_id]
        yield ends
    finally:
        for end in ends:
            end.close()


def read_exactly(connection: TlsSocket, size: int) -> bytes:
    got = connection.take_early()
    while len(got) < size:
        data = receive(connection, 1)
        assert data != b"", "ended early"
        got += data or b""
    return got


def test_large_and_small_buffers_arrive_whole_both_ways(nodes: list[Identity]) -> None:
    with met(nodes) as (near, far):
        assert near.protocol == far.protocol == "test/1"
        large = bytes(range(256)) * 8192
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send, near, [b"head", memoryview(large), b""])
            assert read_exactly(far, 4 + len(large)) == b"head" + large
            sending.result()
        send(far, [b"back"])
        assert read_exactly(near, 4) == b"back"


def test_what_comes_with_the_handshake_is_not_left_behind(
    nodes: list[Identity],
) -> None:
    """The dialler's last handshake record and its first words share a segment."""
    near, far = connected(5.0)
    client, server = contexts(nodes)
    dialler = TlsSocket(near, client, is_server=False)
    accepting = TlsSocket(far, server, is_server=True)
    gate = threading.Event()

    def wait_for_all() -> None:
        wait_readable([accepting], 5.0)
        if has_begun:
            gate.wait(5.0)
        has_begun.append(True)

    has_begun: list[bool] = []
    with ThreadPoolExecutor(1) as pool:
        shaking = pool.submit(accepting.shake_hands, wait_for_all)
        shaken(dialler)
        send(dialler, [b"first words"])
        gate.set()
        shaking.result()
    assert accepting.take_early() == b"first words"
    dialler.close()
    accepting.close()


def test_half_a_record_is_nothing_yet_and_holds_nobody_up(
    nodes: list[Identity],
) -> None:
    with met(nodes) as (near, far):
        near.plain.send(b"\x17\x03\x03\x00\x40only a part")
        assert receive(far, 100) is None


def test_a_peer_that_says_or_takes_nothing_is_a_timeout(nodes: list[Identity]) -> None:
    with met(nodes, io_timeout_s=0.1) as (near, far):
        with pytest.raises(TimeoutError, match="sent nothing"):
            receive(near, 1)
        with pytest.raises(TimeoutError, match="stopped reading"):
            send(far, [bytes(50_000_000)])
        with pytest.raises(BrokenPipeError, match="cut short"):
            send(far, [b"more"])


def test_an_interrupt_from_another_thread_ends_a_read(nodes: list[Identity]) -> None:
    with met(nodes, io_timeout_s=30.0) as (near, _far), ThreadPoolExecutor(1) as pool:
        reading = pool.submit(receive, near, 1)
        began = time.monotonic()
        interrupt(near)
        assert reading.result() == b""
        assert time.monotonic() - began < 5


def test_last_words_arrive_before_the_end(nodes: list[Identity]) -> None:
    with met(nodes) as (near, far), ThreadPoolExecutor(1) as pool:
        send(near, [b"unread by the other end"])
        send(far, [b"the reason"])
        closing = pool.submit(close_after_last_words, far)
        assert read_exactly(near, 10) == b"the reason"
        assert receive(near, 1) == b""
        near.close()
        closing.result()


def test_bytes_that_were_changed_on_the_way_are_no_data(nodes: list[Identity]) -> None:
    with met(nodes) as (near, far):
        near.plain.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(ConnectionAbortedError, match="TLS: "):
            receive(far, 1)


@pytest.mark.parametrize(
    ("wanted", "trusted", "near_words", "far_words"),
    [
        (1, 2, "does not know this node's certificate", "is not the stored one"),
        (2, 0, "is not the stored one", "does not know this node's certificate"),
    ],
)
def test_a_wrong_certificate_is_said_to_both(
    nodes: list[Identity], wanted: int, trusted: int, near_words: str, far_words: str
) -> None:
    near, far = connected(5.0)
    client, server = contexts(nodes, wanted=wanted, trusted=trusted)
    dialler = TlsSocket(near, client, is_server=False)
    accepting = TlsSocket(far, server, is_server=True)

    def dial() -> str:
        try:
            shaken(dialler)
            # In TLS 1.3 a client learns that it was refused with the first byte.
            receive(dialler, 1)
        except (TlsRefusedError, ConnectionAbortedError) as error:
            return str(error)
        return "went on"

    def accept() -> str:
        try:
            shaken(accepting)
        except TlsRefusedError as error:
            return str(error)
        return "went on"

    with ThreadPoolExecutor(2) as pool:
        dialling, accepted = pool.submit(dial), pool.submit(accept)
        assert near_words in dialling.result()
        assert far_words in accepted.result()
    dialler.close()
    accepting.close()
