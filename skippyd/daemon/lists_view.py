"""The lists of a node: claims, leases, lanes, nodes, the fence, as operators see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd import __version__
from skippyd.admin import schema
from skippyd.daemon.clock import read_instant


if TYPE_CHECKING:
    from skippyd.coordination.ports import NodeReport, PeerInfo
    from skippyd.coordination.stage_run import StageRun
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.core.coordinator.fence import ClaimFence
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.memory import FenceRecord
    from skippyd.daemon.node import Node
    from skippyd.stage.activity import LaneActivity, SessionActivity

US_PER_MS = 1000


def claims_document(fence: ClaimFence) -> schema.Claims:
    """Accepted claims."""
    now = read_instant()
    return schema.Claims(
        items=tuple(_claim(fence, claim, now) for claim in _accepted(fence))
    )


def leases_document(fence: ClaimFence) -> schema.Leases:
    """Their leases."""
    now = read_instant()
    return schema.Leases(
        items=tuple(_lease(fence, claim, now) for claim in _accepted(fence))
    )


def fence_document(node: Node) -> schema.Fence:
    """The fence store and every record in it."""
    fence = node.stages.fence
    until_ms = fence.quarantined_until_boottime_ms
    left_ms = None
    if until_ms is not None:
        left_ms = max(0, until_ms - read_instant().boottime_ms)
    return schema.Fence(
        store=str(node.store.folder),
        instance_id=fence.instance_id,
        is_quarantined=until_ms is not None,
        quarantine_reason=node.stages.quarantine_reason or "",
        quarantine_left_ms=left_ms,
        items=tuple(_record(record) for record in fence.snapshot().records),
    )


def lanes_document(node: Node) -> schema.Lanes:
    """Lanes of this node's stages, as their processes told last."""
    told = _told(node)
    return schema.Lanes(
        left_off=sum(run.activity.left_off for run, _ago_ms in told),
        items=tuple(
            _lane(run.load.stage.stage_id, lane, ago_ms)
            for run, ago_ms in told
            for lane in run.activity.lanes
        ),
    )


def sessions_document(node: Node) -> schema.Sessions:
    """Sessions of this node's stages, as their processes told last."""
    told = _told(node)
    return schema.Sessions(
        left_off=sum(run.activity.left_off for run, _ago_ms in told),
        items=tuple(
            _session(run.load.stage.stage_id, session, ago_ms)
            for run, ago_ms in told
            for session in run.activity.sessions
        ),
    )


def _told(node: Node) -> list[tuple[StageRun, int]]:
    """Runs with a process, and for how many milliseconds each has said nothing."""
    now_ms = read_instant().boottime_ms
    return [
        (run, max(0, now_ms - run.heard_ms))
        for run in node.stages.stage_runs()
        if run.child is not None
    ]


def nodes_document(node: Node) -> schema.Nodes:
    """This node first, then its peers."""
    own = node.registry.own_report()
    peers = [_peer(peer) for peer in node.registry.peers()]
    return schema.Nodes(items=(_own(node, own), *peers))


def usable_bytes(report: NodeReport) -> int:
    """What a plan may use: memory under the cap and above the headroom."""
    capped = report.memory_bytes
    if report.max_memory_bytes is not None:
        capped = min(capped, report.max_memory_bytes)
    return max(0, capped - report.headroom_bytes)


def _lane(stage_id: str, lane: LaneActivity, since_ms: int) -> schema.LaneRow:
    working_ms = lane.working_ms
    return schema.LaneRow(
        stage_id=stage_id,
        lane_id=lane.lane_id,
        state=lane.state,
        session_id=None if lane.session_id is None else str(lane.session_id),
        request_id=None if lane.request_id is None else str(lane.request_id),
        token_count=lane.token_count,
        age_ms=lane.age_ms + since_ms,
        working_ms=None if working_ms is None else working_ms + since_ms,
        is_overdue=lane.is_overdue,
    )


def _session(
    stage_id: str, session: SessionActivity, since_ms: int
) -> schema.SessionRow:
    return schema.SessionRow(
        session_id=str(session.session_id),
        request_id=str(session.request_id),
        stage_id=stage_id,
        lane_id=session.lane_id,
        state=session.state,
        token_count=session.token_count,
        age_ms=session.age_ms + since_ms,
        # One that was at work then is not known to have become idle since.
        idle_ms=session.idle_ms and session.idle_ms + since_ms,
    )


def _accepted(fence: ClaimFence) -> tuple[CoordinatorClaim, ...]:
    records = fence.snapshot().records
    return tuple(record.claim for record in records if record.claim is not None)


def _claim(fence: ClaimFence, claim: CoordinatorClaim, now: Instant) -> schema.ClaimRow:
    epoch = claim.epoch
    return schema.ClaimRow(
        model_id=epoch.key.model_id,
        package_ref=epoch.key.package_ref,
        manifest_sha256=epoch.key.manifest_sha256,
        topology_id=epoch.topology_id,
        run_id=epoch.run_id,
        coordinator_id=epoch.coordinator_id,
        term=str(claim.term),
        participant_set_hash=epoch.participant_set_hash,
        topology_hash=epoch.topology_hash,
        lease_until_unix_ms=claim.lease_until_unix_ms,
        is_lease_held=fence.is_lease_held(claim.key, now),
    )


def _lease(fence: ClaimFence, claim: CoordinatorClaim, now: Instant) -> schema.LeaseRow:
    lease = fence.lease_of(claim.key)
    left_ms = 0
    if lease is not None:
        by_wall = claim.lease_until_unix_ms - now.unix_ms
        left_ms = max(0, min(by_wall, lease.deadline_boottime_ms - now.boottime_ms))
    state = "held" if left_ms else "expired" if lease is not None else "not held"
    return schema.LeaseRow(
        model_id=claim.epoch.key.model_id,
        run_id=claim.epoch.run_id,
        term=str(claim.term),
        coordinator_id=claim.epoch.coordinator_id,
        lease_until_unix_ms=claim.lease_until_unix_ms,
        left_ms=left_ms,
        state=state,
    )


def _record(record: FenceRecord) -> schema.FenceRow:
    claim = record.claim
    return schema.FenceRow(
        model_id=record.key.model_id,
        package_ref=record.key.package_ref,
        manifest_sha256=record.key.manifest_sha256,
        term=str(record.term),
        run_id="" if claim is None else claim.epoch.run_id,
        coordinator_id="" if claim is None else claim.epoch.coordinator_id,
        stopped=tuple(f"{stop.term}/{stop.run_id}" for stop in record.tombstones),
    )


def _own(node: Node, report: NodeReport) -> schema.NodeRow:
    return schema.NodeRow(
        node_id=node.identity.node_id,
        name=node.name,
        address=node.address,
        is_this_node=True,
        health="draining" if report.is_draining else "ok",
        reason="",
        rtt_us=None,
        interface=None,
        local_address=None,
        memory_bytes=report.memory_bytes,
        usable_bytes=usable_bytes(report),
        version=__version__,
        safe_mode=report.safe_mode,
        last_heard_unix_ms=None,
    )


def _peer(peer: PeerInfo) -> schema.NodeRow:
    report = peer.report
    return schema.NodeRow(
        node_id=peer.node_id,
        name=peer.name,
        address=peer.address,
        is_this_node=False,
        health=_health(peer),
        reason=peer.reason,
        rtt_us=None if peer.rtt_ms is None else round(peer.rtt_ms * US_PER_MS),
        interface=peer.interface,
        local_address=peer.local_address,
        memory_bytes=None if report is None else report.memory_bytes,
        usable_bytes=None if report is None else usable_bytes(report),
        version=None if report is None else report.version,
        safe_mode=report is not None and report.safe_mode,
        last_heard_unix_ms=peer.last_heard_unix_ms,
    )


def _health(peer: PeerInfo) -> str:
    if not peer.is_available:
        return "never seen" if peer.last_heard_unix_ms is None else "silent"
    is_draining = peer.report is not None and peer.report.is_draining
    return "draining" if is_draining else "ok"
