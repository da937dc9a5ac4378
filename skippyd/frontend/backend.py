"""What the OpenAI server needs from a chain, and nothing more.

The chain (three stage processes, or a script in a test) implements these
protocols; the HTTP side never learns which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import attrs

from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


FinishReason = Literal["stop", "length"]
HealthStatus = Literal["ok", "loading", "degraded"]


class NoFreeLaneError(SkippyError):
    """Every lane is busy; the client may try again in a second (429)."""


class Vocabulary(Protocol):
    """The tokenizer of the model at stage 0.

    `tokenize` is called from worker threads, also from several at one time.
    """

    @property
    def control_texts(self) -> tuple[str, ...]:
        """Texts of the tokens that `parse_special=False` leaves as text.

        Control and unknown tokens, such as `<|im_start|>`; not user-defined ones,
        which a tokenizer reads as tokens in any text.
        """
        ...

    @property
    def bos_text(self) -> str:
        """Text of the beginning-of-sequence token; empty when there is none."""
        ...

    @property
    def eos_text(self) -> str:
        """Text of the end-of-sequence token; empty when there is none."""
        ...

    @property
    def add_bos(self) -> bool:
        """Whether the model wants a beginning-of-sequence token before a prompt."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The model's own jinja chat template; None when the file has none."""
        ...

    def tokenize(
        self, text: str, *, add_special: bool, parse_special: bool
    ) -> list[int]:
        """Token ids of a text.

        Args:
            text: Any text; it is never truncated.
            add_special: Put the model's own begin and end tokens around it.
            parse_special: Read the texts of control tokens as those tokens;
                otherwise they are ordinary text.
        """
        ...

    def piece(self, token: int) -> bytes:
        """Bytes of a token as text; may end inside a UTF-8 character.

        Empty for control tokens: they never show in an answer.
        """
        ...

    def is_end(self, token: int) -> bool:
        """Whether the token ends a generation."""
        ...


@attrs.frozen
class SamplingChoice:
    """How tokens are drawn.

    Args:
        temperature: 0 is greedy.
        top_p: Nucleus mass, 0 to 1; at least one token is always kept.
        top_k: 0 is off.
        min_p: 0 is off.
        seed: u32; None lets the backend draw one, which it reports.
    """

    temperature: float
    top_p: float
    top_k: int = attrs.field(kw_only=True)
    min_p: float = attrs.field(kw_only=True)
    seed: int | None = attrs.field(kw_only=True)


@attrs.frozen
class GenerationRequest:
    """One prompt to be continued.

    Args:
        prompt_tokens: At least one token, fewer than the context length.
        max_tokens: At most this many new tokens; at least 1, and within the context.
        sampling: How they are drawn.
    """

    prompt_tokens: tuple[int, ...]
    max_tokens: int
    sampling: SamplingChoice = attrs.field(kw_only=True)


@attrs.frozen
class TokenBatch:
    """The next tokens of a generation.

    Args:
        tokens: New tokens in order.  The end token itself may be among them, last;
            it counts as generated and has no text.
        finish: Set on the last batch: "stop" after an end token, "length" after
            `max_tokens`.
    """

    tokens: tuple[int, ...]
    finish: FinishReason | None


class TokenStream(Protocol):
    """A generation that is running."""

    @property
    def seed(self) -> int:
        """The seed that is really used (u32), given or drawn."""
        ...

    async def next_batch(self) -> TokenBatch:
        """The next tokens, as soon as there is one.

        Not called again after a batch with `finish`.

        Raises:
            StageFailureError: The chain could not go on.
        """
        ...


@attrs.frozen
class ChainHealth:
    """Whether the chain can serve.

    Args:
        status: "ok" only after a canary token went through the whole chain.
        stage: Index of the stage that is the reason, if one is.
        reason: One line naming the thing and what to do; empty when ok.
    """

    status: HealthStatus
    stage: int | None
    reason: str


class VocabularyOwner(Protocol):
    """Whatever has a model's tokenizer."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokenizer."""
        ...


class ChainBackend(Protocol):
    """One served model."""

    @property
    def model_id(self) -> str:
        """The name clients ask for."""
        ...

    @property
    def created_unix_s(self) -> int:
        """When the model was loaded (Unix seconds)."""
        ...

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together that one request may use."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokenizer."""
        ...

    def health(self) -> ChainHealth:
        """The state now; cheap, called for every request."""
        ...

    def generate(
        self, request: GenerationRequest
    ) -> AbstractAsyncContextManager[TokenStream]:
        """Start a generation; leaving the context cancels what is left of it.

        Raises:
            NoFreeLaneError: On entering, when every lane is busy.
            StageFailureError: On entering, when the chain refuses or is lost.
        """
        ...
