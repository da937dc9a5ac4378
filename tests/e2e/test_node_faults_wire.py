"""What strangers and broken nodes send to a daemon's ports: refused, and forgotten."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from support.daemons import Daemon, until
from support.process_holdings import Holdings, cpu_share, listening_ports
from support.raw_control import CONTROL_PATH, RawControl


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.watchdog(120),
]

POLICY_VIOLATION, TOO_BIG = 1008, 1009
HALF_OPEN = 12
IDLE_SHARE = 0.05
FORGOTTEN_SECONDS = 45.0
HELLO = {
    "generation": 8,
    "features": [
        "stage-control",
        "stage-generation-8",
        "status-list",
        "local-gguf-content-id-v1",
    ],
    "version": "0.0.1",
    "name": "borea",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    """A node that is abused, and one that it trusts and that is down by now."""
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "models").mkdir()
    atlas, borea = (
        Daemon(name, folder / name, folder / "models") for name in ("atlas", "borea")
    )
    try:
        for daemon in (atlas, borea):
            daemon.start()
        for daemon in (atlas, borea):
            daemon.until_ready()
        borea.join(atlas)
        until(lambda: atlas.sees()["borea"] == "ok", "they have met", within_s=30)
        assert borea.stop() == 0, borea.log
        yield atlas, borea
        assert atlas.stop() == 0, atlas.log
    finally:
        for daemon in (atlas, borea):
            daemon.close()


@pytest.fixture
def atlas(pair: tuple[Daemon, Daemon]) -> Iterator[Daemon]:
    """The abused node; afterwards it holds no more than before and is idle."""
    node = pair[0]
    before = _holdings(node)
    yield node
    assert node.ctl("status").returncode in {0, 3}
    until(
        lambda: _holdings(node).descriptors <= before.descriptors,
        f"{node.name} holds what it held: {before}",
        within_s=FORGOTTEN_SECONDS,
    )
    assert cpu_share(_pid(node), 1.0) < IDLE_SHARE


@pytest.fixture
def borea_state(pair: tuple[Daemon, Daemon]) -> Path:
    """State directory of the trusted node: its key."""
    return pair[1].folder / "state"


def test_without_a_certificate_the_control_path_says_to_join(atlas: Daemon) -> None:
    with RawControl(atlas.control_port) as stranger:
        assert " 101 " in stranger.upgrade()
        last_words = stranger.hear()
        assert last_words.close_code == POLICY_VIOLATION
        assert "join first" in last_words.close_reason
        stranger.until_ended()
    until(lambda: "showed no certificate" in atlas.log, "its log says so", within_s=10)


def test_a_certificate_of_an_unknown_node_is_refused_by_tls(
    atlas: Daemon, tmp_path: Path
) -> None:
    stranger = Daemon("ceres", tmp_path / "ceres", tmp_path)
    stranger.start()
    try:
        stranger.until_ready()
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            RawControl(atlas.control_port, stranger.folder / "state") as connection,
        ):
            connection.upgrade()
    finally:
        stranger.close()


def test_a_trusted_certificate_without_its_key_is_of_no_use(
    borea_state: Path, pair: tuple[Daemon, Daemon], tmp_path: Path
) -> None:
    (tmp_path / "identity.pem").write_bytes((borea_state / "identity.pem").read_bytes())
    own_key = pair[0].folder / "state" / "identity.key"
    (tmp_path / "identity.key").write_bytes(own_key.read_bytes())
    with pytest.raises(ssl.SSLError):
        RawControl(pair[0].control_port, tmp_path)


def test_the_join_path_answers_nothing_but_join(atlas: Daemon) -> None:
    with RawControl(atlas.control_port) as stranger:
        assert " 101 " in stranger.upgrade("/join/1")
        stranger.say("status", {})
        assert "join only" in stranger.answer()["error"]["message"]


def test_another_generation_is_refused_by_name(
    atlas: Daemon, borea_state: Path
) -> None:
    node_id = _only_peer(atlas)
    with RawControl(atlas.control_port, borea_state) as peer:
        assert " 101 " in peer.upgrade()
        peer.say("hello", HELLO | {"generation": 7, "requester_id": node_id})
        error = peer.answer()["error"]
    assert "expected 8, got 7" in error["message"], error


def test_a_node_that_lacks_a_feature_is_told_which(
    atlas: Daemon, borea_state: Path
) -> None:
    node_id = _only_peer(atlas)
    with RawControl(atlas.control_port, borea_state) as peer:
        peer.upgrade()
        features = ["stage-control", "stage-generation-8", "status-list"]
        peer.say("hello", HELLO | {"requester_id": node_id, "features": features})
        error = peer.answer()["error"]
    assert "lacks local-gguf-content-id-v1" in error["message"], error
    assert "0.0.1" in error["message"], error


def test_a_node_that_calls_itself_another_is_refused(
    atlas: Daemon, borea_state: Path
) -> None:
    with RawControl(atlas.control_port, borea_state) as peer:
        peer.upgrade()
        peer.say("hello", HELLO | {"requester_id": "00" * 32})
        assert "error" in peer.answer()


def test_a_frame_over_the_limit_is_cut_off_before_it_is_read(
    atlas: Daemon, borea_state: Path
) -> None:
    before = _holdings(atlas).resident_bytes
    with RawControl(atlas.control_port, borea_state) as peer:
        peer.upgrade()
        peer.say("hello", HELLO | {"requester_id": _only_peer(atlas)})
        assert "result" in peer.answer()
        peer.announce(2**40)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for _ in range(64):
                peer.send(bytes(2**16))
        peer.until_ended()
    assert _holdings(atlas).resident_bytes < before + 2**24


def test_garbage_on_every_port_ends_that_connection_only(atlas: Daemon) -> None:
    ports = listening_ports(_pid(atlas))
    assert {atlas.control_port, atlas.door_port} < ports, "the latency echo is one too"
    for address in _addresses(atlas):
        for garbage in (b"\x00" * 4096, b"\xff" * 4096, os.urandom(4096), b"\r\n" * 99):
            with _connected(address) as stranger:
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(garbage)
                    stranger.shutdown(socket.SHUT_WR)
                _drain(stranger)


def test_connections_that_say_nothing_keep_nobody_out(atlas: Daemon) -> None:
    with contextlib.ExitStack() as held:
        for address in _addresses(atlas):
            for _ in range(HALF_OPEN):
                held.enter_context(_connected(address))
        assert atlas.ctl("status").returncode in {0, 3}
        assert atlas.refusal("no-such-model")[0] in {404, 503}


def test_a_slow_drip_on_the_control_port_is_ended(atlas: Daemon) -> None:
    head = f"GET {CONTROL_PATH} HTTP/1.1\r\nX-Slow: ".encode()
    start_s = time.monotonic()
    with RawControl(atlas.control_port) as drip:
        drip.send(head)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            _drip(drip.send, within_s=30.0)
    assert time.monotonic() - start_s < 30.0


def test_a_slow_drip_at_the_front_door_is_ended(atlas: Daemon) -> None:
    with _connected(("127.0.0.1", atlas.door_port)) as drip:
        drip.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nX-Slow: ")
        with pytest.raises(ConnectionError):
            _drip(drip.sendall, within_s=60.0)


def _pid(node: Daemon) -> int:
    assert node.process is not None
    return node.process.pid


def _holdings(node: Daemon) -> Holdings:
    return Holdings.of(_pid(node))


def _only_peer(node: Daemon) -> str:
    rows = node.ask("nodes")["items"]
    return next(str(row["node_id"]) for row in rows if row["name"] == "borea")


def _addresses(node: Daemon) -> list[str | tuple[str, int]]:
    ports = sorted(listening_ports(_pid(node)))
    return [str(node.socket), *(("127.0.0.1", port) for port in ports)]


def _connected(address: str | tuple[str, int]) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    stream = socket.socket(family)
    stream.settimeout(15.0)
    stream.connect(address)
    return stream


def _drain(stream: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while stream.recv(65_536):
            pass


def _drip(send: Callable[[bytes], object], *, within_s: float) -> None:
    give_up_s = time.monotonic() + within_s
    while time.monotonic() < give_up_s:
        send(b"x")
        time.sleep(0.1)
