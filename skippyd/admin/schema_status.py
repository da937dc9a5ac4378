"""The daemon, its safe mode, its run and the chain, at a glance."""

from __future__ import annotations

import attrs


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
        health: How the chain behind it looks from stage 0: ok, loading or degraded, with
            the reason after a colon; empty for other stages, and while it is not READY.
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
    health: str = ""


@attrs.frozen(kw_only=True)
class Status:
    """`skippyctl status`."""

    schema: str = "skippy.status/1"
    daemon: DaemonStatus
    safe_mode: SafeMode
    run: RunStatus | None
    stages: tuple[StageRow, ...]


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
