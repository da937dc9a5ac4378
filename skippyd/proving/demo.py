"""The demo's substance: a chain that answers over OpenAI, proven against the model."""

from __future__ import annotations

import json
import statistics
import time
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs

from skippyd.errors import SkippyError
from skippyd.proving.reference import ReferenceRequest, ask_reference
from skippyd.proving.stage_process import resident_bytes
from skippyd.proving.verify import max_difference, same_bits


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from skippyd.proving.chain import LocalChain
    from skippyd.proving.logits_pipe import LogitsReader
    from skippyd.proving.reference import ReferenceAnswer

HEALTH_SECONDS = 60.0
HEALTH_POLL_SECONDS = 0.05
ANSWER_SECONDS = 600.0
ROWS_SECONDS = 30.0
SAMPLED_ENABLED = 1


@attrs.frozen(kw_only=True)
class Question:
    """What is asked.

    Args:
        prompt: The user's message.
        max_tokens: At most so many tokens of answer.
        temperature: 0 is greedy.
        seed: Of the draws.
    """

    prompt: str
    max_tokens: int
    temperature: float
    seed: int

    def sampling(self) -> dict[str, Any]:
        """Sampling fields, named alike in OpenAI's request and in the block."""
        return {
            "temperature": self.temperature,
            "top_p": 0.95,
            "top_k": 40,
            "min_p": 0.05,
            "seed": self.seed,
        }


@attrs.frozen(kw_only=True)
class Answer:
    """What the chain answered.

    Args:
        text: The answer.
        prompt_tokens: Tokens of the prompt.
        completion_tokens: Tokens drawn, an end token included.
        finish_reason: stop or length.
        ttft_ms: From the request to the first text.
        tpot_ms: Per token after the first.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    ttft_ms: float
    tpot_ms: float


@attrs.frozen(kw_only=True)
class StageFigures:
    """One stage after the answer.

    Args:
        resident_bytes: Memory by the contract's measure.
        ms_per_token: Median compute of a decoded token.
    """

    stage_id: str
    stage_index: int
    layer_start: int
    layer_end: int
    pid: int
    bind_addr: str
    resident_bytes: int
    ms_per_token: float
    capture: str


@attrs.frozen(kw_only=True)
class Proof:
    """The comparison of an answer with the unsplit model's.

    Args:
        is_identical: Every token and every logit is the same.
        max_abs_difference: Largest difference of any logit; None if not comparable.
        rows: Rows compared.
    """

    unsplit: ReferenceAnswer
    is_identical: bool
    max_abs_difference: float | None
    rows: int


def wait_until_served(
    chain: LocalChain, on_wait: Callable[[str], None] = lambda _reason: None
) -> None:
    """Wait for the chain's green light.

    Raises:
        SkippyError: It stays red; the reason is the chain's own.
    """
    deadline = time.monotonic() + HEALTH_SECONDS
    while True:
        status, document = _health(chain)
        if status == 200:  # noqa: PLR2004 - HTTP OK
            return
        reason = str(document.get("reason", "no reason given"))
        on_wait(reason)
        if time.monotonic() > deadline:
            raise SkippyError(f"the chain does not serve: {reason}")
        time.sleep(HEALTH_POLL_SECONDS)


def ask(
    chain: LocalChain,
    question: Question,
    on_text: Callable[[str], None] = lambda _text: None,
) -> Answer:
    """Ask the chain over its OpenAI server, streaming.

    Raises:
        SkippyError: The server refused, or the stream ended with an error.
    """
    begun = time.monotonic()
    first_at: float | None = None
    text, finish_reason = "", ""
    usage: Mapping[str, Any] = {}
    for chunk in _stream(chain, _chat_body(chain, question)):
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            piece = choice["delta"].get("content") or ""
            if piece and first_at is None:
                first_at = time.monotonic()
            text += piece
            on_text(piece)
            finish_reason = choice["finish_reason"] or finish_reason
    ended = time.monotonic()
    count = int(usage["completion_tokens"])
    first_at = ended if first_at is None else first_at
    return Answer(
        text=text,
        prompt_tokens=int(usage["prompt_tokens"]),
        completion_tokens=count,
        finish_reason=finish_reason,
        ttft_ms=(first_at - begun) * 1000,
        tpot_ms=(ended - first_at) * 1000 / max(count - 1, 1),
    )


def stage_figures(chain: LocalChain, decoded: int) -> list[StageFigures]:
    """Memory and speed of each stage, over its last `decoded` tokens."""
    figures = []
    for index, stage in enumerate(chain.stages):
        status = stage.status()
        times = status["decode_ns"]
        assert isinstance(times, list)
        last = times[-decoded:] or [0]
        pid = stage.process.pid
        figures.append(
            StageFigures(
                stage_id=stage.stage_id,
                stage_index=index,
                layer_start=chain.plan.bounds[index],
                layer_end=chain.plan.bounds[index + 1],
                pid=pid,
                bind_addr=str(chain.addresses[index]),
                resident_bytes=resident_bytes(pid),
                ms_per_token=statistics.median(last) / 1e6,
                capture=str(status["capture"]),
            )
        )
    return figures


def prove(
    chain: LocalChain, question: Question, answer: Answer, logits: LogitsReader
) -> Proof:
    """Compare the answer's own logits and tokens with the unsplit model's."""
    unsplit = ask_reference(
        ReferenceRequest(
            model_path=str(chain.plan.model_path.absolute()),
            settings=chain.plan.settings(),
            chunk=chain.plan.chunk,
            limit=question.max_tokens,
            chat=question.prompt,
            stop_at_end=True,
            sampling={"flags": SAMPLED_ENABLED, **question.sampling()},
        )
    )
    first = answer.prompt_tokens - 1
    rows = logits.take(range(first, first + answer.completion_tokens), ROWS_SECONDS)
    same_shape = len(unsplit.prompt) == answer.prompt_tokens and len(rows) == len(
        unsplit.rows
    )
    difference = max_difference(rows, unsplit.rows) if same_shape else None
    return Proof(
        unsplit=unsplit,
        is_identical=same_shape
        and answer.text == unsplit.text
        and answer.finish_reason == unsplit.finish_reason
        and same_bits(rows, unsplit.rows),
        max_abs_difference=difference,
        rows=len(rows),
    )


def _chat_body(chain: LocalChain, question: Question) -> bytes:
    body = {
        "model": chain.plan.model_id,
        "messages": [{"role": "user", "content": question.prompt}],
        "max_tokens": question.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **question.sampling(),
    }
    return json.dumps(body).encode()


def _stream(chain: LocalChain, body: bytes) -> Iterator[dict[str, Any]]:
    """Chunks of a streamed answer."""
    connection = _connect(chain, ANSWER_SECONDS)
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            body,
            {"content-type": "application/json"},
        )
        response = connection.getresponse()
        if response.status != 200:  # noqa: PLR2004 - HTTP OK
            raise SkippyError(_error_text(response.read()))
        for line in response:
            if not line.startswith(b"data: "):
                continue
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                return
            chunk = json.loads(data)
            if "error" in chunk:
                raise SkippyError(chunk["error"]["message"])
            yield chunk
        raise SkippyError("the answer ended before it was complete: stage 0 is gone")
    except (OSError, HTTPException) as error:
        raise SkippyError(f"stage 0 closed the connection: {error}") from error
    finally:
        connection.close()


def _health(chain: LocalChain) -> tuple[int, dict[str, Any]]:
    connection = _connect(chain, HEALTH_SECONDS)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, HTTPException) as error:
        raise SkippyError(f"stage 0 does not answer: {error}") from error
    finally:
        connection.close()


def _connect(chain: LocalChain, timeout_s: float) -> HTTPConnection:
    assert chain.openai_base_url is not None
    address = urlsplit(chain.openai_base_url)
    assert address.hostname is not None
    return HTTPConnection(address.hostname, address.port, timeout=timeout_s)


def _error_text(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
