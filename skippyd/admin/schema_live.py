"""The documents that grow while one looks at them: telemetry, log lines, events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """The ring that keeps the newest spans.

    Args:
        dropped: Recorded but kept no longer.
        lost: Given up by stage processes before they came here.
    """

    capacity: int
    kept: int
    recorded: int
    dropped: int
    lost: int = 0


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
        is_dry_run: All of a dry run: what would be done, and nothing was. Not final, as
            it says nothing of what is deployed.
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
    is_dry_run: bool = False


@attrs.frozen(kw_only=True)
class Events:
    """Events after the asked one.

    Args:
        missed: How many of them are no longer kept.
    """

    schema: str = "skippy.events/1"
    missed: int = 0
    items: tuple[Event, ...]


def present_keys(event: Mapping[str, object]) -> dict[str, object]:
    """Leave out the keys that have no value, as events are written."""
    return {key: value for key, value in event.items() if value is not None}
