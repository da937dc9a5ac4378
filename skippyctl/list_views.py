"""The lists of a node as pages: claims, leases, lanes, sessions, nodes, fence, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.page import Piece, Tone, fields, grid, line, paragraph
from skippyctl.status_view import safe_mode_banner
from skippyctl.words import duration, microseconds, moment, short_id
from skippyd.units import counted, format_bytes


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyctl.page import Block, Page
    from skippyd.admin import schema

VERDICT_TONES = {"ok": Tone.GOOD, "warning": Tone.WARNING, "failed": Tone.BAD}
HEALTH_TONES = {"ok": Tone.GOOD, "draining": Tone.WARNING}
NO_NAMES: Mapping[str, str] = {}
LEVEL_TONES = {"warning": Tone.WARNING, "error": Tone.BAD, "critical": Tone.BAD}


def claims_page(claims: schema.Claims, names: Mapping[str, str] = NO_NAMES) -> Page:
    """The last accepted claim of each model artifact; nodes by the names they have."""
    if not claims.items:
        return (line("no claim was accepted here yet"),)
    head = ("model", "term", "coordinator", "run", "lease", "until", "artifact")
    rows = (
        (
            item.model_id,
            item.term,
            _called(item.coordinator_id, names),
            item.run_id,
            _held(is_held=item.is_lease_held),
            moment(item.lease_until_unix_ms),
            item.package_ref,
        )
        for item in claims.items
    )
    drops = ("artifact", "run", "coordinator", "until", "term")
    return (grid(head, rows, right=("term",), wraps="model", drops=drops),)


def leases_page(leases: schema.Leases, names: Mapping[str, str] = NO_NAMES) -> Page:
    """The time each lease has left; nodes by the names they have."""
    if not leases.items:
        return (line("no lease: no claim was accepted here yet"),)
    head = ("model", "left", "state", "until", "coordinator", "term", "run")
    rows = (
        (
            item.model_id,
            duration(item.left_ms) if item.left_ms > 0 else "-",
            Piece(item.state, Tone.GOOD if item.left_ms > 0 else Tone.WARNING),
            moment(item.lease_until_unix_ms),
            _called(item.coordinator_id, names),
            item.term,
            item.run_id,
        )
        for item in leases.items
    )
    drops = ("run", "coordinator", "until", "term")
    return (grid(head, rows, right=("left", "term"), wraps="model", drops=drops),)


def lanes_page(lanes: schema.Lanes) -> Page:
    """What each lane is at, since when, and for whom."""
    if not lanes.items:
        return (line("no lane: no stage runs on this node"),)
    head = ("stage", "lane", "state", "for", "positions", "request", "session")
    rows = (
        (
            item.stage_id,
            str(item.lane_id),
            _lane_state(item),
            duration(item.age_ms),
            f"{item.token_count:,}",
            item.request_id or "-",
            item.session_id or "-",
        )
        for item in lanes.items
    )
    right = ("lane", "for", "positions", "request", "session")
    return (
        grid(head, rows, right=right, drops=("session", "request")),
        *_left_off(lanes.left_off),
        *_overdue(lanes),
    )


def sessions_page(sessions: schema.Sessions) -> Page:
    """The sessions that hold KV cells."""
    if not sessions.items:
        return (line("no session is open on this node"),)
    head = (
        "session",
        "request",
        "stage",
        "lane",
        "state",
        "positions",
        "age",
        "idle",
    )
    rows = (
        (
            item.session_id,
            item.request_id or "-",
            item.stage_id,
            "-" if item.lane_id is None else str(item.lane_id),
            item.state,
            f"{item.token_count:,}",
            duration(item.age_ms),
            duration(item.idle_ms),
        )
        for item in sessions.items
    )
    right = ("session", "request", "lane", "positions", "age", "idle")
    return (
        grid(head, rows, right=right, drops=("request", "lane", "idle")),
        *_left_off(sessions.left_off),
    )


def nodes_page(nodes: schema.Nodes, now_unix_ms: int) -> Page:
    """This node and its peers, and the way to each of them."""
    head = (
        "node",
        "id",
        "address",
        "health",
        "rtt",
        "via",
        "memory",
        "version",
        "heard",
    )
    rows = (
        (
            Piece(_name(item), Tone.STRONG if item.is_this_node else Tone.PLAIN),
            short_id(item.node_id),
            item.address or "-",
            Piece(item.health, HEALTH_TONES.get(item.health, Tone.BAD)),
            microseconds(item.rtt_us),
            _path(item),
            _memory(item),
            item.version or "-",
            _heard(item, now_unix_ms),
        )
        for item in nodes.items
    )
    # Who is there and how it is says most, where it is next.
    drops = ("version", "via", "id", "heard", "memory", "rtt", "address")
    return (
        grid(head, rows, right=("rtt", "memory"), wraps="node", drops=drops),
        *_node_notes(nodes),
    )


def fence_page(fence: schema.Fence, names: Mapping[str, str] = NO_NAMES) -> Page:
    """What the fence remembers, and whether this node votes."""
    return tuple(_fence(fence, names))


def safe_mode_page(report: schema.SafeModeReport) -> Page:
    """Safe mode, requested and in force."""
    safe_mode = report.safe_mode
    banner = safe_mode_banner(safe_mode)
    if banner is None:
        return (line("safe mode is off"),)
    pairs = [
        ("requested", _yes(is_so=safe_mode.requested)),
        ("effective", _yes(is_so=safe_mode.effective)),
        ("by", report.origin or "-"),
    ]
    if report.by_uid is not None:
        pairs.append(("user id", str(report.by_uid)))
    return (line(banner, tone=Tone.ALARM), fields(pairs))


def doctor_page(checks: tuple[schema.CheckRow, ...]) -> Page:
    """Each check with its finding, and what to do about it."""
    return tuple(_checks(checks))


def log_page(logs: schema.Logs) -> Page:
    """Lines of the log, oldest first."""
    return tuple(_log(logs))


def _log(logs: schema.Logs) -> Iterator[Block]:
    if logs.missed:
        yield line(f"({counted(logs.missed, 'line')} no longer kept)", tone=Tone.DIM)
    for row in logs.items:
        tone = LEVEL_TONES.get(row.level, Tone.PLAIN)
        yield line(
            Piece(f"{moment(row.unix_ms)} ", Tone.DIM),
            Piece(f"{row.level:<7} ", tone),
            Piece(f"{row.source}  ", Tone.DIM),
            Piece(row.message, tone),
        )


def _checks(checks: tuple[schema.CheckRow, ...]) -> Iterator[Block]:
    width = max((len(item.check) for item in checks), default=0)
    for item in checks:
        tone = VERDICT_TONES.get(item.verdict, Tone.WARNING)
        yield line(
            Piece(f"{item.verdict:<7}  ", tone),
            Piece(f"{item.check:<{width}}  ", Tone.STRONG),
            Piece(item.finding),
        )
        yield from paragraph(item.remedy, indent=9)
    bad = sum(item.verdict == "failed" for item in checks)
    doubtful = sum(item.verdict == "warning" for item in checks)
    tone = Tone.BAD if bad else Tone.WARNING if doubtful else Tone.GOOD
    yield line()
    found = f"{counted(len(checks), 'check')}: {bad} failed"
    yield line(f"{found}, {counted(doubtful, 'warning')}", tone=tone)


def _fence(fence: schema.Fence, names: Mapping[str, str]) -> Iterator[Block]:
    votes = Piece("yes", Tone.GOOD)
    if fence.is_quarantined:
        votes = Piece("no", Tone.BAD)
    yield fields(
        [("store", fence.store), ("instance", fence.instance_id), ("votes", votes)]
    )
    if fence.is_quarantined:
        left = fence.quarantine_left_ms
        ends = "" if left is None else f"; it votes by itself in {duration(left)}"
        yield line(
            f"quarantined: {fence.quarantine_reason or 'its memory is in doubt'}{ends}",
            tone=Tone.BAD,
        )
        yield line(
            "skippyctl fence init vouches that nothing was forgotten and ends it now",
            indent=2,
        )
    yield line()
    if not fence.items:
        yield line("no record: no claim and no stop was seen yet")
        return
    head = ("model", "term", "coordinator", "run", "stopped", "artifact")
    rows = (
        (
            item.model_id,
            item.term,
            _called(item.coordinator_id, names),
            item.run_id or "-",
            str(len(item.stopped)),
            item.package_ref,
        )
        for item in fence.items
    )
    drops = ("artifact", "run", "coordinator", "stopped")
    yield grid(head, rows, right=("term", "stopped"), wraps="model", drops=drops)


def _called(node_id: str, names: Mapping[str, str]) -> str:
    return names.get(node_id) or short_id(node_id) or "-"


def _lane_state(item: schema.LaneRow) -> Piece:
    if item.is_overdue:
        return Piece(f"{item.state}, overdue", Tone.BAD)
    return Piece(item.state, Tone.DIM if item.state == "idle" else Tone.BUSY)


def _overdue(lanes: schema.Lanes) -> Iterator[Block]:
    for item in lanes.items:
        if item.is_overdue and item.working_ms is not None:
            yield line(
                f"{item.stage_id}, lane {item.lane_id}: at one message for "
                f"{duration(item.working_ms)}, longer than any deadline",
                tone=Tone.BAD,
            )


def _left_off(count: int) -> Iterator[Block]:
    if count:
        yield line(f"({count:,} more, not told by their processes)", tone=Tone.DIM)


def _held(*, is_held: bool) -> Piece:
    return Piece("held", Tone.GOOD) if is_held else Piece("not held", Tone.DIM)


def _yes(*, is_so: bool) -> str:
    return "yes" if is_so else "no"


def _name(item: schema.NodeRow) -> str:
    return f"{item.name} *" if item.is_this_node else item.name or "-"


def _path(item: schema.NodeRow) -> str:
    parts = [item.interface or "", item.local_address or ""]
    return " ".join(part for part in parts if part) or "-"


def _memory(item: schema.NodeRow) -> str:
    size = item.memory_bytes if item.usable_bytes is None else item.usable_bytes
    return "-" if size is None else format_bytes(size)


def _heard(item: schema.NodeRow, now_unix_ms: int) -> str:
    if item.is_this_node:
        return "-"
    if item.last_heard_unix_ms is None:
        return "never"
    age_ms = now_unix_ms - item.last_heard_unix_ms
    if age_ms < 86_400_000:  # noqa: PLR2004 - a day
        return f"{duration(age_ms)} ago"
    return moment(item.last_heard_unix_ms)


def _node_notes(nodes: schema.Nodes) -> Iterator[Block]:
    for item in nodes.items:
        if item.reason:
            name = item.name or short_id(item.node_id)
            yield line(Piece(f"{name}: ", Tone.STRONG), item.reason, tone=Tone.BAD)
        if item.safe_mode:
            name = item.name or short_id(item.node_id)
            yield line(f"{name}: in safe mode", tone=Tone.WARNING)
    if len(nodes.items) <= 1:
        yield line("no other node is known; skippyctl invite lets one join")
