"""Unix sockets whose servers misbehave in one way each, for clients that block."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request, TextMessage


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

END_S = 10.0


@contextlib.contextmanager
def bad_server(path: Path, act: Callable[[socket.socket], None]) -> Iterator[None]:
    """Listen, let `act` deal with one connection, and close it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        listening.settimeout(END_S)

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(END_S)
                act(connection)

        thread = threading.Thread(target=serve, name="bad-server")
        thread.start()
        try:
            yield
        finally:
            thread.join(END_S)
        assert not thread.is_alive()


def shake_hands(connection: socket.socket) -> WSConnection:
    """Accept a WebSocket."""
    server = WSConnection(ConnectionType.SERVER)
    while True:
        server.receive_data(connection.recv(4096))
        if any(isinstance(event, Request) for event in server.events()):
            connection.sendall(server.send(AcceptConnection()))
            return server


def next_text(connection: socket.socket, server: WSConnection) -> str:
    """Wait for one whole message of the client."""
    while True:
        for event in server.events():
            if isinstance(event, TextMessage):
                return event.data
        server.receive_data(connection.recv(65_536))


def answering(*texts: str) -> Callable[[socket.socket], None]:
    """A server that answers the first messages with these texts, then hangs up."""

    def act(connection: socket.socket) -> None:
        server = shake_hands(connection)
        for text in texts:
            next_text(connection, server)
            connection.sendall(server.send(TextMessage(text)))

    return act
