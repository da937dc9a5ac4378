"""What a coordinator hears and what it has done: events and effects of `campaign`."""

from __future__ import annotations

from enum import Enum

import attrs

from skippyd.core.coordinator.messages import Reply, Request
from skippyd.core.coordinator.run import CampaignPlan, Run
from skippyd.ids import NodeId, RunId, Term


@attrs.frozen
class Start:
    """The operator or the configuration wants this model to run."""


@attrs.frozen
class Withdraw:
    """The operator wants the run to end and none to follow."""


@attrs.frozen
class PlanMade:
    """The planner's answer to `RequestPlan`."""

    plan: CampaignPlan


@attrs.frozen
class PlanMissing:
    """There is no plan now, or this node is not the one to coordinate."""

    reason: str


@attrs.frozen
class Replied:
    """A node answered a request; the request comes along to tell old answers."""

    node_id: NodeId
    request: Request
    reply: Reply


@attrs.frozen
class RequestFailed:
    """A node could not be asked or did not answer."""

    node_id: NodeId
    request: Request
    reason: str


@attrs.frozen
class ChainProved:
    """A token went through the whole chain."""

    run_id: RunId


@attrs.frozen
class ProofFailed:
    """No token came through the chain."""

    run_id: RunId
    reason: str


@attrs.frozen
class RoutePublished:
    """The route is visible."""

    run_id: RunId


@attrs.frozen
class RouteWithdrawn:
    """The route is gone and what used it has drained."""

    run_id: RunId


@attrs.frozen
class StageLost:
    """A stage of a run failed, stopped, or was fenced by a newer coordinator.

    Args:
        is_stopped: The operator of its node ended it.
    """

    run_id: RunId
    node_id: NodeId
    reason: str
    is_fenced: bool = False
    is_stopped: bool = False


@attrs.frozen
class PeerChanged:
    """A node became reachable or unreachable, or its capacity changed."""

    node_id: NodeId
    is_available: bool


@attrs.frozen
class PeerLeaving:
    """A node drains, or takes stages again."""

    node_id: NodeId
    is_leaving: bool


@attrs.frozen
class TimePassed:
    """`next_deadline()` was reached."""


CampaignEvent = (
    Start
    | Withdraw
    | PlanMade
    | PlanMissing
    | Replied
    | RequestFailed
    | ChainProved
    | ProofFailed
    | RoutePublished
    | RouteWithdrawn
    | StageLost
    | PeerChanged
    | PeerLeaving
    | TimePassed
)


class Step(Enum):
    """The step of a deployment that a report is about (contract, skippy.event/1)."""

    PLAN = "plan"
    PROBE = "probe"
    PREPARE = "prepare"
    CLAIM = "claim"
    LOAD = "load"
    PROVE = "prove"
    PUBLISH = "publish"
    WITHDRAW = "withdraw"
    REPLAN = "replan"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class RequestPlan:
    """Plan without these nodes; a replan keeps context and lanes of what runs."""

    excluded: tuple[NodeId, ...]
    is_replan: bool


@attrs.frozen
class PersistTerm:
    """Remember the highest term of this coordinator before any claim leaves."""

    term: Term


@attrs.frozen
class Send:
    """Send a request to a node; report `Replied` or `RequestFailed`."""

    node_id: NodeId
    request: Request


@attrs.frozen
class ProveChain:
    """Send a canary token through the chain."""

    run: Run


@attrs.frozen
class PublishRoute:
    """Make the route visible, in place of an older one of this model."""

    run: Run


@attrs.frozen
class WithdrawRoute:
    """Take the route away, then drain what uses it."""

    run_id: RunId


@attrs.frozen
class Report:
    """Tell whoever watches the deployment."""

    step: Step
    message: str
    node_id: NodeId | None = None


CampaignEffect = (
    RequestPlan
    | PersistTerm
    | Send
    | ProveChain
    | PublishRoute
    | WithdrawRoute
    | Report
)
