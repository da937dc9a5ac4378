"""The life of one generation: prompt tokens in, an answer into its sink."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.core.generation.answer import Answer
from skippyd.core.generation.limits import PromptTooLong, answer_limit
from skippyd.core.openai.errors import (
    ApiRefusedError,
    context_exceeded,
    from_failure,
    rate_limited,
    timed_out,
)
from skippyd.core.openai.responses import AnswerHead, Usage
from skippyd.core.telemetry.answer_times import AnswerTimes
from skippyd.errors import StageFailureError
from skippyd.frontend.backend import (
    ChainBackend,
    GenerationRequest,
    NoFreeLaneError,
    SamplingChoice,
)
from skippyd.net.http_values import PeerGoneError


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.openai.requests import AnswerFields
    from skippyd.core.telemetry.span import Span
    from skippyd.frontend.backend import TokenBatch, TokenStream, Vocabulary
    from skippyd.frontend.sinks import AnswerSink


logger = logging.getLogger(__name__)

DONE = 200
CLIENT_GONE = 499
"""Not a status of HTTP: nobody was left to be told one."""


@attrs.define
class AnswerIds:
    """Ids of answers: the wall clock's milliseconds, never one twice."""

    _wall_unix_ms: Callable[[], int]
    _last_ms: int = attrs.field(default=0, init=False)

    def next_id(self, prefix: str) -> tuple[str, int]:
        """A new id and its time in Unix seconds."""
        self._last_ms = max(self._wall_unix_ms(), self._last_ms + 1)
        return f"{prefix}-{self._last_ms}", self._last_ms // 1000


@attrs.frozen
class GenerationPlan:
    """What one answer needs besides its prompt.

    Args:
        fields: The client's wishes.
        id_prefix: `chatcmpl` or `cmpl`.
        request_id: For the log.
    """

    fields: AnswerFields
    id_prefix: str
    request_id: str = attrs.field(kw_only=True)


@attrs.define
class GenerationRunner:
    """Runs generations on one backend.

    Args:
        token_deadline_s: Longest silence of the chain before it is given up.
        record: Takes a summary of each answer.
    """

    _backend: ChainBackend
    _ids: AnswerIds
    _token_deadline_s: float = attrs.field(kw_only=True)
    _record: Callable[[Span], None] = attrs.field(
        default=lambda _span: None, kw_only=True
    )

    async def run(
        self, prompt_tokens: tuple[int, ...], plan: GenerationPlan, sink: AnswerSink
    ) -> None:
        """Generate one answer into the sink.

        Raises:
            ApiRefusedError: What the client is told.
            PeerGoneError: The client left; the generation was cancelled.
        """
        times = AnswerTimes(time.time_ns(), prompt_tokens=len(prompt_tokens))
        try:
            await self._run(prompt_tokens, plan, sink, times)
        except ApiRefusedError as refused:
            times.status = refused.error.status
            raise
        except PeerGoneError:
            times.status = CLIENT_GONE
            raise
        finally:
            self._record(times.summary(time.time_ns()))

    async def _run(
        self,
        prompt_tokens: tuple[int, ...],
        plan: GenerationPlan,
        sink: AnswerSink,
        times: AnswerTimes,
    ) -> None:
        request = self._request(prompt_tokens, plan.fields)
        answer = Answer(request.max_tokens, plan.fields.stops)
        try:
            await self._generate(request, answer, plan, sink, times)
        finally:
            times.completion_tokens = answer.completion_tokens
        assert answer.finish_reason is not None
        usage = Usage(len(prompt_tokens), answer.completion_tokens)
        logger.info(
            "event=answer_done req=%s prompt_tokens=%d completion_tokens=%d finish=%s",
            plan.request_id,
            usage.prompt_tokens,
            usage.completion_tokens,
            answer.finish_reason,
        )
        await sink.finish(answer.finish_reason, usage)
        times.status = DONE

    def _request(
        self, prompt_tokens: tuple[int, ...], fields: AnswerFields
    ) -> GenerationRequest:
        limit = answer_limit(
            fields.max_tokens,
            prompt_tokens=len(prompt_tokens),
            context_length=self._backend.context_length,
        )
        if isinstance(limit, PromptTooLong):
            raise ApiRefusedError(context_exceeded(limit.message))
        sampling = SamplingChoice(
            fields.sampling.temperature,
            fields.sampling.top_p,
            top_k=fields.sampling.top_k,
            min_p=fields.sampling.min_p,
            seed=fields.sampling.seed,
        )
        return GenerationRequest(prompt_tokens, limit, sampling=sampling)

    async def _generate(
        self,
        request: GenerationRequest,
        answer: Answer,
        plan: GenerationPlan,
        sink: AnswerSink,
        times: AnswerTimes,
    ) -> None:
        failure: StageFailureError | trio.TooSlowError | PeerGoneError | None = None
        try:
            async with self._backend.generate(request) as stream:
                # Errors are carried out by hand: a nursery inside the backend's
                # context would wrap them on their way.
                try:
                    sink.begin(self._head(plan, stream.seed))
                    await self._pump(stream, answer, sink, times)
                except (
                    StageFailureError,
                    trio.TooSlowError,
                    PeerGoneError,
                ) as error:
                    failure = error
        except NoFreeLaneError as error:
            raise ApiRefusedError(rate_limited(str(error))) from error
        except StageFailureError as error:
            if answer.finish_reason is not None:
                # The answer is complete; only giving the lane back went wrong.
                logger.warning(
                    "event=lane_lost req=%s cause=%r", plan.request_id, str(error)
                )
                return
            failure = error
        if failure is not None:
            self._raise_failure(failure, plan)

    async def _pump(
        self,
        stream: TokenStream,
        answer: Answer,
        sink: AnswerSink,
        times: AnswerTimes,
    ) -> None:
        vocabulary = self._backend.vocabulary
        # One scope for the whole answer: opening one a token costs more than
        # everything else that is done for it here.
        with trio.CancelScope() as silence:
            while answer.finish_reason is None:
                silence.deadline = trio.current_time() + self._token_deadline_s
                batch = await stream.next_batch()
                times.came(time.time_ns())
                await sink.show(texts_of(batch, answer, vocabulary))
        if silence.cancelled_caught:
            raise trio.TooSlowError

    def _head(self, plan: GenerationPlan, seed: int) -> AnswerHead:
        answer_id, created_unix_s = self._ids.next_id(plan.id_prefix)
        model = self._backend.model_id
        return AnswerHead(answer_id, created_unix_s, model=model, seed=seed)

    def _raise_failure(
        self,
        failure: StageFailureError | trio.TooSlowError | PeerGoneError,
        plan: GenerationPlan,
    ) -> None:
        logger.warning(
            "event=answer_failed req=%s cause=%r", plan.request_id, str(failure)
        )
        match failure:
            case StageFailureError(code=code, stage_index=stage_index):
                error = from_failure(code, stage_index, failure.message)
                raise ApiRefusedError(error) from failure
            case trio.TooSlowError():
                error = timed_out(
                    f"the chain gave no token for {self._token_deadline_s:g} s"
                )
                raise ApiRefusedError(error) from failure
            case PeerGoneError():
                raise failure


def texts_of(batch: TokenBatch, answer: Answer, vocabulary: Vocabulary) -> list[str]:
    """Feed a batch to the answer; the texts to show now, one item a token."""
    texts: list[str] = []
    for token in batch.tokens:
        if vocabulary.is_end(token):
            texts.append(answer.offer_end_token())
        else:
            texts.append(answer.offer_token(vocabulary.piece(token)))
    if batch.finish is not None:
        texts.append(answer.end(batch.finish))
    return [text for text in texts if text]
