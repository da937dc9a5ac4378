"""The front door: one OpenAI address on any node that follows the published route.

A request goes to the first stage of its model's chain and the answer comes back piece
by piece as it is made. What is not published is answered 503 with the reason; a first
stage that goes away ends its requests with an error that names it, in the stream when
that has begun.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

import attrs
import trio

from skippyd.core.openai.errors import (
    ApiError,
    ApiRefusedError,
    from_failure,
    method_not_allowed,
    model_not_found,
    route_not_found,
    timed_out,
    unavailable,
)
from skippyd.core.openai.requests import is_same_model
from skippyd.core.openai.responses import json_bytes, model_document, model_list
from skippyd.core.openai.sse import PING, error_events
from skippyd.errors import FailureCode
from skippyd.frontend.door_bodies import model_of, reason_in
from skippyd.frontend.door_measuring import PassageMeter
from skippyd.frontend.door_upstream import (
    UpstreamExchange,
    UpstreamLostError,
    UpstreamUnreachableError,
    open_upstream,
)
from skippyd.frontend.replies import (
    error_response,
    id_header,
    refusal_shape,
    reply_json,
    request_id_of,
)
from skippyd.net.http_server import HttpServer, serve_http
from skippyd.net.http_values import HttpLimits, HttpResponse, PeerGoneError
from skippyd.units import KIB, MIB


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skippyd.core.telemetry.span import Span
    from skippyd.frontend.door_keys import DoorKeys
    from skippyd.frontend.door_routes import DoorRoute, DoorRoutes
    from skippyd.net.http_exchange import Exchange
    from skippyd.net.http_values import HttpRequest

logger = logging.getLogger(__name__)

PING_EVERY_S = 20.0
"""Longer than a first stage's own: the door speaks only when that one does not."""

SILENCE_S = 630.0
"""A little longer than a first stage waits for its chain, which then says so itself."""

LOST_SILENCE_S = 2.0
LOOK_S = 0.5
ANSWER_MAX_BYTES = 32 * MIB
_HTTP_OK = 200
_MODELS = "/v1/models"
_GENERATIONS = ("/v1/chat/completions", "/v1/completions")
_SENT_HEADERS = ("content-type", "content-encoding", "accept")
_KEPT_HEADERS = ("content-type", "cache-control", "retry-after", "allow")


@attrs.define(kw_only=True)
class DoorPaces:
    """How long the door waits, in seconds."""

    ping_every_s: float = PING_EVERY_S
    silence_s: float = SILENCE_S
    lost_silence_s: float = LOST_SILENCE_S
    look_s: float = LOOK_S


@attrs.define
class _Passage:
    """One request on its way through the door."""

    request: HttpRequest
    exchange: Exchange
    request_id: str
    heard_s: float = attrs.field(factory=trio.current_time)
    failure: Exception | None = None
    meter: PassageMeter = attrs.Factory(PassageMeter)


@attrs.define
class Door:
    """The handler of the front door.

    Args:
        created_unix_s: Said of every model: when this door opened.
        keys: Who may come in; None on loopback only.
        record: Told of each request that was passed on.
    """

    _routes: DoorRoutes
    created_unix_s: int
    keys: DoorKeys | None = None
    paces: DoorPaces = attrs.Factory(DoorPaces)
    record: Callable[[Span], None] = lambda _span: None

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        """Answer one request; refusals become OpenAI's error envelope."""
        passage = _Passage(request, exchange, request_id_of(request))
        try:
            await self._dispatch(passage)
        except _WrongMethodError as refused:
            await _tell(passage, refused.error, *refused.headers)
        except ApiRefusedError as refused:
            await _tell(passage, refused.error)

    async def _dispatch(self, passage: _Passage) -> None:
        path, method = passage.request.path, passage.request.method
        if path in {"/health", "/healthz"}:
            _check_method(method, path, "GET", "HEAD")
            await self._health(passage)
            return
        self._check_key(passage.request)
        if path in _GENERATIONS:
            _check_method(method, path, "POST")
            await self._pass_on(passage)
        elif path == _MODELS or path.startswith(_MODELS + "/"):
            _check_method(method, path, "GET", "HEAD")
            await self._models(passage)
        else:
            raise ApiRefusedError(route_not_found(path[:200]))

    def _check_key(self, request: HttpRequest) -> None:
        given = request.headers.get("authorization")
        if self.keys is not None and not self.keys.admits(given):
            raise ApiRefusedError(
                ApiError(
                    401,
                    "invalid_request_error",
                    code="invalid_api_key",
                    message="no valid API key; send Authorization: Bearer KEY",
                )
            )

    async def _health(self, passage: _Passage) -> None:
        """Say that all is well when every published chain says so itself."""
        routes = self._routes.published()
        if not routes:
            reason = self._routes.closed_reason()
            await _reply_unhealthy(passage, "loading", None, reason)
            return
        for route in routes:
            health = await self._chain_health(route)
            if health is not None:
                await _reply_unhealthy(passage, "degraded", 0, health)
                return
        await reply_json(passage.exchange, b'{"status":"ok"}', passage.request_id)

    async def _chain_health(self, route: DoorRoute) -> str | None:
        """Why a chain is not well; None when it is."""
        try:
            upstream = await open_upstream(
                route.openai_base_url, method="GET", target="/health", headers={}
            )
            try:
                with trio.fail_after(self.paces.lost_silence_s):
                    head = await upstream.read_head()
                    body = await upstream.read_body(64 * KIB)
            finally:
                await upstream.aclose()
        except (UpstreamUnreachableError, UpstreamLostError) as error:
            return f"{_place(route)}: {error}"
        except trio.TooSlowError:
            return f"{_place(route)} does not answer"
        if head.status == _HTTP_OK:
            return None
        return f"{_place(route)}: {reason_in(body)}"

    async def _models(self, passage: _Passage) -> None:
        documents = {
            route.model_id: model_document(route.model_id, self.created_unix_s)
            for route in self._routes.published()
        }
        asked = passage.request.path.removeprefix(_MODELS).removeprefix("/")
        if not asked:
            body = model_list(list(documents.values()))
        else:
            body = json_bytes(documents[self._route_for(unquote(asked)).model_id])
        await reply_json(passage.exchange, body, passage.request_id)

    # A generation.

    async def _pass_on(self, passage: _Passage) -> None:
        route = self._route_for(await model_of(passage.request.body))
        with self._routes.using(route.run_id):
            upstream = await self._opened(passage, route)
            try:
                await self._relay_watched(passage, route, upstream)
            finally:
                await upstream.aclose()
        is_lost = passage.failure is not None
        self.record(passage.meter.ended(route, is_lost=is_lost))
        if passage.failure is not None:
            raise passage.failure

    def _route_for(self, asked: str | None) -> DoorRoute:
        routes = self._routes.published()
        if not routes:
            raise ApiRefusedError(unavailable(self._routes.closed_reason(asked)))
        if asked is None and len(routes) == 1:
            # Its first stage says best what is wrong with the request.
            return routes[0]
        for route in routes:
            if asked is not None and is_same_model(asked, route.model_id):
                return route
        reason = None if asked is None else self._routes.waiting_reason(asked)
        if reason is not None:
            raise ApiRefusedError(unavailable(f"{asked} is not served now: {reason}"))
        served = ", ".join(route.model_id for route in routes)
        raise ApiRefusedError(model_not_found((asked or "")[:200], served))

    async def _opened(self, passage: _Passage, route: DoorRoute) -> UpstreamExchange:
        request = passage.request
        headers = {k: request.headers[k] for k in _SENT_HEADERS if k in request.headers}
        try:
            return await open_upstream(
                route.openai_base_url,
                method=request.method,
                target=request.path,
                headers=headers | {"x-request-id": passage.request_id},
                body=request.body,
            )
        except UpstreamUnreachableError as error:
            # Nothing was done yet: trying again is safe.
            message = f"{_place(route)} cannot be reached: {error}"
            raise ApiRefusedError(unavailable(message)) from error

    async def _relay_watched(
        self, passage: _Passage, route: DoorRoute, upstream: UpstreamExchange
    ) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, passage, route, nursery.cancel_scope)
            try:
                await self._relay(passage, upstream)
            except UpstreamLostError as error:
                passage.failure = _lost(route, str(error))
            except PeerGoneError as error:
                passage.failure = error
            nursery.cancel_scope.cancel()

    async def _relay(self, passage: _Passage, upstream: UpstreamExchange) -> None:
        head = await upstream.read_head()
        passage.meter.begun(head.status)
        kept = [(k, head.headers[k]) for k in _KEPT_HEADERS if k in head.headers]
        headers = (*kept, id_header(passage.request_id))
        if head.status != _HTTP_OK or not head.is_stream:
            body = await upstream.read_body(ANSWER_MAX_BYTES)
            passage.meter.answer(body)
            response = HttpResponse(head.status, body, headers)
            await passage.exchange.respond(response)
            return
        passage.exchange.plan_stream(
            headers, ping=PING, ping_every_s=self.paces.ping_every_s
        )
        while piece := await upstream.read_piece():
            passage.heard_s = trio.current_time()
            await passage.exchange.write(piece)
            passage.meter.piece(piece)
        await passage.exchange.end_stream()

    async def _watch(
        self, passage: _Passage, route: DoorRoute, scope: trio.CancelScope
    ) -> None:
        """End a request whose first stage is lost, or silent for too long."""
        while True:
            await trio.sleep(self.paces.look_s)
            silent_s = trio.current_time() - passage.heard_s
            if silent_s >= self.paces.silence_s:
                message = f"{_place(route)} said nothing for {silent_s:.0f} s"
                passage.failure = ApiRefusedError(timed_out(message))
                break
            reason = self._routes.lost_reason(route.coordinator_id)
            if reason is None or silent_s < self.paces.lost_silence_s:
                continue
            # Its coordinator cannot be heard; its chain may answer all the same.
            if await self._chain_health(route) is None:
                await trio.sleep(self.paces.lost_silence_s)
                continue
            passage.failure = _lost(route, reason)
            break
        scope.cancel()


async def serve_door(
    listeners: Sequence[trio.SocketListener],
    routes: DoorRoutes,
    *,
    created_unix_s: int,
    keys: DoorKeys | None = None,
    limits: HttpLimits | None = None,
    paces: DoorPaces | None = None,
    record: Callable[[Span], None] = lambda _span: None,
    task_status: trio.TaskStatus[HttpServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the front door until drained or cancelled; start it with `nursery.start`.

    `check_door_bind` says beforehand whether an address needs keys.

    Args:
        listeners: Bound TCP listeners; closed at the end.
        routes: What is published.
        created_unix_s: The wall clock now, said of every model.
        keys: Who may come in; None on loopback only.
        limits: What clients may cost; None takes the defaults.
        paces: How long it waits; None takes the defaults.
        record: Told of each request that was passed on.
        task_status: Gets the server.
    """
    door = Door(routes, created_unix_s, keys, paces or DoorPaces(), record)
    await serve_http(
        listeners,
        door,
        limits or HttpLimits(),
        refusal_shape=refusal_shape,
        task_status=task_status,
    )


class _WrongMethodError(ApiRefusedError):
    """A known path with another method; carries those that are right."""

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        super().__init__(method_not_allowed(method, path[:200], allowed[0]))
        self.headers = (("allow", ", ".join(allowed)),)


def _check_method(method: str, path: str, *allowed: str) -> None:
    if method not in allowed:
        raise _WrongMethodError(method, path, allowed)


def _lost(route: DoorRoute, reason: str) -> ApiRefusedError:
    lost = from_failure(FailureCode.STAGE_LOST, 0, f"{_place(route)}: {reason}")
    return ApiRefusedError(lost)


def _place(route: DoorRoute) -> str:
    return f"the first stage of {route.model_id} on node {route.coordinator_id[:12]}"


async def _reply_unhealthy(
    passage: _Passage, status: str, stage: int | None, reason: str
) -> None:
    body = json_bytes({"status": status, "stage": stage, "reason": reason})
    await reply_json(passage.exchange, body, passage.request_id, status=503)


async def _tell(passage: _Passage, error: ApiError, *headers: tuple[str, str]) -> None:
    """Tell a client about an error: with its status, or in a stream that runs."""
    logger.info(
        "event=door_refused req=%s status=%d code=%s reason=%r",
        passage.request_id,
        error.status,
        error.code,
        error.message,
    )
    if passage.exchange.is_begun:
        await passage.exchange.write(error_events(error))
        await passage.exchange.end_stream()
        return
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers = (("www-authenticate", "Bearer"),)
    response = error_response(error, passage.request_id, *headers)
    await passage.exchange.respond(response)
