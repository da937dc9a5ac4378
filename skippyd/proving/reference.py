"""The reference process: the original file through plain llama.cpp.

Run as a program it reads one JSON request from standard input, writes the logits of
each predicted row to the descriptor that the request names, and answers with one JSON
line. `ask_reference` starts it.
"""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from skippyd.errors import ModelError, SkippyError
from skippyd.proving.logits_pipe import LogitsReader, LogitsWriter
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.unsplit import UnsplitModel


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skippyd.core.wire.sampling import SamplingBlock
    from skippyd.runtime.llama.vocabulary import LlamaVocabulary

    Row = np.ndarray[tuple[int], np.dtype[np.float32]]

TOKEN_SEED = 20_260_101
"""Seed of the token ids that a model without tokenizer is fed."""
ANSWER_SECONDS = 900.0


@attrs.frozen(kw_only=True)
class ReferenceRequest:
    """What the unsplit model shall do.

    Args:
        model_path: The original file.
        settings: What the stages' engines are told.
        chunk: Prefill chunk in tokens.
        limit: Rows to predict.
        chat: A user's message to render with the model's template, or
        text: a text to tokenize as it is, or
        random_tokens: this many token ids from a fixed seed.
        stop_at_end: Whether an end token ends the answer.
        sampling: Fields of the sampling block; None is greedy.
    """

    model_path: str
    settings: EngineSettings
    chunk: int
    limit: int
    chat: str | None = None
    text: str | None = None
    random_tokens: int | None = None
    stop_at_end: bool = False
    sampling: dict[str, Any] | None = None


@attrs.frozen(kw_only=True)
class ReferenceAnswer:
    """What the unsplit model gave.

    Args:
        prompt: The token ids it was fed.
        tokens: The token ids it drew.
        text: Their text.
        finish_reason: stop or length.
        rows: Logits of each predicted row, in order.
        tpot_ms: Median time of a decoded token.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    finish_reason: str
    rows: tuple[Row, ...]
    tpot_ms: float

    @property
    def positions(self) -> range:
        """Positions of the rows."""
        first = len(self.prompt) - 1
        return range(first, first + len(self.tokens))


def ask_reference(request: ReferenceRequest) -> ReferenceAnswer:
    """Let a separate process run the unsplit model.

    Raises:
        ModelError: The process failed; its last lines are in the message.
    """
    with LogitsReader() as logits, tempfile.TemporaryFile() as said:
        document = attrs.asdict(request) | {"logits_fd": logits.write_end}
        done = subprocess.run(
            [sys.executable, "-m", "skippyd.proving.reference"],
            input=json.dumps(document).encode(),
            stdout=subprocess.PIPE,
            stderr=said,
            pass_fds=[logits.write_end],
            timeout=ANSWER_SECONDS,
            check=False,
        )
        logits.close_write_end()
        if done.returncode != 0:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-5:]
            raise ModelError(
                f"the reference process ended with {done.returncode}: "
                + ("; ".join(last) or "without a word")
            )
        answer = json.loads(done.stdout.splitlines()[-1])
        first = len(answer["prompt"]) - 1
        positions = range(first, first + len(answer["tokens"]))
        rows = logits.take(positions, timeout_s=30.0)
    return ReferenceAnswer(
        prompt=tuple(answer["prompt"]),
        tokens=tuple(answer["tokens"]),
        text=answer["text"],
        finish_reason=answer["finish_reason"],
        rows=tuple(rows),
        tpot_ms=answer["tpot_ms"],
    )


def answer_request(document: Mapping[str, Any]) -> dict[str, object]:
    """Run the unsplit model as a request says; in the reference process."""
    fields = dict(document)
    sink = LogitsWriter(fields.pop("logits_fd"))
    settings = EngineSettings(**fields.pop("settings"))
    request = ReferenceRequest(settings=settings, **fields)
    with UnsplitModel(Path(request.model_path), settings) as model:
        prompt = prompt_tokens(request, model.vocabulary)
        tokens: list[int] = []
        times_ms: list[float] = []
        finish_reason = "length"
        for row in model.generate(
            prompt,
            chunk=request.chunk,
            limit=request.limit,
            sampling=_block(request.sampling),
        ):
            sink(row.position, row.logits)
            tokens.append(row.token)
            times_ms.append(row.elapsed_ns / 1e6)
            if request.stop_at_end and model.vocabulary.is_end(row.token):
                finish_reason = "stop"
                break
        text = _text(tokens, model.vocabulary)
    return {
        "prompt": prompt,
        "tokens": tokens,
        "text": text,
        "finish_reason": finish_reason,
        "tpot_ms": statistics.median(times_ms),
    }


def prompt_tokens(request: ReferenceRequest, vocabulary: LlamaVocabulary) -> list[int]:
    """The prompt, in the way the request names.

    Raises:
        SkippyError: The model cannot take such a prompt.
    """
    if request.random_tokens is not None:
        draw = np.random.default_rng(TOKEN_SEED)
        ids = draw.integers(0, vocabulary.size, request.random_tokens)
        return [int(token) for token in ids]
    if request.text is not None:
        return vocabulary.tokenize(request.text, add_special=True, parse_special=True)
    assert request.chat is not None
    return _chat_tokens(request.chat, vocabulary)


def _chat_tokens(chat: str, vocabulary: LlamaVocabulary) -> list[int]:
    import trio  # noqa: PLC0415 - only a chat prompt needs the template worker

    from skippyd.core.openai.errors import ApiRefusedError  # noqa: PLC0415 - as above
    from skippyd.core.openai.messages import Message  # noqa: PLC0415 - as above
    from skippyd.frontend.chat_template import open_worker_renderer  # noqa: PLC0415
    from skippyd.frontend.prompts import PromptMaker  # noqa: PLC0415 - as above

    @attrs.frozen
    class Owner:
        vocabulary: LlamaVocabulary

    async def render() -> Sequence[int]:
        async with open_worker_renderer() as renderer:
            maker = PromptMaker(Owner(vocabulary), renderer)
            return await maker.chat_tokens([Message("user", chat)])

    try:
        return list(trio.run(render))
    except ApiRefusedError as error:
        raise SkippyError(str(error)) from error


def _block(fields: Mapping[str, Any] | None) -> SamplingBlock | None:
    from skippyd.core.wire.sampling import SamplingBlock  # noqa: PLC0415 - child only

    if fields is None:
        return None
    lists = {name: tuple(v) for name, v in fields.items() if isinstance(v, list)}
    pairs = tuple((int(t), float(b)) for t, b in fields.get("logit_bias", ()))
    return SamplingBlock(**{**fields, **lists, "logit_bias": pairs})


def _text(tokens: Sequence[int], vocabulary: LlamaVocabulary) -> str:
    if not vocabulary.has_tokenizer:
        return ""
    pieces = [vocabulary.piece(t) for t in tokens if not vocabulary.is_end(t)]
    return b"".join(pieces).decode(errors="replace")


def main() -> int:
    """Answer the request on standard input."""
    logging.basicConfig(level=logging.ERROR)  # only reasons go into our message
    try:
        answer = answer_request(json.load(sys.stdin))
    except SkippyError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
