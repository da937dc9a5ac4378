"""Which nodes a plan may count on, with what memory, and who takes over from whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.coordination.ports import FEATURES, GENERATION
from skippyd.core.topology.request import Node
from skippyd.errors import RefusedError


if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from skippyd.coordination.ports import NodeReport, PeerInfo
    from skippyd.coordination.rollout_wishes import Wish
    from skippyd.core.topology.request import PlanRequest
    from skippyd.ids import NodeId


def candidate_nodes(
    reports: Mapping[NodeId, NodeReport],
    own_id: NodeId,
    wish: Wish,
    *,
    excluded: tuple[NodeId, ...] = (),
    peers: Iterable[PeerInfo] = (),
) -> tuple[tuple[Node, ...], dict[NodeId, str]]:
    """Return the nodes to plan with, and why each other one is left out.

    `excluded` nodes are lost or were to blame; this node always takes part, the
    first stage is its own.

    Raises:
        RefusedError: This node, or at a first plan a node that the operator named,
            cannot take part.
    """
    left_out = {peer.node_id: peer.reason for peer in peers if not peer.is_available}
    chosen: list[Node] = []
    for node_id, report in sorted(reports.items()):
        reason = unfit_reason(report, wish)
        if reason is None and node_id in excluded and node_id != own_id:
            reason = "lost or failed before"
        if reason is None:
            chosen.append(planner_node(report, wish))
        else:
            left_out[node_id] = reason
    known = {node.node_id for node in chosen}
    left_out |= {
        node_id: "no such node is known here; `skippyctl nodes` lists them"
        for node_id in wish.node_ids
        if node_id not in known and node_id not in left_out
    }
    _check_named(wish, own_id, left_out, is_replan=bool(excluded))
    if own_id in left_out:
        raise RefusedError(
            f"this node cannot hold the first stage of {wish.model_id}: "
            f"{left_out[own_id]}"
        )
    if wish.node_ids:
        chosen = [node for node in chosen if node.node_id in wish.node_ids]
        left_out = {k: v for k, v in left_out.items() if k in wish.node_ids}
    return tuple(chosen), left_out


def unfit_reason(report: NodeReport, wish: Wish) -> str | None:
    """Say why a node cannot take part, or None when it can."""
    if report.generation != GENERATION:
        return (
            f"it speaks generation {report.generation}, this node {GENERATION}; "
            "install the same version"
        )
    if missing := sorted(set(FEATURES) - set(report.features)):
        return f"it lacks {', '.join(missing)}; install the same version"
    if report.is_draining:
        return "it is draining"
    # A digest that is not known yet may still turn out to be the one.
    digests = {entry.sha256 for entry in report.models}
    if not digests.intersection({wish.model_sha256, None}):
        return (
            f"it has no file of {wish.model_id} with SHA-256 {wish.model_sha256}; copy "
            "the file there, or name its folder in [models] paths"
        )
    return None


def planner_node(report: NodeReport, wish: Wish) -> Node:
    """A node as the planner sees it.

    What this model's present stage holds there is counted as free: a newer run ends
    that stage before its own one starts.
    """
    held_bytes = sum(
        stage.resident_bytes
        for stage in report.stages
        if stage.status.key.manifest_sha256 == wish.model_sha256
    )
    return Node(
        node_id=report.node_id,
        vram_bytes=report.memory_bytes + held_bytes,
        max_vram_bytes=report.max_memory_bytes,
        headroom_bytes=report.headroom_bytes,
    )


def failover_order(
    deployed_by: NodeId, planned: Sequence[NodeId], reports: Mapping[NodeId, NodeReport]
) -> tuple[NodeId, ...]:
    """Who coordinates when the coordinator is lost.

    The node where the operator deployed comes first, then the planned nodes by the
    memory they may use, then by id.
    """

    def usable(node_id: NodeId) -> int:
        report = reports.get(node_id)
        if report is None:
            return 0
        capped = report.memory_bytes
        if report.max_memory_bytes is not None:
            capped = min(capped, report.max_memory_bytes)
        return capped - report.headroom_bytes

    others = sorted(set(planned) - {deployed_by}, key=lambda n: (-usable(n), n))
    return (deployed_by, *others)


def check_side(wish: Wish, reports: Mapping[NodeId, NodeReport]) -> None:
    """Refuse to go on with less than half of the nodes that ran a model last.

    Raises:
        RefusedError: The others may go on by themselves, they are more.
    """
    reachable = sum(node_id in reports for node_id in wish.ran_on)
    if reachable * 2 < len(wish.ran_on):
        raise RefusedError(
            f"only {reachable} of the {len(wish.ran_on)} nodes that ran {wish.model_id} "
            "last can be reached; the others may go on without this node: waiting for "
            "them, or for `skippyctl withdraw` and a new deploy"
        )


def usable_bytes(request: PlanRequest, node_id: NodeId) -> int:
    """Memory that the planner may use on a node of its request."""
    return next(n.usable_bytes for n in request.nodes if n.node_id == node_id)


def _check_named(
    wish: Wish, own_id: NodeId, left_out: Mapping[NodeId, str], *, is_replan: bool
) -> None:
    if not wish.node_ids:
        return
    if own_id not in wish.node_ids:
        raise RefusedError(
            f"the named nodes leave out {own_id}, this node, and the coordinator runs "
            "the first stage; name it too, or deploy on one of the named nodes"
        )
    missing = [node_id for node_id in wish.node_ids if node_id in left_out]
    if missing and not (is_replan or wish.is_adopted):
        reasons = "; ".join(f"{node}: {left_out[node]}" for node in missing)
        raise RefusedError(f"named nodes cannot take part: {reasons}")
