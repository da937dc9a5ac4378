from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from skippyd.cli.main import main
from skippyd.cli.run import loaded_config
from skippyd.errors import ExitCode
from support.daemons import Daemon


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon("atlas", tmp_path / "atlas", tmp_path)
    yield daemon
    daemon.close()


def test_a_wrong_configuration_ends_with_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "skippyd.toml"
    path.write_text("[nodes]\n")
    assert main(["run", "--config", str(path)]) == ExitCode.BAD_CONFIGURATION
    assert "nodes: unknown key" in capsys.readouterr().err
    assert loaded_config.__doc__ is not None


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.watchdog(120)
def test_a_daemon_runs_reloads_restarts_and_keeps_its_directory_to_itself(
    daemon: Daemon,
) -> None:
    daemon.start()
    daemon.until_ready()
    status = daemon.ask("status")["daemon"]
    assert (status["name"], status["state"]) == ("atlas", "idle")

    second = Daemon("borea", daemon.folder.parent / "borea", daemon.folder)
    second.config.write_text(
        daemon.config.read_text().replace(
            f":{daemon.control_port}", f":{second.control_port}"
        )
    )
    second.start()
    assert second.wait() == ExitCode.TRY_AGAIN
    assert f"in use by pid {daemon.process.pid}" in second.log  # type: ignore[union-attr]

    daemon.signal(signal.SIGHUP)
    on = daemon.ctl("safe-mode", "on", "--reason", "odd answers", "--restart")
    assert on.returncode in {0, 3}, on.stderr
    assert daemon.wait() == ExitCode.TRY_AGAIN
    assert "event=reloaded" in daemon.log

    daemon.start()
    daemon.until_ready()
    shown = daemon.ctl("status")
    assert shown.returncode == ExitCode.DEGRADED
    assert "safe mode" in shown.stdout.splitlines()[0].lower()
    assert daemon.stop() == ExitCode.DONE
    assert not daemon.socket.exists()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.watchdog(120)
def test_a_killed_daemon_comes_back_as_itself(daemon: Daemon) -> None:
    daemon.start()
    daemon.until_ready()
    before = daemon.ask("fence", "show")["instance_id"]
    daemon.signal(signal.SIGKILL)
    assert daemon.wait() == -signal.SIGKILL
    assert daemon.socket.exists()
    daemon.start()
    daemon.until_ready()
    after = daemon.ask("fence", "show")
    assert (after["instance_id"], after["is_quarantined"]) == (before, False)
