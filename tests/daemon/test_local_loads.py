"""A whole model on one node, without a coordinator: loaded, shown, ended, refused."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.admin import wishes
from skippyd.config.daemon import ModelsTable, StagesTable
from skippyd.config.sizes import SizeBytes
from skippyd.coordination import open_requests
from skippyd.coordination.inventory import UnknownModelError
from skippyd.coordination.open_requests import StageSideBusyError
from skippyd.core.coordinator.messages import ClaimCoordinator, Origin
from skippyd.daemon import local_loads
from skippyd.daemon.clock import read_instant
from skippyd.daemon.local_loads import LocalLoadError
from skippyd.errors import RefusedError
from support.claims import claim
from support.running_nodes import a_node
from support.stage_nodes import small_plan


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.daemon.view import DaemonView
    from support.stage_nodes import Plan

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.watchdog(60),
]

SMALL = wishes.LoadLocal(model="small", lanes=1)
NAME = "local-small"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A small model in a folder of models."""
    return small_plan(tmp_path / "models", with_tokenizer=True)


def _models(plan: Plan) -> ModelsTable:
    return ModelsTable(paths=(str(plan.path.parent),))


async def _until_idle(view: DaemonView) -> None:
    with trio.fail_after(20):
        while view.node.stages.stage_runs():
            await view.changed().wait()


async def test_a_model_is_served_by_this_node_alone_until_it_is_stopped(
    tmp_path: Path, plan: Plan
) -> None:
    async with a_node(tmp_path / "atlas", models=_models(plan)) as view:
        said = (await view.load_local(SMALL)).message
        assert said.startswith(f"{NAME} serves small at http://127.0.0.1:")
        status = await view.status()
        assert (status.run, status.daemon.state) == (None, "idle")
        (row,) = status.stages
        assert (row.stage_id, row.state, row.node_name) == (NAME, "READY", "atlas")
        assert (row.layer_start, row.layer_end) == (0, 6)
        assert (await view.claims()).items == (), "nothing was claimed"
        with pytest.raises(RefusedError, match="another stage of this model runs"):
            await view.load_local(SMALL)

        drained = await view.drain(wishes.Drain())
        assert drained.message.endswith(f"; `skippyctl stop` ends {NAME}")
        await view.drain(wishes.Drain(is_undone=True))
        stopped = await view.stop(wishes.Stop(stage_id=NAME))
        assert stopped.message == f"stopped: {NAME}"
        await _until_idle(view)
        assert (await view.status()).stages == ()


async def test_a_claim_that_holds_the_model_refuses_it_and_a_later_one_ends_it(
    tmp_path: Path, plan: Plan
) -> None:
    async with a_node(tmp_path / "atlas", models=_models(plan)) as view:
        await view.load_local(SMALL)
        key = view.node.stages.stage_runs()[0].load.key
        now = read_instant()
        offered = claim(now.unix_ms, lease=now.unix_ms + 60_000, key=key)
        await view.node.stages.request(ClaimCoordinator(offered), origin=Origin.NETWORK)
        assert view.node.stages.stage_runs() == (), "ended before the answer"
        with pytest.raises(RefusedError, match=r"holds this model here; stop its run"):
            await view.load_local(SMALL)


async def test_what_cannot_be_served_here_is_refused_with_the_reason(
    tmp_path: Path, plan: Plan
) -> None:
    stages = StagesTable(max_memory=SizeBytes(2**16), headroom=SizeBytes(0))
    folder = tmp_path / "atlas"
    async with a_node(folder, models=_models(plan), stages=stages) as view:
        with pytest.raises(UnknownModelError, match="'absent' is no model"):
            await view.load_local(wishes.LoadLocal(model="absent"))
        with pytest.raises(RefusedError, match=r"does not fit .* missing"):
            await view.load_local(SMALL)


async def test_a_stage_that_does_not_start_says_why(tmp_path: Path, plan: Plan) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        stages = StagesTable(first_port=port, last_port=port)
        folder = tmp_path / "atlas"
        async with a_node(folder, models=_models(plan), stages=stages) as view:
            with pytest.raises(LocalLoadError, match="no stage port is free"):
                await view.load_local(SMALL)


async def test_a_busy_node_tells_the_operator_and_lives_on(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_node(tmp_path / "atlas", models=_models(plan)) as view:
        monkeypatch.setattr(open_requests, "MAX_OPEN_REQUESTS", 0)
        with pytest.raises(StageSideBusyError, match="ask again later"):
            await view.load_local(SMALL)
        assert (await view.status()).daemon.state == "idle"


async def test_a_load_goes_on_when_nobody_waits_for_it(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_loads, "PATIENCE_SECONDS", 0.0)
    async with a_node(tmp_path / "atlas", models=_models(plan)) as view:
        said = (await view.load_local(SMALL)).message
        assert said == f"{NAME} loads still; `skippyctl status` shows it"
        with trio.fail_after(30):
            while [row.state for row in (await view.status()).stages] != ["READY"]:
                await view.changed().wait()
