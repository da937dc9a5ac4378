"""The status document: what this node knows of the run it takes part in, at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd import __version__
from skippyd.admin import schema
from skippyd.coordination.rollout_reports import stage_of_run
from skippyd.core.coordinator.messages import StageState
from skippyd.daemon.clock import read_instant
from skippyd.daemon.node_health import troubles
from skippyd.stage.child_process import CAUSE


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from skippyd.coordination.ports import NodeReport, Route, StageReport
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.daemon.node import Node
    from skippyd.daemon.safe_mode import SafeModeSwitch
    from skippyd.ids import NodeId, RunId

STATE_WORDS = {
    StageState.STARTING: "STARTING",
    StageState.READY: "READY",
    StageState.STOPPING: "STOPPING",
    StageState.STOPPED: "STOPPED",
    StageState.FAILED: "FAILED",
}
UNKNOWN = "unknown"
DEGRADED = "degraded"


def status_document(node: Node) -> schema.Status:
    """Everything at a glance."""
    run, stages = _run_and_stages(node)
    return schema.Status(
        daemon=_daemon(node, run, stages),
        safe_mode=safe_mode_document(node.safe_mode),
        run=run,
        stages=stages,
    )


def safe_mode_document(switch: SafeModeSwitch) -> schema.SafeMode:
    """Safe mode, requested and in force."""
    return schema.SafeMode(
        requested=switch.is_requested,
        effective=switch.is_effective,
        reason=switch.reason,
        since=None if switch.request is None else switch.request.since,
    )


def node_names(node: Node) -> dict[NodeId, str]:
    """What people call each known node."""
    names = {peer.node_id: peer.name for peer in node.registry.peers()}
    names[node.identity.node_id] = node.name
    return names


def stage_reasons(stages: Iterable[schema.StageRow]) -> Iterator[str]:
    """Why a chain is not well: stages that ended, then those that miss them."""
    for stage in sorted(stages, key=lambda stage: stage.state == "READY"):
        place = f"{stage.stage_id} on {stage.node_name or stage.node_id[:12]}"
        if stage.state in {"FAILED", "STOPPED", UNKNOWN}:
            yield f"{place} is {stage.state}: {in_one_line(stage.reason)}"
        elif stage.health.startswith(DEGRADED):
            yield f"{place} is {stage.health}"


def in_one_line(reason: str) -> str:
    """A stage's reason in one line: of what a dead process said the cause, else the last.

    Args:
        reason: As `child_process.describe_end` words it: what was said is indented.
    """
    first, *rest = reason.splitlines() or [""]
    said = [line.strip() for line in rest if line.startswith(" ")]
    after = [line for line in rest if line and not line.startswith(" ")]
    telling = next(filter(CAUSE.search, said), said[-1]) if said else ""
    return "; ".join([f"{first} {telling}".rstrip(), *after])


def _daemon(
    node: Node, run: schema.RunStatus | None, stages: tuple[schema.StageRow, ...]
) -> schema.DaemonStatus:
    reasons = tuple(_reasons(node, stages))
    return schema.DaemonStatus(
        version=__version__,
        node_id=node.identity.node_id,
        name=node.name,
        uptime_ms=read_instant().boottime_ms - node.started.boottime_ms,
        state=_state(node, run, stages, is_well=not reasons),
        reasons=reasons,
    )


def _state(
    node: Node,
    run: schema.RunStatus | None,
    stages: tuple[schema.StageRow, ...],
    *,
    is_well: bool,
) -> str:
    if node.stopping.is_set():
        return "stopping"
    if node.stages.is_draining:
        return "draining"
    if run is None:
        return "idle" if is_well else "degraded"
    if any(stage.state == "STARTING" for stage in stages):
        return "loading"
    if is_well and run.route is not None:
        return "serving"
    return "degraded" if not is_well else "loading"


def _reasons(node: Node, stages: tuple[schema.StageRow, ...]) -> Iterator[str]:
    if (quarantine := node.stages.quarantine_reason) is not None:
        yield f"this node does not vote: {quarantine}"
    yield from stage_reasons(stages)
    shown = {(stage.stage_id, stage.bind_addr) for stage in stages}
    for report in node.stages.report().stages:
        status, health = report.status, report.health or ""
        is_shown = (status.stage.stage_id, status.bind_addr) in shown
        if health.startswith(DEGRADED) and not is_shown:
            # Of another run than the one that is shown.
            yield f"{status.stage.stage_id} of {status.stage.run_id} is {health}"
    for trouble in troubles(node.stages.stage_runs(), read_instant().boottime_ms):
        yield trouble.text


def _run_and_stages(
    node: Node,
) -> tuple[schema.RunStatus | None, tuple[schema.StageRow, ...]]:
    """The newest run: one with a stage here, or a published one that runs elsewhere."""
    routes = {route.run_id: route for route in node.routes.published()}
    newest_term = max((route.term for route in routes.values()), default=0)
    local = [
        run
        for run in node.stages.stage_runs()
        if run.load.coordinator_term >= max(newest_term, 1)
    ]
    if local:
        newest = max(local, key=lambda run: run.load.coordinator_term)
        load = newest.load
        claim = node.stages.fence.claim_of(load.key)
        route = routes.get(load.stage.run_id)
        run = schema.RunStatus(
            run_id=load.stage.run_id,
            topology_id=load.stage.topology_id,
            model_id=newest.settings.model_id,
            term=str(load.coordinator_term),
            coordinator_id=str(load.coordinator_id),
            lease_until_unix_ms=_lease(claim, load.stage.run_id, route),
            route=None if route is None else route.openai_base_url,
        )
        nodes = [stage.node_id for stage in newest.settings.stages]
        return run, _stage_rows(node, load.stage.run_id, nodes)
    if not routes:
        return None, _unfenced_rows(node)
    route = max(routes.values(), key=lambda route: route.term)
    return _run_of_route(route), _stage_rows(node, route.run_id, list(route.node_ids))


def _run_of_route(route: Route) -> schema.RunStatus:
    return schema.RunStatus(
        run_id=route.run_id,
        topology_id=f"topology-{route.run_id}",
        model_id=route.model_id,
        term=str(route.term),
        coordinator_id=route.coordinator_id,
        lease_until_unix_ms=route.lease_until_unix_ms,
        route=route.openai_base_url,
    )


def _lease(claim: CoordinatorClaim | None, run_id: RunId, route: Route | None) -> int:
    if claim is not None and claim.epoch.run_id == run_id:
        return int(claim.lease_until_unix_ms)
    return 0 if route is None else route.lease_until_unix_ms


def _stage_rows(
    node: Node, run_id: RunId, node_ids: list[NodeId]
) -> tuple[schema.StageRow, ...]:
    reports = node.registry.reports()
    names = node_names(node)
    now_ms = read_instant().unix_ms
    rows = []
    for index, node_id in enumerate(node_ids):
        report = reports.get(node_id)
        stage = None if report is None else stage_of_run(report, run_id)
        name = names.get(node_id, "")
        if stage is None:
            rows.append(_missing_row(index, node_id, name, report))
        else:
            rows.append(_row(stage, node_id, name, now_ms))
    return tuple(rows)


def _unfenced_rows(node: Node) -> tuple[schema.StageRow, ...]:
    """Stages that an operator of this machine loaded without a coordinator."""
    now_ms = read_instant().unix_ms
    return tuple(
        _row(stage, node.identity.node_id, node.name, now_ms)
        for stage in node.stages.report().stages
        if stage.status.coordinator_term == 0
    )


def _row(
    stage: StageReport, node_id: NodeId, name: str, now_ms: int
) -> schema.StageRow:
    status = stage.status
    return schema.StageRow(
        stage_id=status.stage.stage_id,
        stage_index=status.stage_index,
        node_id=node_id,
        node_name=name,
        layer_start=status.layer_start,
        layer_end=status.layer_end,
        state=STATE_WORDS[status.state],
        state_age_ms=max(0, now_ms - stage.since_unix_ms),
        reason=stage.reason,
        pid=stage.pid,
        bind_addr=status.bind_addr,
        resident_bytes=stage.resident_bytes,
        loaded_bytes=stage.loaded_bytes,
        total_bytes=stage.total_bytes,
        health=(stage.health or "") if status.state is StageState.READY else "",
    )


def _missing_row(
    index: int, node_id: NodeId, name: str, report: NodeReport | None
) -> schema.StageRow:
    reason = (
        "its node is not available"
        if report is None
        else "its node has no stage of this run now"
    )
    return schema.StageRow(
        stage_id=f"stage-{index}",
        stage_index=index,
        node_id=node_id,
        node_name=name,
        layer_start=0,
        layer_end=0,
        state=UNKNOWN,
        state_age_ms=0,
        reason=reason,
        pid=None,
        bind_addr="",
        resident_bytes=0,
        loaded_bytes=0,
        total_bytes=0,
    )
