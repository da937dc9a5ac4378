from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.admin import wishes
from skippyd.config.daemon import ModelsTable
from skippyd.coordination.rollout_wishes import Wish
from skippyd.core.coordinator.campaign_effects import Step
from skippyd.daemon.deployments import Deployments
from skippyd.errors import ExitCode
from support.running_nodes import a_node
from support.stage_nodes import small_plan


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.daemon.view import DaemonView

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


def _say(view: DaemonView, *steps: Step, model: str = "smol") -> None:
    for step in steps:
        view.node.rollouts.events.add(step, step.value, model_id=model, at_unix_ms=1)


async def test_a_published_model_ends_the_watch_with_success(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        _say(view, Step.PLAN, Step.CLAIM, Step.PUBLISH)
        events = (await view.events(wishes.WatchEvents(model_id="smol"))).items
        assert [(e.event, e.is_final) for e in events] == [
            ("plan", False),
            ("claim", False),
            ("publish", True),
        ]
        assert events[-1].exit_code == ExitCode.DONE


async def test_a_failed_attempt_ends_the_watch_only_when_nothing_follows(
    tmp_path: Path,
) -> None:
    async with a_node(tmp_path / "atlas") as view:
        _say(view, *[Step.FAILED] * 4)
        events = (await view.events(wishes.WatchEvents())).items
        assert [e.is_final for e in events] == [False, False, False, True]
        assert events[-1].exit_code == ExitCode.FAILED
        _say(view, Step.PLAN)
        events = (await view.events(wishes.WatchEvents())).items
        assert not any(e.is_final for e in events)


async def test_a_dry_run_is_no_end_of_a_deployment_and_follows_nothing(
    tmp_path: Path,
) -> None:
    async with a_node(tmp_path / "atlas") as view:
        _say(view, Step.FAILED)
        view.node.rollouts.events.add(
            Step.PLAN, "what if", model_id="smol", at_unix_ms=1, is_dry_run=True
        )
        failed, dry = (await view.events(wishes.WatchEvents())).items
        assert (failed.is_final, failed.exit_code) == (True, ExitCode.FAILED)
        assert (dry.is_dry_run, dry.is_final, dry.exit_code) == (True, False, None)


@pytest.mark.native
async def test_a_dry_run_says_its_plan_and_wants_nothing(tmp_path: Path) -> None:
    models = ModelsTable(paths=(str(small_plan(tmp_path / "models").path.parent),))
    async with a_node(tmp_path / "atlas", models=models) as view:
        begun = await view.deploy(wishes.Deploy(model="small", dry_run=True))
        wish = wishes.WatchEvents(after=begun.after, model_id="small")
        (told,) = (await view.events(wish)).items
        assert told.is_dry_run
        assert told.message.startswith("dry run, nothing was done: context ")
        own_id = view.node.identity.node_id[:12]
        assert f"stage-0 on atlas ({own_id}) layers 0 to " in told.message
        assert view.node.rollouts.states() == ()


async def test_a_failed_attempt_of_what_is_wanted_ends_no_watch(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        wish = Wish(
            model_id="smol",
            model_sha256="0" * 64,
            deployed_by=view.node.identity.node_id,
        )
        # There is no such file: it stands by and goes on trying.
        await view.node.rollouts.adopt(wish)
        _say(view, *[Step.FAILED] * 4)
        events = (await view.events(wishes.WatchEvents(model_id="smol"))).items
        assert [e.is_final for e in events if e.event == "failed"] == [False] * 4


async def test_a_stopped_stage_ends_the_watch(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view, trio.open_nursery() as nursery:
        deployments = Deployments(view.node, nursery)
        deployments.stopped("smol")
        (event,) = (await deployments.events(wishes.WatchEvents())).items
        assert (event.event, event.exit_code) == ("withdraw", ExitCode.DONE)


async def test_a_watch_resumes_and_tells_what_it_missed(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        _say(view, *[Step.PLAN] * 1_003)
        page = await view.events(wishes.WatchEvents(after=1))
        assert page.missed == 2
        assert page.items[0].sequence == 4
        rest = await view.events(wishes.WatchEvents(after=1_002))
        assert [event.sequence for event in rest.items] == [1_003]
        assert rest.missed == 0


async def test_a_watch_waits_for_its_model(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view:
        _say(view, Step.PLAN, model="other")
        with trio.move_on_after(0.05) as patience:
            await view.events(wishes.WatchEvents(model_id="smol"))
        assert patience.cancelled_caught


async def test_a_withdrawal_that_fails_tells_its_watcher(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as view, trio.open_nursery() as nursery:
        await Deployments(view.node, nursery)._withdraw("smol")
        (event,) = view.node.rollouts.events.since(0)
        assert event.step is Step.FAILED
        assert "smol is not deployed by this node" in event.message
