"""What a daemon finds at its start, and what the wrong key, token or user are told."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.daemons import Daemon, until
from support.machine_faults import MachineFaults, build_library, reason_against
from support.raw_coordinator import RawCoordinator
from support.stage_nodes import small_plan, stored_term


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    MakeDaemon = Callable[..., Daemon]

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.watchdog(120),
]

FAILED, USAGE, UNREACHABLE, PERMISSION = 1, 2, 4, 5
FENCE_STORE, TRY_AGAIN, BAD_CONFIGURATION = 71, 75, 78
NOBODY = 65_534
SMALL_DISK_BYTES = 262_144
INVITE_SECONDS = 900


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[MakeDaemon]:
    """Make daemons, and end them whatever happens."""
    made: list[Daemon] = []
    (tmp_path / "models").mkdir()

    def make(name: str, extra: str = "") -> Daemon:
        daemon = Daemon(name, tmp_path / name, tmp_path / "models", extra)
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.close()


def _started(daemon: Daemon) -> Daemon:
    daemon.start()
    daemon.until_ready()
    return daemon


def test_a_second_daemon_on_a_state_directory_names_the_first(
    make_daemon: MakeDaemon,
) -> None:
    first = _started(make_daemon("atlas"))
    second = make_daemon("borea")
    text = second.config.read_text().replace(
        f"{second.folder}/state", f"{first.folder}/state"
    )
    second.config.write_text(text)
    second.start()
    assert second.wait() == TRY_AGAIN
    assert first.process is not None
    assert str(first.process.pid) in second.log
    assert f"{first.folder}/state" in second.log
    assert first.ctl("status").returncode in {0, 3}
    assert first.stop() == 0


def test_what_kill_9_leaves_behind_does_not_stop_the_next_start(
    make_daemon: MakeDaemon,
) -> None:
    daemon = _started(make_daemon("atlas"))
    identity = daemon.ask("status")["daemon"]["node_id"]
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    assert daemon.socket.exists(), "a stale socket file lies there"
    refused = daemon.ctl("status")
    assert refused.returncode == UNREACHABLE
    assert str(daemon.socket) in refused.stderr
    _started(daemon)
    assert daemon.ask("status")["daemon"]["node_id"] == identity
    assert daemon.ctl("fence", "show").returncode == 0, "it votes at once"
    assert daemon.stop() == 0
    assert not daemon.socket.exists()


def test_a_file_that_is_no_socket_is_not_removed(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon("atlas")
    daemon.socket.write_text("precious")
    daemon.start()
    assert daemon.wait() not in {0, 1}
    assert str(daemon.socket) in daemon.log
    assert daemon.socket.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_without_permission_is_told_so(make_daemon: MakeDaemon) -> None:
    daemon = _started(make_daemon("atlas"))
    # Somebody else may not even read our modules: they are loaded before.
    ask = "from skippyctl.main import main; main()"
    become = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
    asked = subprocess.run(
        [
            *(sys.executable, "-c"),
            f"{ask}; {become}; raise SystemExit(main())",
            *("status", "--socket", str(daemon.socket)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert asked.returncode == PERMISSION, asked.stderr
    assert str(daemon.socket) in asked.stderr


def test_an_address_that_is_taken_is_named(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon("atlas")
    with socket.create_server(("127.0.0.1", daemon.control_port)):
        daemon.start()
        assert daemon.wait() == BAD_CONFIGURATION
    assert f"127.0.0.1:{daemon.control_port}" in daemon.log


def test_a_peer_whose_certificate_is_another_nodes_is_refused_at_start(
    make_daemon: MakeDaemon,
) -> None:
    other = _started(make_daemon("borea"))
    assert other.stop() == 0
    daemon = make_daemon(
        "atlas",
        f'[[peers]]\nid = "{"ab" * 32}"\naddress = "127.0.0.1:{other.control_port}"\n'
        f'certificate = "{other.folder}/state/identity.pem"\n',
    )
    daemon.start()
    assert daemon.wait() == BAD_CONFIGURATION
    assert "ab" * 32 in daemon.log


def test_a_certificate_that_is_missing_is_named(make_daemon: MakeDaemon) -> None:
    """A peer's at the start, and this node's where the peer does not know it."""
    borea = _started(make_daemon("borea"))
    identity = borea.folder / "state" / "identity.pem"
    atlas = make_daemon("atlas")
    alone = atlas.config.read_text()
    peer = (
        f'[[peers]]\nid = "{borea.ask("status")["daemon"]["node_id"]}"\n'
        f'address = "127.0.0.1:{borea.control_port}"\ncertificate = "{{}}"\n'
    )
    missing = atlas.folder / "borea.pem"
    atlas.config.write_text(alone + peer.format(missing))
    atlas.start()
    assert atlas.wait() == BAD_CONFIGURATION
    assert str(missing) in atlas.log.splitlines()[-1]

    atlas.config.write_text(alone + peer.format(identity))
    _started(atlas)
    until(
        lambda: any(
            "does not store this node's certificate" in row["reason"]
            for row in atlas.ask("nodes")["items"]
        ),
        "borea does not know atlas, and atlas says so",
        within_s=20,
    )
    until(lambda: "certificate" in borea.log, "borea says so too", within_s=10)


def test_a_peer_with_a_new_key_is_not_believed(make_daemon: MakeDaemon) -> None:
    atlas, borea = _started(make_daemon("atlas")), _started(make_daemon("borea"))
    borea.join(atlas)
    until(lambda: atlas.sees().get("borea") == "ok", "they have met", within_s=30)
    assert borea.stop() == 0
    for name in ("identity.key", "identity.pem"):
        (borea.folder / "state" / name).unlink()
    (borea.folder / "state" / "fence.sqlite3").unlink()
    with contextlib.suppress(FileNotFoundError):
        (borea.folder / "state" / "fence.witness").unlink()
    _started(borea)
    until(lambda: borea.sees()["atlas"] != "ok", "nor does it believe", within_s=10)
    assert atlas.sees()["borea"] != "ok"
    rows = {row["name"]: row for row in atlas.ask("nodes")["items"]}
    assert rows["borea"]["reason"], rows


def test_an_invitation_is_good_for_one_node_once(make_daemon: MakeDaemon) -> None:
    atlas = _started(make_daemon("atlas"))
    borea, ceres = _started(make_daemon("borea")), _started(make_daemon("ceres"))
    token = atlas.ctl("invite").stdout.strip()
    assert borea.ctl("join", token).returncode == 0
    again = ceres.ctl("join", token)
    assert again.returncode == FAILED, again.stderr
    assert "invit" in again.stderr
    broken = ceres.ctl("join", token[:-4])
    assert broken.returncode == USAGE, broken.stderr
    assert set(atlas.sees()) == {"atlas", "borea"}


@pytest.mark.skipif(reason_against() is not None, reason=str(reason_against()))
def test_an_invitation_that_has_expired_is_refused_and_both_sides_say_so(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    atlas, borea = make_daemon("atlas"), make_daemon("borea")
    with MachineFaults.opened(build_library(tmp_path), tmp_path / "page") as machine:
        atlas.environment |= machine.environment
        _started(atlas)
        _started(borea)
        token = atlas.ctl("invite").stdout.strip()
        machine.pass_time(INVITE_SECONDS + 1)
        late = borea.ctl("join", token)
        assert late.returncode == FAILED, late.stderr
        assert "the invitation has expired; make a new one" in late.stderr
        assert "the invitation has expired" in atlas.log
        assert set(atlas.sees()) == {"atlas"}
        borea.join(atlas)
        assert set(atlas.sees()) == {"atlas", "borea"}
        assert atlas.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_ends_the_daemon_before_it_answers_and_nothing_is_forgotten(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    plan = small_plan(tmp_path / "models")
    atlas, borea = make_daemon("atlas"), make_daemon("borea")
    state = borea.folder / "state"
    state.mkdir(mode=0o700)
    with _small_disk(state):
        _started(atlas)
        _started(borea)
        atlas.join(borea)
        atlas_id = str(atlas.ask("status")["daemon"]["node_id"])
        assert atlas.stop() == 0

        def coordinator() -> RawCoordinator:
            key = atlas.folder / "state"
            return RawCoordinator.open(borea.control_port, key, atlas_id, plan)

        first = coordinator()
        with first.control:
            assert "result" in first.claim(7)
            _fill(state / "ballast")
            with pytest.raises(OSError, match=r"ended|reset|closed|EOF|violation"):
                first.claim(8)
        assert borea.wait() == FENCE_STORE, borea.log
        assert "fence.sqlite3" in borea.log

        (state / "ballast").unlink()
        _started(borea)
        assert borea.ctl("fence", "show").returncode == 0, "it is no amnesia"
        assert stored_term(state) == 7
        again = coordinator()
        with again.control:
            assert "term" in str(again.claim(6)["result"]).lower()
            assert "result" in again.claim(8)
        assert borea.stop() == 0


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    size = f"size={SMALL_DISK_BYTES},mode=700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "skippy-test", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1024)):
            pass
