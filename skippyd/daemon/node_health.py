"""Whether this node is well: its fence answers, its stages do, and no lane is overdue.

What is told as a reason at once is a reason to be restarted only after a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.daemon.clock import read_instant
from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from skippyd.coordination.stage_run import StageRun
    from skippyd.coordination.stage_side import NodeStages

SILENT_MS = 10_000
"""A stage process is asked every second; after so long without an answer it is told."""

HUNG_MS = 60_000
"""And after so long nobody waits for it any more."""


class NodeUnwellError(SkippyError):
    """Something of this node hangs; the message says what."""


@attrs.frozen
class Trouble:
    """Something that hangs.

    Args:
        is_hopeless: Whether only a restart is known to help.
    """

    text: str
    is_hopeless: bool


def troubles(runs: Iterable[StageRun], now_ms: int) -> Iterator[Trouble]:
    """Find silent stage processes, and lanes that are past every deadline.

    Args:
        runs: Stages of this node.
        now_ms: The boot clock.
    """
    for run in runs:
        if run.child is None or run.is_ending:
            continue
        stage_id = run.load.stage.stage_id
        silent_ms = 0 if run.asked_ms is None else now_ms - run.asked_ms
        if silent_ms > SILENT_MS:
            text = f"{stage_id} (pid {run.child.pid}) has been silent for"
            yield Trouble(f"{text} {silent_ms // 1000} s", silent_ms > HUNG_MS)
            continue
        for lane in run.activity.lanes:
            if lane.is_overdue:
                seconds = (lane.working_ms or 0) // 1000
                text = f"lane {lane.lane_id} of {stage_id} is overdue"
                yield Trouble(f"{text}: {seconds} s at one message", is_hopeless=True)


async def check_node(stages: NodeStages) -> None:
    """Return when the node is well.

    Raises:
        FenceStoreError: The fence store does not answer.
        NodeUnwellError: A stage or a lane hangs.
    """
    await stages.check_store()
    found = troubles(stages.stage_runs(), read_instant().boottime_ms)
    if hopeless := [each.text for each in found if each.is_hopeless]:
        raise NodeUnwellError("; ".join(hopeless))
