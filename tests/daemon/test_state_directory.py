"""One daemon at a time has a state directory, and nobody else looks into it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from skippyd.daemon.state_directory import (
    StateDirectoryBusyError,
    StateDirectoryUnwritableError,
    open_state_directory,
)
from skippyd.errors import ConfigError, ExitCode


if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys, pathlib
from skippyd.daemon.state_directory import open_state_directory
held = open_state_directory(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with open_state_directory(tmp_path / "a" / "state") as state:
        assert stat.S_IMODE(state.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((state.path / "lock").stat().st_mode) == 0o600
        assert not state.has_identity
        state.identity_key.write_text("key")
        assert state.has_identity


def test_a_directory_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)

    open_state_directory(folder).close()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_second_daemon_is_told_who_has_it(tmp_path: Path) -> None:
    with open_state_directory(tmp_path), pytest.raises(StateDirectoryBusyError) as it:
        open_state_directory(tmp_path)

    assert it.value.exit_code is ExitCode.TRY_AGAIN
    assert f"in use by pid {os.getpid()}; stop that daemon" in str(it.value)
    open_state_directory(tmp_path).close()


@pytest.mark.slow
@pytest.mark.process
def test_a_daemon_killed_in_its_sleep_locks_nothing(tmp_path: Path) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"held\n"
        with pytest.raises(StateDirectoryBusyError, match=f"pid {daemon.pid}"):
            open_state_directory(tmp_path)
        daemon.kill()
        daemon.wait()

        with open_state_directory(tmp_path) as state:
            assert (state.path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_file_in_its_place_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="give it to the user that runs skippyd"):
        open_state_directory(tmp_path / "file" / "state")


def test_a_disk_that_takes_nothing_is_a_reason_to_try_again(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("/dev/full")
    with pytest.raises(StateDirectoryUnwritableError, match="lock cannot be written"):
        open_state_directory(tmp_path)
    assert StateDirectoryUnwritableError.exit_code is ExitCode.TRY_AGAIN


def test_what_lies_in_it(tmp_path: Path) -> None:
    with open_state_directory(tmp_path) as state:
        paths = (
            state.identity_key,
            state.identity_certificate,
            state.peers,
            state.model_digests,
            state.safe_mode,
            state.coordinator,
        )

    assert [path.name for path in paths] == [
        "identity.key",
        "identity.pem",
        "peers",
        "model-digests.json",
        "safe-mode.toml",
        "coordinator.json",
    ]
    assert {path.parent for path in paths} == {tmp_path}
