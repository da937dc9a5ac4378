"""What strangers and broken nodes say at a control port: refused, and forgotten.

Every port of nodes that serve is in `test_node_faults_ports.py`.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest

from support.daemons import Daemon, until
from support.process_holdings import Holdings, cpu_share
from support.raw_control import RawControl


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.watchdog(120),
]

POLICY_VIOLATION, TOO_BIG = 1008, 1009
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


def _pid(node: Daemon) -> int:
    assert node.process is not None
    return node.process.pid


def _holdings(node: Daemon) -> Holdings:
    return Holdings.of(_pid(node))


def _only_peer(node: Daemon) -> str:
    rows = node.ask("nodes")["items"]
    return next(str(row["node_id"]) for row in rows if row["name"] == "borea")
