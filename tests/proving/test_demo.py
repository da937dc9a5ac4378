"""Asking a chain over HTTP: its green light, its stream, and its ways to fail.

(The whole demo on real stages: `tests/cli/test_demo.py`.)
"""

from __future__ import annotations

import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.errors import SkippyError
from skippyd.proving import demo
from skippyd.proving.chain import ChainPlan, LocalChain
from skippyd.proving.demo import Question, ask, wait_until_served


if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.process]

QUESTION = Question(prompt="Why?", max_tokens=5, temperature=0.5, seed=3)


@attrs.define(eq=False)
class ScriptedStage:
    """Stage 0's HTTP server, which says what the test wants.

    Args:
        answers: Status and body of each request, in order.
        asked: Bodies of the requests.
    """

    answers: list[tuple[int, bytes]]
    asked: list[bytes] = attrs.Factory(list)

    def next_answer(self, body: bytes) -> tuple[int, bytes]:
        """Take a request in."""
        self.asked.append(body)
        return self.answers.pop(0)


def chain_at(url: str) -> LocalChain:
    """A chain as far as asking looks at it."""
    return LocalChain(
        plan=ChainPlan(model_path=Path("m"), model_id="tiny", bounds=(0, 2)),
        stages=[],
        addresses=[],
        run_key=b"",
        openai_base_url=url,
        folder=tempfile.TemporaryDirectory(),
    )


@pytest.fixture
def stage() -> ScriptedStage:
    return ScriptedStage([])


@pytest.fixture
def chain(stage: ScriptedStage) -> Iterator[LocalChain]:
    """A chain without processes, whose stage 0 is the scripted one."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("content-length", 0))
            status, body = stage.next_answer(self.rfile.read(size))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815 - names that http.server looks for

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    with chain_at(f"http://127.0.0.1:{server.server_port}/v1") as made:
        yield made
    server.shutdown()
    thread.join()
    server.server_close()


def event(delta: str, finish_reason: str | None = None, **more: object) -> bytes:
    choice = {"delta": {"content": delta}, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


USAGE = {"usage": {"prompt_tokens": 9, "completion_tokens": 3}}


def test_a_streamed_answer_is_put_together(
    chain: LocalChain, stage: ScriptedStage
) -> None:
    last = b"data: " + json.dumps({"choices": [], **USAGE}).encode() + b"\n\n"
    body = event("") + event("Be") + event("cause", "stop") + last + b"data: [DONE]\n\n"
    stage.answers.append((200, body))
    pieces: list[str] = []
    answer = ask(chain, QUESTION, pieces.append)
    assert (answer.text, answer.finish_reason) == ("Because", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (9, 3)
    assert "".join(pieces) == "Because"
    assert 0 < answer.ttft_ms < 10_000
    sent = json.loads(stage.asked[0])
    assert sent["messages"] == [{"role": "user", "content": "Why?"}]
    assert (sent["max_tokens"], sent["seed"], sent["temperature"]) == (5, 3, 0.5)
    assert (sent["model"], sent["stream"]) == ("tiny", True)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, b'{"error": {"message": "too long by 7"}}', "^too long by 7$"),
        (500, b"<html>", "^<html>$"),
        (
            200,
            event("Be") + b'data: {"error": {"message": "stage 2 is lost"}}\n\n',
            "^stage 2 is lost$",
        ),
        (200, event("Be"), "ended before it was complete: stage 0 is gone"),
    ],
)
def test_an_answer_that_fails_says_why(
    chain: LocalChain, stage: ScriptedStage, status: int, body: bytes, words: str
) -> None:
    stage.answers.append((status, body))
    with pytest.raises(SkippyError, match=words):
        ask(chain, QUESTION)


def test_the_green_light_is_waited_for_with_its_reasons(
    chain: LocalChain, stage: ScriptedStage
) -> None:
    red = b'{"status": "loading", "stage": 1, "reason": "stage 1 is loading"}'
    stage.answers += [(503, red), (503, b"{}"), (200, b'{"status": "ok"}')]
    reasons: list[str] = []
    wait_until_served(chain, reasons.append)
    assert reasons == ["stage 1 is loading", "no reason given"]


def test_a_light_that_stays_red_is_given_up(
    chain: LocalChain, stage: ScriptedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "HEALTH_SECONDS", 0.2)
    stage.answers += [(503, b'{"reason": "stage 1 is lost"}')] * 100
    with pytest.raises(SkippyError, match="does not serve: stage 1 is lost"):
        wait_until_served(chain)


def test_a_stage_that_does_not_listen_is_said_so() -> None:
    with chain_at("http://127.0.0.1:9/v1") as gone:
        with pytest.raises(SkippyError, match="stage 0 does not answer: "):
            wait_until_served(gone)
        with pytest.raises(SkippyError, match="stage 0 closed the connection: "):
            ask(gone, QUESTION)


def test_sampling_is_told_alike_to_both_sides() -> None:
    """The request's fields are the block's."""
    from skippyd.core.wire.sampling import SamplingBlock  # noqa: PLC0415 - only here

    fields = QUESTION.sampling()
    block = SamplingBlock(flags=demo.SAMPLED_ENABLED, **fields)
    assert block.enabled
    assert attrs.asdict(block).items() >= fields.items()
