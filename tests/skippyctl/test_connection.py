from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from wsproto.events import Ping, TextMessage

from skippyctl.channel import DaemonUnreachableError
from skippyctl.connection import AdminConnection, RefusedByDaemonError
from skippyd.errors import ExitCode
from skippyd.net.jsonrpc_messages import RpcCode
from support.admin_daemon import admin_daemon
from support.admin_view import FakeNodeView, infeasible
from support.bad_servers import answering, bad_server, next_text, shake_hands


if TYPE_CHECKING:
    import socket
    from pathlib import Path

HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"schema": "skippy.hello/1", "api": 1, "version": "x"},
    }
)


def item(document: object, method: str = "item") -> str:
    params = {"method": "events.watch", "document": document}
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params})


def failure(code: int, data: object = None) -> str:
    error = {"code": code, "message": "no \x1b[2J"} | ({"data": data} if data else {})
    return json.dumps({"jsonrpc": "2.0", "id": 2, "error": error})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "admin.sock"


def test_a_real_daemon_answers_calls_and_streams(path: Path) -> None:
    with admin_daemon(path, FakeNodeView()):
        connection = AdminConnection(path)
        status = connection.call("status", timeout_s=10.0)
        assert status["schema"] == "skippy.status/1"
        documents = connection.stream("events.watch", {"after": 4})
        assert [next(documents)["sequence"], next(documents)["sequence"]] == [5, 6]
        connection.close()


def test_a_refusal_of_a_real_daemon_has_its_exit_code(path: Path) -> None:
    with admin_daemon(path, FakeNodeView(refusal=infeasible())):
        connection = AdminConnection(path)
        with pytest.raises(RefusedByDaemonError, match="needs 12 GiB") as raised:
            connection.call("deploy", {"model": "m"}, timeout_s=10.0)
        assert raised.value.exit_code is ExitCode.REFUSED
        connection.close()


@pytest.mark.parametrize(
    ("code", "data", "exit_code"),
    [
        (RpcCode.REFUSED, {"exit_code": 7}, ExitCode.STALE_TERM),
        (RpcCode.REFUSED, {"exit_code": 99}, ExitCode.FAILED),
        (RpcCode.REFUSED, {"exit_code": "7"}, ExitCode.FAILED),
        (RpcCode.NOT_ALLOWED, None, ExitCode.PERMISSION),
        (RpcCode.INVALID_PARAMS, None, ExitCode.USAGE),
        (RpcCode.TOO_MANY_REQUESTS, None, ExitCode.TRY_AGAIN),
        (RpcCode.DEADLINE, None, ExitCode.TRY_AGAIN),
        (RpcCode.NOT_READY, None, ExitCode.TRY_AGAIN),
        (RpcCode.INTERNAL, None, ExitCode.FAILED),
        (12, None, ExitCode.FAILED),
    ],
)
def test_every_refusal_has_an_exit_code_and_a_harmless_text(
    path: Path, code: int, data: object, exit_code: ExitCode
) -> None:
    with bad_server(path, answering(HELLO, failure(code, data))):
        connection = AdminConnection(path)
        with pytest.raises(RefusedByDaemonError) as raised:
            connection.call("status", timeout_s=10.0)
        connection.close()
    assert raised.value.exit_code is exit_code
    assert str(raised.value) == r"no \x1b[2J"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{", "what is no answer"),
        ("[]", "what is no answer"),
        ('{"id": 9, "result": {}}', "was not asked"),
        ('{"id": 2, "result": 3}', "was not asked"),
        ('{"id": 2, "error": "no"}', "was not asked"),
        ("[" * 100_000, "what is no answer"),
    ],
)
def test_answers_that_are_none_are_told(path: Path, answer: str, said: str) -> None:
    with bad_server(path, answering(HELLO, answer)):
        connection = AdminConnection(path)
        with pytest.raises(DaemonUnreachableError, match=said):
            connection.call("status", timeout_s=10.0)
        connection.close()


def test_a_refused_hello_closes_the_connection(path: Path) -> None:
    refused = failure(RpcCode.REFUSED, {"exit_code": 1})
    with (
        bad_server(path, answering(refused)),
        pytest.raises(RefusedByDaemonError),
    ):
        AdminConnection(path)


def test_a_daemon_that_dies_between_is_told(path: Path) -> None:
    with bad_server(path, answering(HELLO)):
        connection = AdminConnection(path)
        with pytest.raises(DaemonUnreachableError, match="lost the daemon"):
            connection.call("status", timeout_s=10.0)
        connection.close()


def test_no_answer_in_time_is_told(path: Path) -> None:
    done = threading.Event()

    def act(connection: socket.socket) -> None:
        answering(HELLO)(connection)
        done.wait(10.0)

    with bad_server(path, act):
        connection = AdminConnection(path)
        with pytest.raises(DaemonUnreachableError, match=r"status within 0\.05 s"):
            connection.call("status", timeout_s=0.05)
        done.set()
        connection.close()


def test_a_silent_stream_is_asked_once_whether_it_lives(path: Path) -> None:
    done = threading.Event()
    pings: list[Ping] = []

    def act(connection: socket.socket) -> None:
        server = shake_hands(connection)
        next_text(connection, server)
        connection.sendall(server.send(TextMessage(HELLO)))
        next_text(connection, server)
        connection.sendall(server.send(TextMessage(item({"n": 1}, "other"))))
        connection.sendall(server.send(TextMessage(item({"n": 2}))))
        while not pings:
            server.receive_data(connection.recv(4096))
            for event in server.events():
                if isinstance(event, Ping):
                    pings.append(event)
                    connection.sendall(server.send(event.response()))
        done.wait(10.0)

    with bad_server(path, act):
        connection = AdminConnection(path, silence_s=0.1)
        documents = connection.stream("events.watch", {})
        assert next(documents) == {"n": 2}
        # The pong to the first ping is a sign of life; then there is none.
        with pytest.raises(DaemonUnreachableError, match=r"within 0\.2 s"):
            next(documents)
        done.set()
        connection.close()
    assert pings


def test_a_stream_ends_when_the_daemon_ends_it(path: Path) -> None:
    end = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"message": "end"}})

    def act(connection: socket.socket) -> None:
        server = shake_hands(connection)
        next_text(connection, server)
        connection.sendall(server.send(TextMessage(HELLO)))
        next_text(connection, server)
        for text in (item({"n": 1}), end):
            connection.sendall(server.send(TextMessage(text)))

    with bad_server(path, act):
        connection = AdminConnection(path)
        assert list(connection.stream("events.watch")) == [{"n": 1}]
        connection.close()
