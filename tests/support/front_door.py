"""A front door under test: its routes, and a first stage that does as it is told."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.ports import Route
from skippyd.coordination.route import RouteTable
from skippyd.frontend.door import DoorPaces, serve_door
from skippyd.ids import NodeId, RunId
from skippyd.net.http_values import HttpResponse
from support.http_client import RunningServer, open_listener, port_of
from support.openai_bodies import MODEL


if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from skippyd.frontend.door_keys import DoorKeys
    from skippyd.net.http_exchange import Exchange
    from skippyd.net.http_server import HttpServer
    from skippyd.net.http_values import HttpRequest

A, B = NodeId("a"), NodeId("b")


@attrs.define
class Losses:
    """Why nodes are not available, as the control connections would know."""

    reasons: dict[NodeId, str] = attrs.Factory(dict)

    def __call__(self, node_id: NodeId) -> str | None:
        return self.reasons.get(node_id)


def route_to(port: int, model: str = MODEL, *, term: int = 1) -> Route:
    return Route(
        model_id=model,
        run_id=RunId(f"run-{term}"),
        term=term,
        coordinator_id=B,
        openai_base_url=f"http://127.0.0.1:{port}/v1",
    )


def table(*routes: Route, losses: Losses | None = None) -> RouteTable:
    made = RouteTable(A, losses or Losses())
    for route in routes:
        made.hear(B, route, route.model_id)
    return made


@asynccontextmanager
async def running_door(
    routes: RouteTable,
    *,
    keys: DoorKeys | None = None,
    paces: DoorPaces | None = None,
) -> AsyncIterator[RunningServer]:
    listener = await open_listener()
    async with trio.open_nursery() as nursery:
        server: HttpServer = await nursery.start(
            partial(
                serve_door,
                [listener],
                routes,
                created_unix_s=1_700_000_000,
                keys=keys,
                paces=paces,
            )
        )
        running = RunningServer(server, port_of(listener), nursery)
        try:
            yield running
        finally:
            running.close_clients()
            nursery.cancel_scope.cancel()


@attrs.define
class Upstream:
    """A first stage that sends a begun stream and then does what a test wants."""

    go: trio.Event = attrs.Factory(trio.Event)
    got: list[HttpRequest] = attrs.Factory(list)
    is_gone: trio.Event = attrs.Factory(trio.Event)

    health: int = 503
    health_count: int = 0
    asked_often: trio.Event = attrs.Factory(trio.Event)

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        if request.path == "/health":
            self.health_count += 1
            if self.health_count == 5:
                self.asked_often.set()
            await exchange.respond(HttpResponse(self.health, b"{}"))
            return
        self.got.append(request)
        exchange.plan_stream(
            (("content-type", "text/event-stream"),), ping=b": p\n\n", ping_every_s=600
        )
        try:
            await exchange.write(b'data: {"choices":[]}\n\n')
            await self.go.wait()
            await exchange.write(b"data: [DONE]\n\n")
            await exchange.end_stream()
        finally:
            self.is_gone.set()
