"""Which path and method leads where, and what every answer has in common."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

import attrs
import trio

from skippyd.core.openai.errors import (
    ApiError,
    ApiRefusedError,
    method_not_allowed,
    model_not_found,
    route_not_found,
    unavailable,
    unsupported_media_type,
)
from skippyd.core.openai.json_body import parse_json_object
from skippyd.core.openai.requests import (
    AnswerFields,
    is_same_model,
    parse_chat_request,
    parse_completion_request,
)
from skippyd.core.openai.responses import json_bytes, model_document, model_list
from skippyd.core.openai.sse import error_events
from skippyd.frontend.generation import GenerationPlan, GenerationRunner
from skippyd.frontend.replies import error_response, reply_json, request_id_of
from skippyd.frontend.sinks import DocumentSink, EventSink, Route
from skippyd.units import KIB


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from skippyd.frontend.backend import ChainBackend
    from skippyd.frontend.prompts import PromptMaker
    from skippyd.frontend.sinks import AnswerSink
    from skippyd.net.http_exchange import Exchange
    from skippyd.net.http_values import HttpRequest


Parsed = TypeVar("Parsed")

logger = logging.getLogger(__name__)

# 1.5 MB of numbers take 17 ms: too long for the thread that moves tokens.
_PARSED_IN_THREAD_BYTES = 256 * KIB
_MODELS = "/v1/models"


@attrs.frozen
class Call:
    """One request on its way."""

    request: HttpRequest
    exchange: Exchange
    request_id: str


@attrs.define
class OpenAiRoutes:
    """The handler of the OpenAI server.

    Args:
        ping_every_s: A stream that is silent for so long gets a comment.
    """

    _backend: ChainBackend
    _prompts: PromptMaker = attrs.field(kw_only=True)
    _runner: GenerationRunner = attrs.field(kw_only=True)
    _ping_every_s: float = attrs.field(kw_only=True)

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        """Answer one request; refusals become OpenAI's error envelope."""
        call = Call(request, exchange, request_id_of(request))
        try:
            await self._dispatch(call)
        except ApiRefusedError as refused:
            await _tell(call, refused.error)

    async def _dispatch(self, call: Call) -> None:
        path, method = call.request.path, call.request.method
        answer, allowed = self._route(path)
        if answer is None:
            raise ApiRefusedError(route_not_found(path[:200]))
        if method not in allowed:
            error = method_not_allowed(method, path[:200], allowed[0])
            allow = ("allow", ", ".join(allowed))
            await call.exchange.respond(error_response(error, call.request_id, allow))
            return
        await answer(call)

    def _route(
        self, path: str
    ) -> tuple[Callable[[Call], Awaitable[None]] | None, tuple[str, ...]]:
        reading, writing = ("GET", "HEAD"), ("POST",)
        match path:
            case "/health" | "/healthz":
                return self._health, reading
            case "/v1/models":
                return self._models, reading
            case "/v1/chat/completions":
                return self._chat, writing
            case "/v1/completions":
                return self._completion, writing
            case _ if path.startswith(_MODELS + "/"):
                return self._model, reading
            case _:
                return None, ()

    async def _health(self, call: Call) -> None:
        health = self._backend.health()
        if health.status == "ok":
            await reply_json(call.exchange, b'{"status":"ok"}', call.request_id)
            return
        document = json_bytes(
            {"status": health.status, "stage": health.stage, "reason": health.reason}
        )
        await reply_json(call.exchange, document, call.request_id, status=503)

    async def _models(self, call: Call) -> None:
        await reply_json(
            call.exchange, model_list([self._model_document()]), call.request_id
        )

    async def _model(self, call: Call) -> None:
        self._check_model(unquote(call.request.path.removeprefix(_MODELS + "/")))
        body = json_bytes(self._model_document())
        await reply_json(call.exchange, body, call.request_id)

    async def _chat(self, call: Call) -> None:
        self._check_health()
        chat = await _parsed(call.request, parse_chat_request)
        self._check_model(chat.answer.model)
        sink = self._sink(call, "chat", chat.answer)
        tokens = await self._prompts.chat_tokens(chat.messages)
        plan = GenerationPlan(chat.answer, "chatcmpl", request_id=call.request_id)
        await self._runner.run(tokens, plan, sink)

    async def _completion(self, call: Call) -> None:
        self._check_health()
        completion = await _parsed(call.request, parse_completion_request)
        self._check_model(completion.answer.model)
        sink = self._sink(call, "completion", completion.answer)
        tokens = await self._prompts.completion_tokens(completion.prompt)
        plan = GenerationPlan(completion.answer, "cmpl", request_id=call.request_id)
        await self._runner.run(tokens, plan, sink)

    def _sink(self, call: Call, route: Route, fields: AnswerFields) -> AnswerSink:
        if not fields.stream:
            return DocumentSink(call.exchange, route, request_id=call.request_id)
        sink = EventSink(call.exchange, route, include_usage=fields.include_usage)
        sink.plan(call.request_id, ping_every_s=self._ping_every_s)
        return sink

    def _model_document(self) -> dict[str, object]:
        return model_document(self._backend.model_id, self._backend.created_unix_s)

    def _check_model(self, asked: str) -> None:
        served = self._backend.model_id
        if not is_same_model(asked, served):
            raise ApiRefusedError(model_not_found(asked[:200], served))

    def _check_health(self) -> None:
        health = self._backend.health()
        if health.status != "ok":
            place = "" if health.stage is None else f" at stage {health.stage}"
            message = f"the chain is {health.status}{place}: {health.reason}"
            raise ApiRefusedError(unavailable(message))


async def _parsed(
    request: HttpRequest, parse: Callable[[dict[str, object]], Parsed]
) -> Parsed:
    """The checked body.

    Raises:
        ApiRefusedError: What is wrong with it.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A page of another site can post plain text without asking; JSON it cannot.
        message = "the body must be JSON; send Content-Type: application/json"
        raise ApiRefusedError(unsupported_media_type(message))
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        message = f"Content-Encoding {coding[:64]!r} is not supported; send it plain"
        raise ApiRefusedError(unsupported_media_type(message))
    if len(request.body) > _PARSED_IN_THREAD_BYTES:
        return await trio.to_thread.run_sync(_parse_body, request.body, parse)
    return _parse_body(request.body, parse)


def _parse_body(body: bytes, parse: Callable[[dict[str, object]], Parsed]) -> Parsed:
    return parse(parse_json_object(body))


async def _tell(call: Call, error: ApiError) -> None:
    """Tell a client about an error: with its status, or in a stream that runs."""
    logger.info(
        "event=request_refused req=%s status=%d code=%s",
        call.request_id,
        error.status,
        error.code,
    )
    if call.exchange.is_begun:
        await call.exchange.write(error_events(error))
        await call.exchange.end_stream()
    else:
        await call.exchange.respond(error_response(error, call.request_id))
