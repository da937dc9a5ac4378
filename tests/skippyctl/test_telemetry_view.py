from __future__ import annotations

import attrs

from skippyctl.page import plain_text
from skippyctl.telemetry_view import telemetry_page
from skippyd.admin.wishes import After
from support.admin_view import FakeNodeView


async def test_rates_times_drops_and_spans() -> None:
    telemetry = await FakeNodeView().telemetry(After())
    assert plain_text(telemetry_page(telemetry)).split("\n") == [
        "window    last 60 s",
        "requests  3 a minute, 1 failed",
        "tokens    1.5 prompt/s, 4.2 completion/s",
        "queue     0 waiting",
        "spans     9,000 recorded, 8,192 of 8,192 kept, 808 dropped, 0 lost in stages",
        "",
        "time            p50      p95      max  measured",
        "TTFT        52.0 ms  61.0 ms  61.0 ms         3",
        "TPOT        9.87 ms  61.0 ms  61.0 ms         3",
        "queue wait        -        -        -         0",
        "lock wait         -        -        -         0",
        "",
        "at        span                      took  attributes",
        "02:00:00  openai_request_summary  1.50 s  ttft_ms=52",
    ]


async def test_safe_mode_is_the_first_line_and_spans_may_be_left_out() -> None:
    telemetry = await FakeNodeView().telemetry(After())
    page = telemetry_page(attrs.evolve(telemetry, safe_mode=True), spans=0)
    shown = plain_text(page).split("\n")
    assert shown[0] == "SAFE MODE is on: one request at a time"
    assert shown[-1].startswith("lock wait")
