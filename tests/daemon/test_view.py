from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from skippyd.admin import wishes
from skippyd.config.daemon import ModelsTable
from skippyd.coordination.inventory import UnknownModelError
from skippyd.coordination.rollout_wishes import Wish
from skippyd.core.coordinator.messages import ClaimCoordinator, Origin
from skippyd.daemon.clock import read_instant
from skippyd.daemon.lists_view import claims_document, leases_document, usable_bytes
from skippyd.daemon.safe_mode import VARIABLE
from skippyd.daemon.status_view import status_document
from skippyd.errors import ExitCode, RefusedError, UsageError
from support.claims import claim
from support.running_nodes import a_node


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


async def test_an_idle_node_says_so(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        status = await view.status()
        assert status_document(view.node).run == status.run
        assert (status.daemon.state, status.daemon.name) == ("idle", "atlas")
        assert (status.run, status.stages) == (None, ())
        assert view.summary() == "idle"
        assert (await view.lanes()).items == ()
        assert (await view.sessions()).items == ()
        telemetry = await view.telemetry(wishes.After())
        assert (telemetry.ring.kept, telemetry.safe_mode) == (0, False)


async def test_a_draining_node_says_so_and_takes_no_deployment(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        changed = view.changed()
        await view.drain(wishes.Drain())
        assert changed.is_set()
        assert (await view.status()).daemon.state == "draining"
        assert (await view.nodes()).items[0].health == "draining"
        with pytest.raises(RefusedError, match="draining"):
            await view.deploy(wishes.Deploy(model="any"))
        await view.drain(wishes.Drain(is_undone=True))
        assert (await view.status()).daemon.state == "idle"


async def test_what_was_deployed_is_wanted_again_when_a_drain_is_undone(
    tmp_path: Path,
) -> None:
    async with a_node(tmp_path / "atlas") as view:
        rollouts = view.node.rollouts
        wish = Wish(
            model_id="smol",
            model_sha256="0" * 64,
            deployed_by=view.node.identity.node_id,
        )
        await rollouts.adopt(wish)
        await view.drain(wishes.Drain())
        await wait_all_tasks_blocked()
        assert not rollouts.states()[0].is_wanted
        await view.drain(wishes.Drain(is_undone=True))
        assert rollouts.states()[0].is_wanted


async def test_safe_mode_is_requested_now_and_in_force_later(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        on = await view.safe_mode_on(wishes.SafeModeOn(reason="odd answers"), uid=1000)
        assert (on.safe_mode.requested, on.safe_mode.effective) == (True, False)
        assert (on.origin, on.by_uid) == ("file", 1000)
    async with a_node(tmp_path / "atlas") as view:
        report = await view.safe_mode()
        assert (report.safe_mode.requested, report.safe_mode.effective) == (True, True)
        assert report.safe_mode.reason == "odd answers"
        assert view.summary() == "SAFE MODE, idle"
        assert (await view.nodes()).items[0].safe_mode
        assert (await view.telemetry(wishes.After())).safe_mode
        off = await view.safe_mode_off(wishes.SafeModeOff(restart=True), uid=1000)
        assert (off.safe_mode.requested, off.safe_mode.effective) == (False, True)
        with trio.fail_after(5):
            await view.node.stopping.wait()
        assert view.node.is_restarting
        assert (await view.status()).daemon.state == "stopping"


async def test_the_environments_safe_mode_is_not_turned_off_here(
    tmp_path: Path,
) -> None:
    async with a_node(tmp_path / "atlas", {VARIABLE: "1"}) as view:
        assert (await view.safe_mode()).safe_mode.effective
        with pytest.raises(UsageError, match="drop-in"):
            await view.safe_mode_off(wishes.SafeModeOff(), uid=0)


async def test_what_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    models = ModelsTable(paths=(str(tmp_path),))
    async with a_node(tmp_path / "atlas", models=models) as view:
        with pytest.raises(UnknownModelError, match="'absent' is no model"):
            await view.deploy(wishes.Deploy(model="absent"))
        with pytest.raises(RefusedError, match="nothing is deployed by this node"):
            await view.withdraw(wishes.Withdraw())
        with pytest.raises(RefusedError, match="absent is not deployed"):
            await view.withdraw(wishes.Withdraw(model="absent"))
        with pytest.raises(RefusedError, match="no stage-1 runs"):
            await view.stop(wishes.Stop(stage_id="stage-1"))
        votes = await view.init_fence(wishes.InitFence(reason="why not"), uid=0)
        assert "votes already" in votes.message


async def test_an_accepted_claim_is_shown_with_its_lease(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        now = read_instant()
        offered = claim(now.unix_ms * 1_000_000, lease=now.unix_ms + 60_000)
        await view.node.stages.request(ClaimCoordinator(offered), origin=Origin.NETWORK)
        (row,) = claims_document(view.node.stages.fence).items
        assert (row.model_id, row.is_lease_held) == ("org/model", True)
        (lease,) = leases_document(view.node.stages.fence).items
        assert lease.state == "held"
        assert 0 < lease.left_ms <= 60_000
        (record,) = (await view.fence()).items
        assert (record.term, record.run_id) == (row.term, row.run_id)
        assert record.stopped == ()
    async with a_node(tmp_path / "atlas") as view:
        (lease,) = (await view.leases()).items
        assert (lease.state, lease.left_ms) == ("not held", 0)
        assert not (await view.claims()).items[0].is_lease_held


async def test_the_own_report_is_what_a_plan_may_use(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        report = view.node.registry.own_report()
        assert 0 < usable_bytes(report) < report.memory_bytes
        assert (await view.nodes()).items[0].usable_bytes == usable_bytes(report)


async def test_doctor_looks_at_the_node_and_its_peers(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        verdicts = {row.check: row.verdict for row in (await view.doctor()).items}
        assert verdicts["state directory"] == "ok"
        assert verdicts["fence store"] == "ok"
        assert verdicts["peers"] == "ok"


async def test_an_unknown_token_is_a_usage_error(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        with pytest.raises(UsageError) as caught:
            await view.join(wishes.Join(token="nonsense"))
        assert caught.value.exit_code is ExitCode.USAGE
