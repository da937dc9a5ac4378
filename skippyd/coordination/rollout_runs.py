"""What one coordinator knows of its runs beyond the rules: keys, ports, settings."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, assert_never

import attrs

from skippyd.config.endpoints import parse_endpoint
from skippyd.core.coordinator.instant import MS_PER_S
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimCoordinator,
    LoadStage,
    PrepareStage,
    ProbeClaim,
    StopStage,
)
from skippyd.core.wire.limits import RUN_KEY_BYTES
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.coordination.planning import PlannedRun
    from skippyd.coordination.ports import StageEndpoint, StageRunSettings
    from skippyd.core.coordinator.messages import Request, StageStatus
    from skippyd.core.coordinator.run import CampaignPlan, Run
    from skippyd.ids import RunId

KEPT_RUNS = 8
"""A late answer may be about the run before; older ones are of no use."""

SHORT_ANSWER_SECONDS = 10.0
FENCING_ANSWER_SECONDS = 12.0
STOP_ANSWER_SECONDS = 30.0
"""A stage that is stopped may let its answers finish first."""


def fresh_run_key() -> str:
    """Draw the secret of a run, in hexadecimal."""
    return secrets.token_hex(RUN_KEY_BYTES)


@attrs.define(eq=False)
class _KnownRun:
    settings: StageRunSettings
    key: str
    endpoints: list[StageEndpoint]


@attrs.define(eq=False)
class RunBook:
    """Settings of loads and prepares; ports are handed on as stages become ready.

    Args:
        draw_key: Draws a run's secret.
    """

    draw_key: Callable[[], str] = fresh_run_key
    _planned: PlannedRun | None = attrs.field(default=None, init=False)
    _runs: OrderedDict[RunId, _KnownRun] = attrs.field(factory=OrderedDict, init=False)

    def plan_made(self, planned: PlannedRun) -> None:
        """Take the plan in that the next run will be made of."""
        self._planned = planned

    def planned_of(self, plan: CampaignPlan) -> PlannedRun | None:
        """Return what was planned around a plan, if it is the newest one."""
        planned = self._planned
        return planned if planned and planned.campaign_plan is plan else None

    def settings_of(self, request: Request, run: Run | None) -> StageRunSettings | None:
        """What has to travel with a request: prepares and loads carry settings.

        Args:
            request: What is sent.
            run: The run that is on its way.
        """
        match request:
            case PrepareStage():
                return None if self._planned is None else self._planned.settings
            case LoadStage() if run is not None:
                return self._load_settings(request, run.run_id)
            case _:
                return None

    def stage_ready(self, status: StageStatus) -> None:
        """Note the port of a stage that became ready, for those before it.

        Raises:
            ConfigError: The stage says no address that can be connected to.
        """
        known = self._runs.get(status.stage.run_id)
        if known is None or not 0 <= status.stage_index < len(known.endpoints):
            return
        endpoint = parse_endpoint(status.bind_addr)
        if endpoint.port == 0:
            raise ConfigError(
                f"{status.stage.stage_id} says that it listens on {status.bind_addr}: "
                "a port is missing"
            )
        entry = known.endpoints[status.stage_index]
        known.endpoints[status.stage_index] = attrs.evolve(entry, port=endpoint.port)

    def forget(self) -> None:
        """Forget every key: nothing is wanted any more."""
        self._runs.clear()

    def _load_settings(self, load: LoadStage, run_id: RunId) -> StageRunSettings | None:
        known = self._runs.get(run_id)
        if known is None:
            if self._planned is None or load.stage.run_id != run_id:
                return None
            settings = self._planned.settings
            known = _KnownRun(settings, self.draw_key(), list(settings.stages))
            self._runs[run_id] = known
            while len(self._runs) > KEPT_RUNS:
                self._runs.popitem(last=False)
        return attrs.evolve(
            known.settings,
            run_key=known.key,
            stages=tuple(known.endpoints),
            serves_openai=load.stage_index == 0,
        )


def answer_timeout_s(request: Request, plan: CampaignPlan | None) -> float:
    """How long a node may take over a request, in seconds."""
    match request:
        case ProbeClaim() | PrepareStage() | CancelPrepareStage():
            return SHORT_ANSWER_SECONDS
        case ClaimCoordinator():
            return FENCING_ANSWER_SECONDS
        case StopStage():
            return STOP_ANSWER_SECONDS
        case LoadStage():
            longest_ms = 0 if plan is None else plan.load_timeout_ms
            return SHORT_ANSWER_SECONDS + longest_ms / MS_PER_S
        case _:
            assert_never(request)
