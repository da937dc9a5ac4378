"""A client that leaves, or asks too much, costs nobody else anything."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from support.cli_chain import LONG_PROMPT, CliChain


pytestmark = [pytest.mark.process, pytest.mark.native, pytest.mark.slow]

ALL = (0, 1, 2)


def test_a_client_that_leaves_a_stream_frees_lane_and_session_everywhere(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path) as chain:
        before = chain.serving().holdings(*ALL)
        with chain.send("ab", max_tokens=2000, stream=True) as call:
            events = call.events()
            for _ in range(3):
                next(events)
        chain.expect_holdings(before)
        assert chain.ask("ab", max_tokens=2).status == 200


def test_a_client_that_does_not_wait_for_its_answer_frees_them_too(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path) as chain:
        before = chain.serving().holdings(*ALL)
        with chain.send("ab", max_tokens=2000):
            chain.wait_status(2, "sessions", 1)
        chain.expect_holdings(before)
        steps = chain.stages[2].status()["steps"]
        assert isinstance(steps, int)
        assert steps < 2000, "the answer was computed to its end for nobody"


def test_a_client_that_leaves_while_the_chain_stalls_does_not_hold_the_lane(
    tmp_path: Path,
) -> None:
    """The reply timeout is 60 s; a cancelled request waits two."""
    with CliChain.prepare(tmp_path) as chain:
        before = chain.serving().holdings(*ALL)
        chain.stages[2].stop_running()
        with chain.send(LONG_PROMPT, max_tokens=5):
            chain.wait_status(1, "prefill_tokens", 32)
        chain.wait_lanes_idle()
        chain.stages[2].go_on()
        chain.wait_green()
        assert chain.ask("ab", max_tokens=2).status == 200
        chain.expect_holdings(before)


def test_one_request_more_than_lanes_is_told_to_come_back(tmp_path: Path) -> None:
    with CliChain.prepare(tmp_path, lane_count=1) as chain:
        chain.serving()
        with chain.send("ab", max_tokens=2000, stream=True) as call:
            next(call.events())
            answer = chain.ask("cd", max_tokens=2)
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert answer.error["code"] == "rate_limit_exceeded"
        assert "raise lane_count" in str(answer.error["message"])
        chain.wait_lanes_idle()
        assert chain.ask("cd", max_tokens=2).status == 200


def test_requests_that_fill_the_cache_together_are_refused_not_hung(
    tmp_path: Path,
) -> None:
    """Lanes share one cache: each prompt fits alone, both do not."""
    with CliChain.prepare(tmp_path, ctx_size=512) as chain:
        chain.serving()
        with (
            chain.send("ab", max_tokens=200) as one,
            chain.send("ab", max_tokens=200) as two,
        ):
            assert (one.answer().status, two.answer().status) == (200, 200)
        before = chain.holdings(*ALL)
        filling = "x" * 400
        with (
            chain.send(filling, max_tokens=100) as one,
            chain.send(filling, max_tokens=100) as two,
        ):
            answers = {"one": one.answer(), "two": two.answer()}
        refused = [a for a in answers.values() if a.status != 200]
        assert refused
        for answer in refused:
            assert answer.status == 429
            assert answer.error["code"] == "rate_limit_exceeded"
        assert chain.health().status == 200
        chain.expect_holdings(before)
        assert chain.ask(filling, max_tokens=10).status == 200


def processor_ms(chain: CliChain) -> float:
    """Processor time of all stages since they began."""
    ticks = 0
    for stage in chain.stages.values():
        stat = Path(f"/proc/{stage.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(stat[11]) + int(stat[12])  # user and system
    return ticks * 1000 / os.sysconf("SC_CLK_TCK")


def test_stages_that_nobody_asks_use_no_processor(tmp_path: Path) -> None:
    with CliChain.prepare(tmp_path) as chain:
        chain.serving().holdings(*ALL)
        before = processor_ms(chain)
        threading.Event().wait(1.0)  # what is measured, not what is waited for
        assert processor_ms(chain) - before < 100
