"""The documents of the admin socket: what `skippyctl` shows and prints with `--json`.

A leaf: nothing but attrs, so that a client costs little to start. Keys are fixed by the
contract ("Command output"); terms, session and request ids are decimal strings. An
optional key that is None is written as null, in events it is left out.
"""

from __future__ import annotations

import attrs


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
class Distribution:
    """A measured time; the quantiles are None when nothing was measured."""

    count: int = 0
    p50_us: int | None = None
    p95_us: int | None = None
    max_us: int | None = None


@attrs.frozen(kw_only=True)
class SpanRow:
    """One recorded span; attribute values are texts."""

    sequence: int
    name: str
    start_unix_ms: int
    elapsed_us: int
    attributes: dict[str, str]


@attrs.frozen(kw_only=True)
class RingRow:
    """The ring that keeps the newest spans."""

    capacity: int
    kept: int
    recorded: int
    dropped: int


@attrs.frozen(kw_only=True)
class Telemetry:
    """`skippyctl telemetry`: the last `window_ms`, and the spans after the asked one."""

    schema: str = "skippy.telemetry/1"
    window_ms: int
    safe_mode: bool
    requests_per_minute: float
    prompt_tokens_per_s: float
    completion_tokens_per_s: float
    failed_requests: int
    ttft: Distribution
    tpot: Distribution
    queue_wait: Distribution
    lock_wait: Distribution
    queue_depth: int
    ring: RingRow
    items: tuple[SpanRow, ...]


@attrs.frozen(kw_only=True)
class LogRow:
    """One line of the daemon's log."""

    sequence: int
    unix_ms: int
    level: str
    source: str
    message: str


@attrs.frozen(kw_only=True)
class Logs:
    """`skippyctl logs`.

    Args:
        missed: Lines after the asked one that the ring no longer has.
    """

    schema: str = "skippy.logs/1"
    missed: int = 0
    items: tuple[LogRow, ...]


@attrs.frozen(kw_only=True)
class Event:
    """One step of a deployment (`skippyctl deploy`, `watch`).

    Args:
        sequence: Where to resume after.
        event: plan, probe, prepare, claim, load, prove, publish, withdraw, replan or
            failed.
        done: How much of `total` is done, in bytes where it is about bytes.
        is_final: Nothing follows for what was asked.
        exit_code: Of a final event, what the command ends with.
    """

    schema: str = "skippy.event/1"
    sequence: int
    unix_ms: int
    event: str
    message: str
    model_id: str | None = None
    run_id: str | None = None
    stage_id: str | None = None
    node_id: str | None = None
    done: int | None = None
    total: int | None = None
    is_final: bool = False
    exit_code: int | None = None


@attrs.frozen(kw_only=True)
class Events:
    """Events after the asked one.

    Args:
        missed: How many of them are no longer kept.
    """

    schema: str = "skippy.events/1"
    missed: int = 0
    items: tuple[Event, ...]


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


@attrs.frozen(kw_only=True)
class Invitation:
    """`skippyctl invite`: one token for one machine."""

    schema: str = "skippy.invite/1"
    token: str = attrs.field(repr=False)
    node_id: str
    address: str
    expires_unix_ms: int


@attrs.frozen(kw_only=True)
class Joined:
    """`skippyctl join`: the node that is pinned now."""

    schema: str = "skippy.join/1"
    node_id: str
    name: str
    address: str


@attrs.frozen(kw_only=True)
class Deployment:
    """A deployment that has begun; `after` is where its events start."""

    schema: str = "skippy.deployment/1"
    model_id: str
    after: int


@attrs.frozen(kw_only=True)
class Done:
    """A change that was made, in words."""

    schema: str = "skippy.done/1"
    message: str
