"""The chain behind the OpenAI server: one request's tokens, produced by a lane.

Stage 0 drives the chain in the lane's own thread; trio only takes finished tokens. A
client that leaves cancels at the next token, the lane then stops its session and goes
back into the pool.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import secrets
import time
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import NS_PER_MS, span
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.errors import FailureCode, StageFailureError
from skippyd.frontend.backend import TokenBatch
from skippyd.frontend.lane_pool import (
    LANE_ONLY_CODES,
    LanePool,
    PooledLane,
    in_lane_thread,
)


if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from skippyd.frontend.backend import ChainHealth, FinishReason, GenerationRequest
    from skippyd.runtime.llama.vocabulary import LlamaVocabulary
    from skippyd.stage.driver import ChainDriver
    from skippyd.stage.node import StageNode

logger = logging.getLogger("skippyd.chain")

ENABLED = 1
SEED_BITS = 31  # never llama.cpp's "choose yourself"


class _CancelledRequest(Exception):  # noqa: N818 - a way out of the thread, not an error
    """The client left."""


@attrs.define(eq=False)
class LaneTokens:
    """Tokens of one request on their way from a lane's thread to trio.

    Args:
        seed: The seed that is really used.
    """

    seed: int
    asked_unix_ns: int = attrs.Factory(time.time_ns)
    _trio: trio.lowlevel.TrioToken = attrs.Factory(trio.lowlevel.current_trio_token)
    _tokens: collections.deque[int] = attrs.Factory(collections.deque)
    _finish: FinishReason | None = None
    _failure: StageFailureError | None = None
    _arrived: trio.Event = attrs.Factory(trio.Event)
    is_cancelled: bool = False
    is_over: bool = False

    async def next_batch(self) -> TokenBatch:
        """The next tokens, as soon as there is one.

        Raises:
            StageFailureError: The chain could not go on.
        """
        while not self._tokens and self._finish is None:
            if self._failure is not None:
                raise self._failure
            await self._arrived.wait()
            self._arrived = trio.Event()
        finish = self._finish  # read before the tokens: it is written after them
        tokens = tuple(self._tokens.popleft() for _ in range(len(self._tokens)))
        return TokenBatch(tokens, finish)

    def put(self, token: int, finish: FinishReason | None) -> None:
        """Hand a token over; from the lane's thread."""
        self._tokens.append(token)
        self._finish = finish
        self._notify()

    def fail(self, failure: StageFailureError) -> None:
        """Hand the reason over why there will be no more; from the lane's thread."""
        self._failure = failure
        self._notify()

    def check(self) -> None:
        """Leave the lane's thread when the client has left."""
        if self.is_cancelled:
            raise _CancelledRequest

    def _notify(self) -> None:
        # Trio may be gone already when a thread outlives a shutdown by a moment.
        with contextlib.suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(self._wake)

    def _wake(self) -> None:
        self._arrived.set()


@attrs.define(eq=False, kw_only=True)
class ServedChain:
    """The chain as the OpenAI server sees it.

    Args:
        node: Stage 0.
        pool: Its lanes.
        vocabulary: The model's tokenizer.
        model_id: The name clients ask for.
        created_unix_s: When the model was loaded.
    """

    node: StageNode
    pool: LanePool
    vocabulary: LlamaVocabulary
    model_id: str
    created_unix_s: int

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together that one request may use."""
        return self.node.config.ctx_size

    def health(self) -> ChainHealth:
        """The state now."""
        return self.pool.health

    @contextlib.asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncIterator[LaneTokens]:
        """Start a generation; leaving the block cancels what is left of it.

        Raises:
            NoFreeLaneError: Every lane is busy.
            StageFailureError: The chain is not serving.
        """
        health = self.pool.health
        if health.status != "ok":
            raise StageFailureError(
                FailureCode.STAGE_LOST, health.stage or 0, health.reason
            )
        pooled = self.pool.lease()
        chosen = request.sampling.seed
        tokens = LaneTokens(secrets.randbits(SEED_BITS) if chosen is None else chosen)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._produce, pooled, request, tokens)
            try:
                yield tokens
            finally:
                tokens.is_cancelled = True
                if not tokens.is_over:  # else the lane is somebody else's already
                    pooled.lane.signal.cancel()

    async def _produce(
        self, pooled: PooledLane, request: GenerationRequest, tokens: LaneTokens
    ) -> None:
        # The lane ends by itself when cancelled, within the deadline for that; only
        # then is it known whether it may serve again.
        with trio.CancelScope(shield=True):
            failure = await self._drive_in_thread(pooled, request, tokens)
        tokens.is_over = True
        if failure is None:
            self.pool.give_back(pooled)
            return
        self.pool.retire(pooled, failure)
        tokens.fail(failure)

    async def _drive_in_thread(
        self, pooled: PooledLane, request: GenerationRequest, tokens: LaneTokens
    ) -> StageFailureError | None:
        try:
            await in_lane_thread(
                pooled, lambda lane: self._drive(lane, request, tokens)
            )
        except StageFailureError as failure:
            return failure
        except Exception as error:  # the guard of one request: others go on
            logger.exception("a generation ended by a defect")
            return StageFailureError(
                FailureCode.INTERNAL, self.node.index, f"internal error: {error!r}"
            )
        return None

    def _drive(
        self, pooled: PooledLane, request: GenerationRequest, tokens: LaneTokens
    ) -> None:
        """Prefill, decode, stop; in the lane's thread."""
        self._tell_admitted(tokens)
        driver = pooled.driver()
        try:
            token, finish = self._generate(driver, request, tokens)
        except _CancelledRequest:
            driver.stop()
            return
        except StageFailureError as failure:
            if not self._is_own_refusal(failure):
                raise
            driver.abandon(pooled.transport)
            tokens.fail(failure)
            return
        # The last token comes after the lane is free: whoever has read the whole
        # answer may ask again at once.
        driver.stop()
        tokens.put(token, finish)

    def _tell_admitted(self, tokens: LaneTokens) -> None:
        """Leave a span of the wait between the wish and its lane's first step."""
        now_ns = time.time_ns()
        waited_ms = max(0, now_ns - tokens.asked_unix_ns) / NS_PER_MS
        attributes: dict[Attribute, str | float] = {
            Attribute.STAGE_ID: self.node.config.stage_id,
            Attribute.QUEUE_WAIT_MS: waited_ms,
        }
        name = SpanName.OPENAI_GENERATION_ADMIT
        self.node.spans.record(span(name, tokens.asked_unix_ns, now_ns, attributes))

    def _is_own_refusal(self, failure: StageFailureError) -> bool:
        """Whether stage 0's own engine refused, before anything went downstream."""
        is_own = failure.stage_index == self.node.index
        return is_own and failure.code in LANE_ONLY_CODES - {FailureCode.CANCELLED}

    def _generate(
        self, driver: ChainDriver, request: GenerationRequest, tokens: LaneTokens
    ) -> tuple[int, FinishReason]:
        """Hand over all tokens but the last, which is returned with the reason."""
        *prompt, token = request.prompt_tokens
        driver.prefill(prompt, before_chunk=tokens.check)
        tokens.check()
        driver.configure(_block(request, tokens.seed))
        for step in range(1, request.max_tokens + 1):
            token = driver.decode(token)
            if self.vocabulary.is_end(token):
                return token, "stop"
            if step == request.max_tokens:
                break
            tokens.put(token, None)
            tokens.check()
        return token, "length"


def _block(request: GenerationRequest, seed: int) -> SamplingBlock:
    choice = request.sampling
    return SamplingBlock(
        flags=ENABLED,
        seed=seed,
        temperature=choice.temperature,
        top_p=choice.top_p,
        top_k=choice.top_k,
        min_p=choice.min_p,
    )
