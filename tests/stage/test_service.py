"""Who may connect to a stage, and how many."""

from __future__ import annotations

import errno
import socket
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.config.endpoints import Endpoint
from skippyd.core.wire.auth import connection_token, lane_purpose
from skippyd.core.wire.encode import encode_auth_preamble, encode_ready
from skippyd.net.tcp import plain_socket
from skippyd.stage import service
from skippyd.stage.service import HELLO_VARIABLE, BindError, listen_on
from support.stage_room import (
    HOST,
    RUN_KEY,
    becomes,
    blocking,
    dialled,
    driver_on,
    generate,
    running_room,
)


if TYPE_CHECKING:
    from support.stage_room import Room

pytestmark = pytest.mark.watchdog(20)


def reached(room: Room, index: int) -> socket.socket:
    """A connection that has said nothing yet."""
    address = room.nodes[index].config.bind_addr
    return socket.create_connection((address.host, address.port), 5.0)


def test_a_taken_port_is_named_with_the_remedy() -> None:
    with listen_on(Endpoint(HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BindError, match="stop what holds the port") as caught:
            listen_on(Endpoint(HOST, port))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in str(
        caught.value
    )


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(BindError, match=r"cannot listen on 192\.0\.2\.1:0"):
        listen_on(Endpoint("192.0.2.1", 0))


@pytest.mark.parametrize(
    "sent",
    [
        encode_auth_preamble(connection_token(bytes(32), lane_purpose(0, 1))),
        encode_auth_preamble(connection_token(RUN_KEY, lane_purpose(0, 2))),
        encode_auth_preamble(connection_token(RUN_KEY, lane_purpose(1, 2))),
        b"GET / HTTP/1.1\r\n\r\n" + bytes(40),
        encode_auth_preamble(b"short"),
    ],
    ids=["another run", "another place", "another link", "no stage", "another size"],
)
async def test_whoever_proves_no_part_in_the_run_is_told_nothing(sent: bytes) -> None:
    async with running_room(run_key=RUN_KEY) as room:
        with reached(room, 1) as stranger:
            stranger.sendall(sent)
            try:
                assert await blocking(partial(stranger.recv, 4)) == b""
            except ConnectionResetError:
                assert room.nodes[1].open_lanes == 0
        transport = await room.lane()
        assert await blocking(partial(generate, driver_on(transport), [1, 2], 1))


async def test_a_stranger_that_says_nothing_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "OPENING_SECONDS", 0.05)
    async with running_room(run_key=RUN_KEY) as room:
        with reached(room, 1) as stranger:
            assert await blocking(partial(stranger.recv, 4)) == b""


@pytest.mark.slow
async def test_a_hello_is_eaten_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(HELLO_VARIABLE, "1")
    async with running_room(1) as room:
        with reached(room, 0) as client:
            client.sendall(encode_ready())
            assert await blocking(partial(client.recv, 4)) == encode_ready()
        with reached(room, 0) as silent:
            assert await blocking(partial(silent.recv, 4)) == encode_ready()


async def test_connections_are_bounded_and_a_place_becomes_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "SPARE_CONNECTIONS", 1 - 2 * 4)
    async with running_room(1) as room:
        async with dialled(room.nodes[0]):
            with reached(room, 0) as refused:
                assert await blocking(partial(refused.recv, 4)) == b""
        async with trio.open_nursery() as nursery:

            async def come_back() -> None:
                while True:
                    with reached(room, 0) as client:
                        if await blocking(partial(client.recv, 4)):
                            nursery.cancel_scope.cancel()
                            return

            nursery.start_soon(come_back)


class LackingSocket:
    """A listener that lacks descriptors once, then is interrupted, then accepts."""

    def __init__(self) -> None:
        self.errors = [errno.EMFILE, errno.ECONNABORTED]

    async def accept(self) -> tuple[str, tuple[str, int]]:
        """See `trio.socket.SocketType.accept`."""
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, "told to")
        return "a connection", ("127.0.0.1", 7)


async def test_a_lack_of_descriptors_is_waited_out(autojump_clock: object) -> None:
    _connection, peer = await service._accept(LackingSocket())  # type: ignore[arg-type]
    assert peer == "127.0.0.1:7"


async def test_a_listener_that_breaks_ends_the_stage() -> None:
    broken = LackingSocket()
    broken.errors = [errno.EBADF]
    with pytest.raises(OSError, match="told to"):
        await service._accept(broken)  # type: ignore[arg-type]


async def test_the_end_of_a_stage_does_not_wait_for_idle_or_half_opened_peers() -> None:
    async with running_room(run_key=RUN_KEY) as room:
        with reached(room, 1) as half:
            half.sendall(b"\x54")
            async with dialled(room.nodes[1], purpose=lane_purpose(0, 1)) as link:
                began = trio.current_time()
                room.scopes[1].cancel()
                assert (
                    await blocking(partial(plain_socket(link.connection).recv, 1))
                    == b""
                )
                assert trio.current_time() - began < 2
        await becomes(lambda: room.nodes[1].open_lanes == 0, "no lane is left")
