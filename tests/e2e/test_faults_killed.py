"""A stage that is killed ends the requests that needed it, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.chat_call import Stopwatch
from support.cli_chain import LONG_PROMPT, CliChain


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.native, pytest.mark.slow]

OTHERS = {1: (0, 2), 2: (0, 1)}


def expect_recovery(chain: CliChain, victim: int) -> None:
    """The light turns red, and green again once the stage is back in its place."""
    health = chain.health()
    assert health.status == 503
    assert health.document["stage"] == victim
    chain.start(victim).wait_green()
    assert chain.ask("ab", max_tokens=2).status == 200


@pytest.mark.parametrize("victim", [1, 2])
def test_a_stage_killed_in_decode_ends_the_stream_with_a_typed_error(
    tmp_path: Path, victim: int
) -> None:
    with CliChain.prepare(tmp_path) as chain:
        before = chain.serving().holdings(*OTHERS[victim])
        with chain.send("ab", max_tokens=2000, stream=True) as call:
            events = call.events()
            for _ in range(3):
                next(events)
            chain.stages[victim].kill()
            since = Stopwatch()
            *_tokens, last = events
        assert since.seconds < 2
        error = last["error"]
        assert isinstance(error, dict)
        assert error["code"] == "service_unavailable"
        assert f"stage-{victim} is lost" in error["message"]
        assert "start it again" in error["message"]
        expect_recovery(chain, victim)
        chain.expect_holdings(before)


@pytest.mark.parametrize("victim", [1, 2])
def test_a_stage_killed_in_prefill_answers_502_within_two_seconds(
    tmp_path: Path, victim: int
) -> None:
    """The final stage is halted, so that the prompt cannot be finished meanwhile."""
    with CliChain.prepare(tmp_path) as chain:
        before = chain.serving().holdings(*OTHERS[victim])
        chain.stages[2].stop_running()
        with chain.send(LONG_PROMPT, max_tokens=5) as call:
            chain.wait_status(1, "prefill_tokens", 32)
            chain.stages[victim].kill()
            since = Stopwatch()
            answer = call.answer()
        assert since.seconds < 2
        if victim != 2:
            chain.stages[2].go_on()
        assert answer.status == 502
        assert answer.error["code"] == "service_unavailable"
        assert f"stage-{victim} is lost" in str(answer.error["message"])
        expect_recovery(chain, victim)
        chain.expect_holdings(before)


def test_a_stage_killed_while_nobody_asks_turns_the_light_red(tmp_path: Path) -> None:
    with CliChain.prepare(tmp_path) as chain:
        before = chain.serving().holdings(0, 1)
        chain.stages[2].kill()
        since = Stopwatch()
        chain.wait_red()
        assert since.seconds < 2
        refused = chain.ask("ab", max_tokens=2)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert "stage-2 is lost" in str(refused.error["message"])
        expect_recovery(chain, 2)
        chain.expect_holdings(before)


def test_the_death_of_stage_0_closes_the_clients_connection_at_once(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path) as chain:
        before = chain.serving().holdings(1, 2)
        with chain.send("ab", max_tokens=2000, stream=True) as call:
            events = call.events()
            next(events)
            chain.stages[0].kill()
            since = Stopwatch()
            for event in events:
                assert "error" not in event
        assert since.seconds < 1
        chain.start(0).wait_green()
        assert chain.ask("ab", max_tokens=2).status == 200
        chain.expect_holdings(before)
