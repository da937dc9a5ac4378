"""`skippyctl status` as a page, and the exit code that goes with it.

The first line is the safe-mode banner while safe mode is requested or in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.page import Piece, Tone, fields, grid, line, paragraph
from skippyctl.words import duration, moment, percent, short_id
from skippyd.errors import ExitCode
from skippyd.units import format_bytes


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyctl.page import Block, Page
    from skippyd.admin.schema import RunStatus, SafeMode, StageRow, Status

SERVING = "serving"
IDLE = "idle"
READY = "READY"
OK = "ok"
BAR_CELLS = 10

STATE_TONES = {
    "serving": Tone.GOOD,
    "idle": Tone.PLAIN,
    "starting": Tone.BUSY,
    "loading": Tone.BUSY,
    "draining": Tone.WARNING,
    "stopping": Tone.WARNING,
    "degraded": Tone.BAD,
}
STAGE_TONES = {
    "READY": Tone.GOOD,
    "STARTING": Tone.BUSY,
    "STOPPING": Tone.WARNING,
    "STOPPED": Tone.WARNING,
    "FAILED": Tone.BAD,
}


def status_page(status: Status, now_unix_ms: int) -> Page:
    """Everything at a glance.

    Args:
        status: The document.
        now_unix_ms: For the time that a lease has left.
    """
    return tuple(_blocks(status, now_unix_ms))


def status_exit_code(status: Status) -> ExitCode:
    """0 while it serves or has nothing to serve; 3 otherwise, and in safe mode."""
    is_well = status.daemon.state in {SERVING, IDLE}
    is_safe_mode = status.safe_mode.requested or status.safe_mode.effective
    return ExitCode.DONE if is_well and not is_safe_mode else ExitCode.DEGRADED


def safe_mode_banner(safe_mode: SafeMode) -> str | None:
    """Say what safe mode does now and after the next start; None when it is off."""
    since = f" since {safe_mode.since}" if safe_mode.since else ""
    reason = f": {safe_mode.reason}" if safe_mode.reason else ""
    match safe_mode.requested, safe_mode.effective:
        case False, False:
            return None
        case True, True:
            return f"SAFE MODE is on{since}{reason}"
        case True, False:
            return f"SAFE MODE is requested{since}, takes effect at restart{reason}"
        case _:
            return "SAFE MODE is on until the next restart; it is no longer requested"


def node_label(name: str, node_id: str) -> str:
    """A node's name and enough of its id."""
    return f"{name} ({short_id(node_id)})" if name else short_id(node_id)


def bar(done: int, total: int) -> str:
    """A short bar for text cells."""
    full = percent(done, total) * BAR_CELLS // 100
    return "█" * full + "·" * (BAR_CELLS - full)


def _blocks(status: Status, now_unix_ms: int) -> Iterator[Block]:
    banner = safe_mode_banner(status.safe_mode)
    if banner is not None:
        yield line(banner, tone=Tone.ALARM)
    daemon = status.daemon
    yield line(
        Piece(node_label(daemon.name, daemon.node_id), Tone.STRONG),
        Piece("  "),
        Piece(daemon.state, STATE_TONES.get(daemon.state, Tone.WARNING)),
        Piece(f"  skippyd {daemon.version}, up {duration(daemon.uptime_ms)}", Tone.DIM),
    )
    for reason in daemon.reasons:
        yield from paragraph(reason, tone=Tone.WARNING, indent=2)
    yield line()
    if status.run is None and status.stages:
        yield line("no run: an operator loaded what is here (skippyctl load-local)")
    elif status.run is None:
        yield line("no run: nothing is deployed; skippyctl deploy MODEL begins one")
    else:
        yield fields(_run(status.run, status.stages, now_unix_ms))
    if status.stages:
        yield line()
        yield _stages(status.stages)
        yield from _reasons(status.stages)


def _run(
    run: RunStatus, stages: tuple[StageRow, ...], now_unix_ms: int
) -> Iterator[tuple[str, str | Piece]]:
    names = {stage.node_id: stage.node_name for stage in stages}
    yield "model", Piece(run.model_id, Tone.STRONG)
    if run.route is None:
        yield "served at", Piece("not published", Tone.WARNING)
    else:
        yield "served at", Piece(run.route, Tone.GOOD)
    yield "run", f"{run.run_id}  term {run.term}"
    yield (
        "coordinator",
        node_label(names.get(run.coordinator_id, ""), run.coordinator_id),
    )
    left_ms = run.lease_until_unix_ms - now_unix_ms
    if run.lease_until_unix_ms <= 0:
        yield "lease", Piece("not known on this node", Tone.DIM)
    elif left_ms > 0:
        until = moment(run.lease_until_unix_ms)
        yield "lease", f"{duration(left_ms)} left, until {until}"
    else:
        expired = f"expired at {moment(run.lease_until_unix_ms)}: no new loads"
        yield "lease", Piece(expired, Tone.WARNING)


def _stages(stages: tuple[StageRow, ...]) -> Block:
    head = ("stage", "node", "layers", "state", "for", "memory", "pid", "address")
    drops = ("pid", "address", "memory")
    right = ("memory", "pid")
    return grid(head, map(_stage, stages), right=right, wraps="node", drops=drops)


def _stage(stage: StageRow) -> tuple[str | Piece, ...]:
    tone = STAGE_TONES.get(stage.state, Tone.WARNING)
    if health := _trouble(stage):
        tone = STATE_TONES.get(health, Tone.WARNING)
    return (
        stage.stage_id,
        stage.node_name or short_id(stage.node_id),
        _layers(stage),
        Piece(_state(stage), tone),
        duration(stage.state_age_ms),
        format_bytes(stage.resident_bytes) if stage.resident_bytes else "-",
        "-" if stage.pid is None else str(stage.pid),
        stage.bind_addr or "-",
    )


def _layers(stage: StageRow) -> str:
    # What a node that is gone held is not known.
    is_known = stage.layer_end > stage.layer_start
    return f"{stage.layer_start}..{stage.layer_end}" if is_known else "-"


def _state(stage: StageRow) -> str:
    is_loading = stage.state == "STARTING" and stage.total_bytes > 0
    if not is_loading:
        return ", ".join(filter(None, (stage.state, _trouble(stage))))
    done, total = stage.loaded_bytes, stage.total_bytes
    return f"{stage.state} {bar(done, total)} {percent(done, total)}%"


def _trouble(stage: StageRow) -> str:
    """What a stage that is ready waits for or lacks, in a word; empty when it is well."""
    health = stage.health.partition(":")[0]
    return "" if health == OK else health


def _reasons(stages: tuple[StageRow, ...]) -> Iterator[Block]:
    for stage in stages:
        if health := _trouble(stage):
            tone = STATE_TONES.get(health, Tone.WARNING)
            name = Piece(f"{stage.stage_id}: ", Tone.STRONG)
            yield line(name, Piece(stage.health, tone))
        if not stage.reason:
            continue
        first, *rest = stage.reason.splitlines() or [""]
        tone = Tone.PLAIN if stage.state == READY else Tone.BAD
        yield line(Piece(f"{stage.stage_id}: ", Tone.STRONG), Piece(first, tone))
        yield from paragraph("\n".join(rest), tone=Tone.DIM, indent=4)
