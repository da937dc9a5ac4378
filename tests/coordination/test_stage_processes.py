"""The protocols between the stage side and its processes, and who fulfils them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from skippyd.coordination.stage_processes import StageLaunch, StageSpawnError
from skippyd.daemon.supervisor import Supervisor
from skippyd.errors import SkippyError
from support.stage_nodes import FakeSupervisor


if TYPE_CHECKING:
    from skippyd.coordination.stage_processes import StageSupervisor


def test_the_real_supervisor_and_the_fake_one_are_alike() -> None:
    """The assignments are checked by the type checker, the sockets here."""
    supervisors: tuple[StageSupervisor, ...] = (
        Supervisor(host="127.0.0.1"),
        FakeSupervisor(),
    )

    for supervisor in supervisors:
        with supervisor.listen() as listener:
            assert listener.getsockname()[0] == supervisor.host == "127.0.0.1"


def test_the_secrets_of_a_launch_are_not_in_its_text() -> None:
    with socket.socket() as listener:
        launch = StageLaunch(
            name="stage-1", documents={"--config": b"secret"}, listener=listener
        )

        assert "secret" not in repr(launch)


def test_a_failed_start_is_an_error_of_ours() -> None:
    assert issubclass(StageSpawnError, SkippyError)
