"""A downstream stage that is not what it should be is named, and nothing hangs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from skippyd.core.wire.encode import encode_reply
from skippyd.core.wire.replies import ack
from support.chat_call import Stopwatch
from support.cli_chain import LONG_PROMPT, CliChain
from support.fake_stage import READY, FakeStage
from support.stage_cli import eventually


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.native, pytest.mark.slow]

TWO = (0, 3, 6)
PREAMBLE_BYTES = 4 + 1 + 32
IMPATIENT = ("--stage-reply-timeout-secs", "1")


def expect_reason(chain: CliChain, *words: str) -> None:
    """The red light gives a reason with these words."""

    def is_given() -> bool:
        health = chain.health()
        reason = str(health.document.get("reason"))
        return health.status == 503 and all(word in reason for word in words)

    eventually(is_given, f"a reason with {words}")


def expect_service_once_it_is_there(chain: CliChain) -> None:
    chain.start(1).wait_green()
    assert chain.ask("ab", max_tokens=2).status == 200


def test_a_downstream_that_is_not_there_is_named_with_its_address(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path, bounds=TWO) as chain:
        chain.start(0)
        address = f"127.0.0.1:{chain.ports[1]}"
        expect_reason(
            chain,
            f"stage-1 at {address} is not there",
            "Connection refused",
            "start it, or correct its endpoint",
        )
        answer = chain.ask("ab", max_tokens=2)
        assert answer.status == 503
        assert address in str(answer.error["message"])
        expect_service_once_it_is_there(chain)


def test_a_missing_stage_behind_a_middle_one_is_named_too(tmp_path: Path) -> None:
    patience = ("--downstream-connect-timeout-secs", "0.5")
    with CliChain.prepare(tmp_path, arguments=patience) as chain:
        chain.start(0, 1)
        expect_reason(chain, "stage-2 at ", "is not there")
        chain.start(2).wait_green()
        assert chain.ask("ab", max_tokens=2).status == 200


def test_a_downstream_of_another_generation_is_named(tmp_path: Path) -> None:
    with CliChain.prepare(tmp_path, bounds=TWO) as chain:
        other = struct.pack("<i", 0x53524459 + 1)
        with FakeStage(chain.ports[1], other, hello_bytes=PREAMBLE_BYTES):
            chain.start(0)
            expect_reason(chain, "stage-1 at ", "stage ready magic mismatch")
        expect_service_once_it_is_there(chain)


def test_a_downstream_of_another_run_is_named(tmp_path: Path) -> None:
    with CliChain.prepare(tmp_path, bounds=TWO) as chain:
        right = chain.config_path(1).read_text()
        chain.change_config(1, transport_auth="ff" * 32)
        chain.start()
        expect_reason(chain, "stage-1 at ", "of another run")
        chain.stages[1].end()
        chain.config_path(1).write_text(right)
        expect_service_once_it_is_there(chain)


def test_a_downstream_that_closes_in_the_middle_of_a_reply_is_named(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path, bounds=TWO) as chain:
        half = encode_reply(ack())[:100]
        with FakeStage(chain.ports[1], READY, half, hello_bytes=PREAMBLE_BYTES):
            chain.start(0)
            expect_reason(chain, "stage-1 is lost", "in the middle of a reply")
        expect_service_once_it_is_there(chain)


def test_a_downstream_that_answers_nothing_is_named_after_the_reply_timeout(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path, bounds=TWO, arguments=IMPATIENT) as chain:
        with FakeStage(chain.ports[1], READY, None, hello_bytes=PREAMBLE_BYTES):
            chain.start(0)
            expect_reason(chain, "stage-1 did not answer", "within 1 s")
        expect_service_once_it_is_there(chain)


@pytest.mark.parametrize("victim", [1, 2])
def test_a_stage_that_stalls_in_decode_is_a_timeout(
    tmp_path: Path, victim: int
) -> None:
    with CliChain.prepare(tmp_path, arguments=IMPATIENT) as chain:
        before = chain.serving().holdings(0, 1, 2)
        with chain.send("ab", max_tokens=2000, stream=True) as call:
            events = call.events()
            next(events)
            chain.stages[victim].stop_running()
            since = Stopwatch()
            *_tokens, last = events
        assert since.seconds < 4
        error = last["error"]
        assert isinstance(error, dict)
        assert error["code"] == "timeout"
        assert "within 1" in error["message"]
        assert "between stage-1 and stage-2" in error["message"]
        chain.stages[victim].go_on()
        chain.wait_green()
        assert chain.ask("ab", max_tokens=2).status == 200
        chain.expect_holdings(before)


def test_a_stage_that_stalls_in_prefill_is_named_by_its_neighbour(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path, arguments=IMPATIENT) as chain:
        before = chain.serving().holdings(0, 1, 2)
        chain.stages[2].stop_running()
        answer = chain.ask(LONG_PROMPT, max_tokens=5)
        assert answer.status == 504
        assert answer.error["code"] == "timeout"
        assert "stage-2 did not answer" in str(answer.error["message"])
        chain.stages[2].go_on()
        chain.wait_green()
        assert chain.ask("ab", max_tokens=2).status == 200
        chain.expect_holdings(before)
