from __future__ import annotations

import pytest

from skippyd.core.telemetry.figures import figures
from skippyd.core.telemetry.ring import TelemetryRing
from skippyd.daemon.answer_spans import AnswerSpans


MINUTE_NS = 60 * 1_000_000_000
DONE = (
    "2025-11-30T02:00:00.000Z INFO skippyd.frontend.generation event=answer_done "
    "req=1f prompt_tokens=37 completion_tokens=12 finish=length"
)
FAILED = (
    "2025-11-30T02:00:00.000Z WARNING skippyd.frontend.generation "
    "event=answer_failed req=1f cause='stage-1 is lost'"
)


def test_ended_answers_become_rates() -> None:
    ring = TelemetryRing()
    spans = AnswerSpans(ring)
    for line in (DONE, DONE, FAILED):
        spans.take("stage-0", line)
    found = figures(ring.since(0), MINUTE_NS)
    assert found.requests_per_minute == 3
    assert found.failed_requests == 1
    assert found.completion_tokens_per_s == pytest.approx(24 / 60)
    assert found.prompt_tokens_per_s == pytest.approx(74 / 60)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "event=answer_done",
        "event=answer_done req=1 prompt_tokens=x completion_tokens=1",
        f"event=answer_done req=1 prompt_tokens={'9' * 40} completion_tokens=1",
        "load: adding 1 dummy tokens",
    ],
)
def test_other_lines_leave_nothing(line: str) -> None:
    ring = TelemetryRing()
    AnswerSpans(ring).take("stage-0", line)
    assert ring.statistics().recorded == 0
