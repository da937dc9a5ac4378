"""A blocking client meets daemons that are not there, not ours, or not well."""

from __future__ import annotations

import errno
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, TextMessage

from skippyctl import channel as channel_module
from skippyctl.channel import BlockingChannel, DaemonUnreachableError, SocketDeniedError
from skippyctl.frames import FrameError
from support.bad_servers import bad_server, next_text, shake_hands


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "admin.sock"


def opened(path: Path, patience_s: float = 0.0) -> BlockingChannel:
    return BlockingChannel(path, "/v1", patience_s=patience_s)


def test_no_socket_is_told_with_the_remedy(path: Path) -> None:
    with pytest.raises(DaemonUnreachableError) as raised:
        opened(path)
    assert str(raised.value) == (
        f"cannot reach {path}: there is no such socket; is skippyd running? "
        "(systemctl status skippyd, or name another socket with --socket)"
    )
    assert raised.value.exit_code == 4


def test_a_socket_of_a_dead_daemon_is_told(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(DaemonUnreachableError, match="nothing listens on it"):
        opened(path)


def test_a_path_that_is_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError, match="path too long"):
        opened(tmp_path / ("x" * 120))


def test_a_socket_of_others_is_told_with_the_group_that_may(path: Path) -> None:
    """Root may open every socket: the real thing is in the server's tests."""
    error = channel_module._unreachable(path, PermissionError(errno.EACCES, "denied"))
    assert isinstance(error, SocketDeniedError)
    assert error.exit_code == 5
    assert str(error) == (
        f"cannot reach {path}: permission denied; join group skippy or use sudo"
    )


@pytest.mark.slow
def test_a_daemon_that_is_starting_is_waited_for(path: Path) -> None:
    def start_late() -> None:
        time.sleep(0.3)
        with bad_server(path, lambda connection: _greet(connection, "late")):
            pass

    thread = threading.Thread(target=start_late)
    thread.start()
    try:
        channel = opened(path, patience_s=5.0)
        assert channel.receive(5.0) == "late"
        channel.close()
    finally:
        thread.join(10.0)


def _greet(connection: socket.socket, text: str) -> None:
    server = shake_hands(connection)
    connection.sendall(server.send(TextMessage(text)))


def _refuse(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")


def _talk_nonsense(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"220 mail.example ESMTP\r\n\r\n")


def _hang_up(connection: socket.socket) -> None:
    connection.recv(4096)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (_refuse, "404 Not Found"),
        (_talk_nonsense, "220 mail.example ESMTP"),
        (_hang_up, "it ended the connection"),
    ],
)
def test_a_server_that_is_not_skippyd_is_told(
    path: Path, act: Callable[[socket.socket], None], said: str
) -> None:
    with (
        bad_server(path, act),
        pytest.raises(DaemonUnreachableError, match=said),
    ):
        opened(path, patience_s=5.0)


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "HANDSHAKE_SECONDS", 0.1)
    done = threading.Event()

    def act(_connection: socket.socket) -> None:
        done.wait(10.0)

    with bad_server(path, act):
        with pytest.raises(DaemonUnreachableError, match="no answer to the handshake"):
            opened(path, patience_s=5.0)
        done.set()


def test_pings_are_answered_and_are_no_messages(path: Path) -> None:
    ponged = threading.Event()

    def act(connection: socket.socket) -> None:
        server = shake_hands(connection)
        connection.sendall(server.send(Ping(b"?")))
        while not connection.recv(4096):
            pass
        ponged.set()
        connection.sendall(server.send(TextMessage("done")))

    with bad_server(path, act):
        channel = opened(path, patience_s=5.0)
        found = [channel.receive(5.0)]
        while found[-1] is None:
            found.append(channel.receive(5.0))
        channel.close()
    # Whether the ping is seen alone depends on how the bytes come.
    assert [text for text in found if text] == ["done"]
    assert ponged.is_set()


def test_last_words_are_passed_on_and_harmless(path: Path) -> None:
    def act(connection: socket.socket) -> None:
        server = shake_hands(connection)
        next_text(connection, server)
        connection.sendall(server.send(CloseConnection(1008, "no \x1b[2J more")))

    with bad_server(path, act):
        channel = opened(path, patience_s=5.0)
        channel.send("hello")
        with pytest.raises(DaemonUnreachableError, match=r"no \\x1b\[2J more"):
            channel.receive(5.0)
        channel.close()


def test_frames_that_make_no_sense_end_it(path: Path) -> None:
    def act(connection: socket.socket) -> None:
        shake_hands(connection)
        connection.sendall(b"\x81\x80\0\0\0\0")

    with bad_server(path, act):
        channel = opened(path, patience_s=5.0)
        with pytest.raises(
            DaemonUnreachableError, match="as only clients do"
        ) as raised:
            channel.receive(5.0)
        channel.close()
    assert isinstance(raised.value.__cause__, FrameError)


def test_a_message_may_come_along_with_the_handshake(path: Path) -> None:
    def act(connection: socket.socket) -> None:
        server = WSConnection(ConnectionType.SERVER)
        server.receive_data(connection.recv(4096))
        assert list(server.events())
        answer = server.send(AcceptConnection()) + server.send(TextMessage("at once"))
        connection.sendall(answer)

    with bad_server(path, act):
        channel = opened(path, patience_s=5.0)
        assert channel.receive(5.0) == "at once"
        channel.close()


def test_nothing_within_the_time_is_a_timeout(path: Path) -> None:
    done = threading.Event()

    def act(connection: socket.socket) -> None:
        shake_hands(connection)
        done.wait(10.0)

    with bad_server(path, act):
        channel = opened(path, patience_s=5.0)
        with pytest.raises(TimeoutError):
            channel.receive(0.05)
        with pytest.raises(TimeoutError):
            channel.receive(-1.0)
        done.set()
        channel.close()
