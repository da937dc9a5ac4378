"""A chain that follows a script: the OpenAI server's other side in tests.

Its tokens are the bytes of UTF-8 text (0 to 255) and, above them, control tokens.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.frontend.backend import (
    ChainHealth,
    GenerationRequest,
    NoFreeLaneError,
    TokenBatch,
)


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from skippyd.frontend.chat_template import TemplateRenderer


CONTROL_TOKENS = {"<|bos|>": 256, "<|user|>": 257, "<|end|>": 258}
BOS_TOKEN = 256
END_TOKEN = 258

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "<|user|>{{ message.role }}: {{ message.content }}<|end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant: {% endif %}"
)

OK = ChainHealth("ok", None, "")


@attrs.define
class ByteVocabulary:
    """One token a byte; control texts are single tokens when asked for."""

    control_texts: tuple[str, ...] = tuple(CONTROL_TOKENS)
    bos_text: str = "<|bos|>"
    eos_text: str = "<|end|>"
    add_bos: bool = True
    chat_template: str | None = CHAT_TEMPLATE

    def tokenize(
        self, text: str, *, add_special: bool, parse_special: bool
    ) -> list[int]:
        """See `Vocabulary.tokenize`."""
        tokens = [BOS_TOKEN] if add_special and self.add_bos else []
        pattern = "|".join(map(re.escape, CONTROL_TOKENS))
        pieces = re.split(f"({pattern})", text) if parse_special else [text]
        for piece in pieces:
            control = CONTROL_TOKENS.get(piece) if parse_special else None
            tokens += list(piece.encode()) if control is None else [control]
        return tokens

    def piece(self, token: int) -> bytes:
        """See `Vocabulary.piece`."""
        return bytes([token]) if token < 256 else b""

    def is_end(self, token: int) -> bool:
        """See `Vocabulary.is_end`."""
        return token == END_TOKEN


@attrs.define
class Gate:
    """A step of a script: wait here until the test opens it."""

    reached: trio.Event = attrs.field(factory=trio.Event)
    opened: trio.Event = attrs.field(factory=trio.Event)

    async def pass_through(self) -> None:
        """Report arrival and wait."""
        self.reached.set()
        await self.opened.wait()


Step = str | bytes | TokenBatch | Gate | Exception


@attrs.define
class ScriptedStream:
    """A generation that follows its script, then ends with an end token."""

    seed: int
    max_tokens: int
    _steps: list[Step]
    _given: int = 0

    async def next_batch(self) -> TokenBatch:
        """See `TokenStream.next_batch`."""
        await trio.lowlevel.checkpoint()
        while self._steps:
            step = self._steps.pop(0)
            match step:
                case Gate():
                    await step.pass_through()
                case Exception():
                    raise step
                case TokenBatch():
                    return step
                case str():
                    return self._counted(tuple(step.encode()))
                case bytes():
                    return self._counted(tuple(step))
        return TokenBatch((END_TOKEN,), "stop")

    def _counted(self, tokens: tuple[int, ...]) -> TokenBatch:
        left = self.max_tokens - self._given
        self._given += len(tokens)
        if len(tokens) >= left:
            return TokenBatch(tokens[:left], "length")
        return TokenBatch(tokens, None)


@attrs.define
class ScriptedBackend:
    """Answers each request with the next script.

    Args:
        scripts: Steps of each answer; when used up, an answer of its own.
        lanes: Generations at one time.
    """

    scripts: list[Sequence[Step]] = attrs.field(factory=list)
    lanes: int = 4
    vocabulary: ByteVocabulary = attrs.field(factory=ByteVocabulary, kw_only=True)
    model_id: str = attrs.field(default="org/scripted:Q4_K_M", kw_only=True)
    created_unix_s: int = attrs.field(default=1_700_000_000, kw_only=True)
    context_length: int = attrs.field(default=512, kw_only=True)
    state: ChainHealth = attrs.field(default=OK, kw_only=True)
    drawn_seed: int = attrs.field(default=4242, kw_only=True)
    enter_error: Exception | None = attrs.field(default=None, kw_only=True)
    leave_error: Exception | None = attrs.field(default=None, kw_only=True)
    requests: list[GenerationRequest] = attrs.field(factory=list, init=False)
    active: int = attrs.field(default=0, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    def health(self) -> ChainHealth:
        """See `ChainBackend.health`."""
        return self.state

    @asynccontextmanager
    async def generate(
        self, request: GenerationRequest
    ) -> AsyncIterator[ScriptedStream]:
        """See `ChainBackend.generate`; `ended` is set when a context is left."""
        if self.enter_error is not None:
            raise self.enter_error
        if self.active >= self.lanes:
            raise NoFreeLaneError("all execution lanes are busy; retry later")
        self.requests.append(request)
        steps: list[Step] = list(self.scripts.pop(0)) if self.scripts else ["Hello!"]
        seed = request.sampling.seed
        self.active += 1
        try:
            yield ScriptedStream(
                self.drawn_seed if seed is None else seed, request.max_tokens, steps
            )
        finally:
            self.active -= 1
            self.ended.set()
        if self.leave_error is not None:
            raise self.leave_error


@attrs.define
class InlineRenderer:
    """Renders `CHAT_TEMPLATE` without a process of its own."""

    async def render(self, template: str, variables: Mapping[str, object]) -> str:
        """See `TemplateRenderer.render`."""
        assert template == CHAT_TEMPLATE
        messages = variables["messages"]
        assert isinstance(messages, list)
        turns = "".join(
            f"<|user|>{message['role']}: {message['content']}<|end|>"
            for message in messages
        )
        return f"{variables['bos_token']}{turns}<|user|>assistant: "


def inline_renderer() -> TemplateRenderer:
    """The renderer as the protocol it implements."""
    return InlineRenderer()
