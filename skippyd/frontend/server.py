"""The OpenAI server of one model: everything put together, from start to drained."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

from skippyd.frontend.chat_template import open_worker_renderer
from skippyd.frontend.generation import AnswerIds, GenerationRunner
from skippyd.frontend.prompts import PromptMaker
from skippyd.frontend.replies import refusal_shape
from skippyd.frontend.routes import OpenAiRoutes
from skippyd.net.http_server import HttpServer, serve_http
from skippyd.net.http_values import HttpLimits


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skippyd.core.telemetry.span import Span
    from skippyd.frontend.backend import ChainBackend
    from skippyd.frontend.chat_template import TemplateRenderer


# The public server's backend timeout (skippy-facts 5.3), here for each silence of
# the chain: a long answer that makes progress is not cut.
TOKEN_DEADLINE_S = 600.0
PING_EVERY_S = 15.0


def wall_unix_ms() -> int:
    """The wall clock, for ids and `created`."""
    return time.time_ns() // 1_000_000


async def serve_openai(
    listeners: Sequence[trio.SocketListener],
    backend: ChainBackend,
    *,
    limits: HttpLimits | None = None,
    renderer: TemplateRenderer | None = None,
    clock_unix_ms: Callable[[], int] = wall_unix_ms,
    token_deadline_s: float = TOKEN_DEADLINE_S,
    ping_every_s: float = PING_EVERY_S,
    record: Callable[[Span], None] = lambda _span: None,
    task_status: trio.TaskStatus[HttpServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the OpenAI surface until drained or cancelled.

    Start it with `nursery.start`: the server handle comes back once it accepts;
    its `begin_drain` lets running answers finish, up to `limits.drain_s`.

    Args:
        listeners: Bound TCP listeners; closed at the end.
        backend: The chain.
        limits: What clients may cost; None takes the defaults.
        renderer: Renders chat templates; None starts a worker process that ends
            with the server.
        clock_unix_ms: The wall clock.
        token_deadline_s: Longest silence of the chain before a request is given up.
        ping_every_s: A stream silent for so long gets a comment.
        record: Takes a span of each answer.
        task_status: Gets the server.
    """
    chosen = HttpLimits() if limits is None else limits

    async def serve_with(renderer: TemplateRenderer) -> None:
        routes = OpenAiRoutes(
            backend,
            prompts=PromptMaker(backend, renderer),
            runner=GenerationRunner(
                backend,
                AnswerIds(clock_unix_ms),
                token_deadline_s=token_deadline_s,
                record=record,
            ),
            ping_every_s=ping_every_s,
        )
        await serve_http(
            listeners,
            routes,
            chosen,
            refusal_shape=refusal_shape,
            task_status=task_status,
        )

    if renderer is not None:
        await serve_with(renderer)
        return
    async with open_worker_renderer() as worker:
        await serve_with(worker)
