"""The lists of a node: claims, leases, lanes, sessions, nodes."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class ClaimRow:
    """One accepted claim; the last one of its model artifact."""

    model_id: str
    package_ref: str
    manifest_sha256: str
    topology_id: str
    run_id: str
    coordinator_id: str
    term: str
    participant_set_hash: str
    topology_hash: str
    lease_until_unix_ms: int
    is_lease_held: bool


@attrs.frozen(kw_only=True)
class Claims:
    """`skippyctl claims`: what this node has accepted."""

    schema: str = "skippy.claims/1"
    items: tuple[ClaimRow, ...]


@attrs.frozen(kw_only=True)
class LeaseRow:
    """The lease of one accepted claim.

    Args:
        left_ms: How long it still allows loads, on the clock that ends it first; 0 when
            it does not.
        state: held, expired, or not held (after a restart, until it is claimed again).
    """

    model_id: str
    run_id: str
    term: str
    coordinator_id: str
    lease_until_unix_ms: int
    left_ms: int
    state: str


@attrs.frozen(kw_only=True)
class Leases:
    """`skippyctl leases`."""

    schema: str = "skippy.leases/1"
    items: tuple[LeaseRow, ...]


@attrs.frozen(kw_only=True)
class LaneRow:
    """One lane of a stage of this node.

    Args:
        state: idle, open (nothing computed yet), prefill or decode.
        session_id: The session it serves, if any.
        request_id: The request whose session that is.
        token_count: Positions that it holds in the KV cache.
        age_ms: How long it has been in this state.
        working_ms: How long it has been at one message; None between messages.
        is_overdue: Whether that is longer than any deadline explains.
    """

    stage_id: str
    lane_id: int
    state: str
    session_id: str | None
    request_id: str | None = None
    token_count: int = 0
    age_ms: int
    working_ms: int | None = None
    is_overdue: bool = False


@attrs.frozen(kw_only=True)
class Lanes:
    """`skippyctl lanes`.

    Args:
        left_off: Lanes and sessions that were too many to be told.
    """

    schema: str = "skippy.lanes/1"
    left_off: int = 0
    items: tuple[LaneRow, ...]


@attrs.frozen(kw_only=True)
class SessionRow:
    """One session of a stage of this node; never what was said in it.

    Args:
        state: open (nothing computed yet), prefill or decode.
        token_count: Positions that it holds in the KV cache.
        age_ms: Since it was opened.
        idle_ms: Since its last message was done.
    """

    session_id: str
    request_id: str | None
    stage_id: str
    lane_id: int | None
    state: str
    token_count: int
    age_ms: int
    idle_ms: int = 0


@attrs.frozen(kw_only=True)
class Sessions:
    """`skippyctl sessions`; `left_off` as in `Lanes`."""

    schema: str = "skippy.sessions/1"
    left_off: int = 0
    items: tuple[SessionRow, ...]


@attrs.frozen(kw_only=True)
class NodeRow:
    """One node as this one sees it.

    Args:
        health: ok, draining, silent, never seen.
        reason: Why it is not ok.
        rtt_us: Round trip of the path really used; None when unknown.
        interface: Network interface of that path.
        local_address: Own address on that path.
    """

    node_id: str
    name: str
    address: str
    is_this_node: bool
    health: str
    reason: str
    rtt_us: int | None
    interface: str | None
    local_address: str | None
    memory_bytes: int | None
    usable_bytes: int | None
    version: str | None
    safe_mode: bool
    last_heard_unix_ms: int | None


@attrs.frozen(kw_only=True)
class Nodes:
    """`skippyctl nodes`."""

    schema: str = "skippy.nodes/1"
    items: tuple[NodeRow, ...]
