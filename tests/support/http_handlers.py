"""Handlers for tests of the HTTP server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.net.http_values import HttpRequest, HttpResponse


if TYPE_CHECKING:
    from skippyd.net.http_exchange import Exchange


async def echo(request: HttpRequest, exchange: Exchange) -> None:
    text = f"{request.method} {request.path} {len(request.body)}"
    await exchange.respond(HttpResponse(200, text.encode()))


@attrs.define
class Waiting:
    """A handler that never answers; tells when it began and how it ended."""

    begun: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        self.begun.set()
        try:
            await trio.sleep_forever()
        finally:
            self.ended.set()


@attrs.define
class Flooding:
    """A handler that writes a stream without end."""

    ended: trio.Event = attrs.field(factory=trio.Event)
    written_bytes: int = 0

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        exchange.plan_stream((), ping=b".", ping_every_s=60)
        try:
            while True:
                await exchange.write(b"x" * 1024)
                self.written_bytes += 1024
                await trio.lowlevel.checkpoint()
        finally:
            self.ended.set()
