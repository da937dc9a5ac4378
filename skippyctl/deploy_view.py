"""A deployment as it goes on: a line for each step, a bar for what takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyctl.page import Piece, Tone, line, paragraph
from skippyctl.status_view import bar
from skippyctl.words import clock_time, percent, short_id
from skippyd.units import MIB, format_bytes


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyctl.page import Block, Page
    from skippyd.admin.schema import Event

MOST_LINES = 40
TONES = {
    "publish": Tone.GOOD,
    "failed": Tone.BAD,
    "replan": Tone.WARNING,
    "withdraw": Tone.WARNING,
}


@attrs.define
class Progress:
    """What a watcher has seen: the newest event of each step, in order of beginning.

    Args:
        names: How people call nodes, by id.
    """

    names: Mapping[str, str] = attrs.Factory(dict)
    _steps: dict[tuple[str, str | None, str | None], Event] = attrs.Factory(dict)

    def take(self, event: Event) -> None:
        """Remember an event; a step that goes on is one line."""
        step = (event.event, event.stage_id, event.run_id)
        was = self._steps.get(step)
        if was is not None and not is_progress(was):
            # A step that comes again, as in a replan, begins a new line.
            del self._steps[step]
        self._steps[step] = event

    def page(self) -> Page:
        """All steps; the oldest ones go when there are too many."""
        newest = list(self._steps.values())[-MOST_LINES:]
        return tuple(
            block for event in newest for block in event_lines(event, self.names)
        )


def is_progress(event: Event) -> bool:
    """Say whether more of the same step follows."""
    return event.total is not None and (event.done or 0) < event.total


def event_lines(event: Event, names: Mapping[str, str]) -> Iterator[Block]:
    """An event for people; nodes by the names they have, else by their ids."""
    tone = TONES.get(event.event, Tone.BUSY if is_progress(event) else Tone.PLAIN)
    first, *rest = event.message.splitlines() or [""]
    yield line(
        Piece(f"{clock_time(event.unix_ms)}  ", Tone.DIM),
        Piece(f"{event.event:<9}", tone),
        Piece(_where(event, names)),
        Piece(_how_far(event), Tone.BUSY),
        Piece(first, tone if event.event in TONES else Tone.PLAIN),
    )
    yield from paragraph("\n".join(rest), indent=19)


def _where(event: Event, names: Mapping[str, str]) -> str:
    node_id = event.node_id
    on = "" if not node_id else f"on {names.get(node_id) or short_id(node_id)}"
    parts = [event.stage_id or "", on]
    text = " ".join(part for part in parts if part)
    return f"{text}  " if text else ""


def _how_far(event: Event) -> str:
    if event.total is None or event.total <= 0:
        return ""
    done = event.done or 0
    if done >= event.total:
        return ""
    share = f"{bar(done, event.total)} {percent(done, event.total):3}%"
    if event.total >= MIB:
        return f"{share} of {format_bytes(event.total)}  "
    return f"{share}  "
