from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from skippyd.config.daemon import ControlTable, StagesTable, TimersTable
from skippyd.config.endpoints import Endpoint
from skippyd.daemon.starting import active_requests, read_wall_ms
from skippyd.ids import RunId
from support.running_nodes import a_node


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


async def test_the_configuration_reaches_every_part(tmp_path: Path) -> None:
    running = a_node(
        tmp_path / "atlas",
        control=ControlTable(
            bind=Endpoint("127.0.0.1", 0), advertise=Endpoint("192.0.2.1", 9401)
        ),
        stages=StagesTable(first_port=19000, last_port=19009),
        timers=TimersTable(status_every_ms=100),
    )
    async with running as view:
        node = view.node
        assert node.joining.address == "192.0.2.1:9401"
        assert (await view.invite()).address == "192.0.2.1:9401"
        report = node.registry.own_report()
        assert (report.name, report.stage_host) == ("atlas", "127.0.0.1")
        assert report.latency_port > 0
        assert list(node.stages.supervisor.ports) == list(range(19000, 19010))  # type: ignore[attr-defined]


async def test_a_request_at_the_door_keeps_its_run_from_ending(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        routes, stages, run_id = view.node.routes, view.node.stages, RunId("run-1")
        assert active_requests(routes, stages, run_id) == 0
        with routes.using(run_id):
            assert active_requests(routes, stages, run_id) == 1
        assert active_requests(routes, stages, run_id) == 0


def test_wall_time_is_unix_milliseconds() -> None:
    assert abs(read_wall_ms() - time.time() * 1000) < 5_000
