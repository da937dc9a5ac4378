"""The documents of the admin socket: what `skippyctl` shows and prints with `--json`.

A leaf, with `schema_live` and `schema_changes`: nothing but attrs, so that a client costs little to start. Keys are fixed by the
contract ("Command output"); terms, session and request ids are decimal strings. An
optional key that is None is written as null, in events it is left out.
"""

from __future__ import annotations

import attrs

from skippyd.admin.schema_changes import Deployment, Done, Invitation, Joined
from skippyd.admin.schema_live import (
    Distribution,
    Event,
    Events,
    LogRow,
    Logs,
    RingRow,
    SpanRow,
    Telemetry,
    present_keys,
)


__all__ = [
    "API",
    "ITEM",
    "PATH",
    "CheckRow",
    "ClaimRow",
    "Claims",
    "DaemonStatus",
    "Deployment",
    "Distribution",
    "Doctor",
    "Done",
    "Event",
    "Events",
    "Fence",
    "FenceRow",
    "Hello",
    "Invitation",
    "Joined",
    "LaneRow",
    "Lanes",
    "LeaseRow",
    "Leases",
    "LogRow",
    "Logs",
    "NodeRow",
    "Nodes",
    "Nothing",
    "RingRow",
    "RunStatus",
    "SafeMode",
    "SafeModeReport",
    "SessionRow",
    "Sessions",
    "SpanRow",
    "StageRow",
    "Status",
    "Telemetry",
    "present_keys",
]


API = 1
"""Version of the methods; both sides name it in `hello`."""

PATH = "/v1"
ITEM = "item"
"""The notification that carries one document of a stream."""


@attrs.frozen
class Nothing:
    """The parameters of a method that takes none."""


@attrs.frozen(kw_only=True)
class Hello:
    """What both sides say first.

    Args:
        api: Version of the methods.
        version: Version of the program, for messages only.
    """

    schema: str = "skippy.hello/1"
    api: int
    version: str


@attrs.frozen(kw_only=True)
class DaemonStatus:
    """The daemon.

    Args:
        name: How people call its node.
        state: starting, idle, loading, serving, degraded, draining or stopping.
        reasons: Why it is not simply serving or idle.
    """

    version: str
    node_id: str
    name: str
    uptime_ms: int
    state: str
    reasons: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class SafeMode:
    """Incident safe mode, wished for and in force.

    Args:
        requested: In force from the next start on.
        effective: In force since this start.
        reason: Why it was requested.
        since: When it was requested (RFC 3339, UTC); None when it was not.
    """

    requested: bool
    effective: bool
    reason: str = ""
    since: str | None = None


@attrs.frozen(kw_only=True)
class RunStatus:
    """The run that this node takes part in.

    Args:
        route: Base URL where it is served; None while it is not published.
    """

    run_id: str
    topology_id: str
    model_id: str
    term: str
    coordinator_id: str
    lease_until_unix_ms: int
    route: str | None


@attrs.frozen(kw_only=True)
class StageRow:
    """One stage of the chain, wherever it runs.

    Args:
        node_name: How people call its node.
        state: STARTING, READY, STOPPING, STOPPED, FAILED, or unknown.
        reason: Why it is in this state; of a dead process the cause and its last lines.
    """

    stage_id: str
    stage_index: int
    node_id: str
    node_name: str
    layer_start: int
    layer_end: int
    state: str
    state_age_ms: int
    reason: str
    pid: int | None
    bind_addr: str
    resident_bytes: int
    loaded_bytes: int
    total_bytes: int


@attrs.frozen(kw_only=True)
class Status:
    """`skippyctl status`."""

    schema: str = "skippy.status/1"
    daemon: DaemonStatus
    safe_mode: SafeMode
    run: RunStatus | None
    stages: tuple[StageRow, ...]


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
        state: idle, prefill, decode, or closed.
        session_id: The session it serves, if any.
        age_ms: How long it has been in this state.
    """

    stage_id: str
    lane_id: int
    state: str
    session_id: str | None
    age_ms: int


@attrs.frozen(kw_only=True)
class Lanes:
    """`skippyctl lanes`."""

    schema: str = "skippy.lanes/1"
    items: tuple[LaneRow, ...]


@attrs.frozen(kw_only=True)
class SessionRow:
    """One session of a stage of this node; never what was said in it."""

    session_id: str
    request_id: str | None
    stage_id: str
    lane_id: int | None
    state: str
    token_count: int
    age_ms: int


@attrs.frozen(kw_only=True)
class Sessions:
    """`skippyctl sessions`."""

    schema: str = "skippy.sessions/1"
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


@attrs.frozen(kw_only=True)
class FenceRow:
    """One record of the fence; it is never forgotten.

    Args:
        term: The accepted term; "0" when only stops are remembered.
        stopped: Runs that were stopped, as TERM/RUN.
    """

    model_id: str
    package_ref: str
    manifest_sha256: str
    term: str
    run_id: str
    coordinator_id: str
    stopped: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Fence:
    """`skippyctl fence show`.

    Args:
        store: Path of the store on the node.
        quarantine_reason: Why this node does not vote; empty when it does.
        quarantine_left_ms: When it votes by itself.
    """

    schema: str = "skippy.fence/1"
    store: str
    instance_id: str
    is_quarantined: bool
    quarantine_reason: str = ""
    quarantine_left_ms: int | None = None
    items: tuple[FenceRow, ...]


@attrs.frozen(kw_only=True)
class SafeModeReport:
    """`skippyctl safe-mode status`.

    Args:
        origin: file, environment or both of them; empty when off.
        by_uid: Who requested it.
    """

    schema: str = "skippy.safe-mode/1"
    safe_mode: SafeMode
    origin: str = ""
    by_uid: int | None = None


@attrs.frozen(kw_only=True)
class CheckRow:
    """One thing that `doctor` looked at.

    Args:
        verdict: ok, warning or failed.
        remedy: What to do; empty when it is ok.
    """

    check: str
    verdict: str
    finding: str
    remedy: str = ""


@attrs.frozen(kw_only=True)
class Doctor:
    """`skippyctl doctor`."""

    schema: str = "skippy.doctor/1"
    items: tuple[CheckRow, ...]
