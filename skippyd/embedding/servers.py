"""Managed servers: a stage in its chain, OpenAI for a whole model, diagnostics.

Each `start_*` owns a nursery of the listener, the lanes and, at stage 0, the OpenAI
server and the keeper of its lanes. Stopping goes the other way round: the OpenAI
server drains, then lanes are interrupted, then the runtime that was loaded here is
closed. The HTTP side is imported where it is started: most stages serve none.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.config.endpoints import Endpoint
from skippyd.embedding.runtime import SkippyRuntimeHandle
from skippyd.errors import ConfigError
from skippyd.stage.node import StageNode
from skippyd.stage.service import listen_on, serve_lanes


if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Awaitable, Callable

    from skippyd.config.stage import StageConfig
    from skippyd.config.topology import StageTopology
    from skippyd.embedding.options import (
        BinaryStageOptions,
        EmbeddedOpenAiArgs,
        StageHttpOptions,
    )
    from skippyd.embedding.runtime import EmbeddedRuntimeStatus
    from skippyd.frontend.backend import ChainHealth
    from skippyd.frontend.chain import ServedChain
    from skippyd.frontend.lane_pool import LanePool
    from skippyd.net.http_server import HttpServer
    from skippyd.stage.activity import StageActivity
    from skippyd.stage.span_outbox import SpanBatch

DRAIN_SECONDS = 10.0


@attrs.frozen(kw_only=True)
class EmbeddedServerStatus:
    """A snapshot of a running server.

    Args:
        runtime: What it has loaded.
        lanes: Lanes that are open: of upstreams, and stage 0's own.
        messages: Messages handled since start.
        busy_lanes: Requests that are being answered over OpenAI.
        idle_lanes: Stage 0's own lanes that wait for a request.
        open_returns: Prediction returns that are bound to a request, or waited for.
        health: The chain's light, when it serves OpenAI.
    """

    runtime: EmbeddedRuntimeStatus
    lanes: int
    messages: int
    busy_lanes: int
    idle_lanes: int
    open_returns: int
    health: ChainHealth | None


@attrs.define(eq=False, kw_only=True)
class EmbeddedServerHandle:
    """A server that runs; `shutdown` ends it and waits.

    Args:
        runtime: What it serves.
        bind_addr: Where it listens for stages, or for diagnostics.
        openai_bind_addr: Where it listens for OpenAI clients, if it does.
    """

    runtime: SkippyRuntimeHandle
    bind_addr: Endpoint
    openai_bind_addr: Endpoint | None = None
    _node: StageNode
    _pool: LanePool | None = None
    _http: HttpServer | None = None
    _http_ended: trio.Event = attrs.Factory(trio.Event)
    _scope: trio.CancelScope
    _ended: trio.Event
    _owns_runtime: bool

    @property
    def openai_base_url(self) -> str | None:
        """What OpenAI clients take as their base URL."""
        if self.openai_bind_addr is None:
            return None
        return f"http://{self.openai_bind_addr}/v1"

    def status(self) -> EmbeddedServerStatus:
        """What it does now; never waits for a running batch."""
        return EmbeddedServerStatus(
            runtime=self.runtime.status(),
            lanes=self._node.open_lanes,
            messages=self._node.messages,
            busy_lanes=0 if self._pool is None else self._pool.leased_count,
            idle_lanes=0 if self._pool is None else self._pool.idle_count,
            open_returns=len(self._node.sinks) + len(self._node.waiters),
            health=None if self._pool is None else self._pool.health,
        )

    def activity(self) -> StageActivity:
        """What its lanes and sessions are at; never waits for a running batch."""
        return self._node.board.activity()

    def take_spans(self) -> SpanBatch:
        """Take out spans that were measured and not yet taken, a bounded number."""
        return self._node.spans.take()

    async def shutdown(self, *, drain_s: float = DRAIN_SECONDS) -> None:
        """Let running answers finish, then end the server and wait for it.

        Args:
            drain_s: How long running answers may take.
        """
        if self._http is not None:
            self._http.begin_drain()
            with trio.move_on_after(drain_s):
                await self._http_ended.wait()
        self._scope.cancel()
        if self._owns_runtime:
            self.runtime.runtime.abort()  # lanes do not wait for a long batch
        await self._ended.wait()


@attrs.define
class _Serving:
    """The life of one server: its scope, and the word that it has ended."""

    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    ended: trio.Event = attrs.Factory(trio.Event)

    @contextlib.asynccontextmanager
    async def nursery(self) -> AsyncIterator[trio.Nursery]:
        """A nursery that the handle's `shutdown` cancels."""
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    yield nursery
        finally:
            self.ended.set()


async def start_binary_stage(
    options: BinaryStageOptions,
    *,
    task_status: trio.TaskStatus[EmbeddedServerHandle] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one stage of a chain; start it with `nursery.start`.

    The port is bound before the model is loaded, so that a taken one is said at once.

    Raises:
        BindError: The address cannot be listened on.
        ConfigError, ModelError, RefusedError: The stage cannot be loaded.
    """
    config = options.config
    if options.openai is not None and config.stage_index != 0:
        raise ConfigError(
            f"{config.stage_id} is stage {config.stage_index}: only stage 0 serves "
            "OpenAI; give --openai-bind-addr there"
        )
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(
            options.listener or listen_on(config.bind_addr)
        )
        web = _openai_listener(options.openai, sockets)
        async with _runtime_of(options) as runtime:
            node = StageNode(
                config=attrs.evolve(config, bind_addr=_bound(listener)),
                runtime=runtime.runtime,
                topology=options.topology,
                timings=options.timings,
                flow=options.flow,
            )
            serving = _Serving()
            async with serving.nursery() as nursery:
                await nursery.start(serve_lanes, node, listener)
                handle = EmbeddedServerHandle(
                    runtime=runtime,
                    bind_addr=node.config.bind_addr,
                    node=node,
                    scope=serving.scope,
                    ended=serving.ended,
                    owns_runtime=options.runtime is None,
                )
                if options.openai is not None and web is not None:
                    await _add_openai(nursery, handle, options.openai, web)
                task_status.started(handle)


async def start_embedded_openai(
    args: EmbeddedOpenAiArgs,
    *,
    task_status: trio.TaskStatus[EmbeddedServerHandle] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a whole model, held by one stage, to OpenAI clients.

    Raises:
        ConfigError: The stage is not alone, or there is neither config nor runtime.
        BindError: The address cannot be listened on.
    """
    config = args.config or (args.runtime.config if args.runtime is not None else None)
    if config is None:
        raise ConfigError("start_embedded_openai needs a config or a runtime")
    if config.stage_index != 0 or config.downstream is not None:
        raise ConfigError(
            f"{config.stage_id} is one of several stages: serve-openai holds a whole "
            "model; start stage 0 with `serve-binary --openai-bind-addr` instead"
        )
    with contextlib.ExitStack() as sockets:
        web = _openai_listener(args, sockets)
        assert web is not None
        async with _loaded(args.runtime, config, args.topology) as runtime:
            node = StageNode(
                config=config, runtime=runtime.runtime, topology=args.topology
            )
            serving = _Serving()
            async with serving.nursery() as nursery:
                handle = EmbeddedServerHandle(
                    runtime=runtime,
                    bind_addr=_bound(web),
                    node=node,
                    scope=serving.scope,
                    ended=serving.ended,
                    owns_runtime=args.runtime is None,
                )
                await _add_openai(nursery, handle, args, web)
                task_status.started(handle)


async def start_stage_http(
    options: StageHttpOptions,
    *,
    task_status: trio.TaskStatus[EmbeddedServerHandle] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Load one stage and show it over HTTP; it takes no work from other stages.

    Raises:
        BindError: The address cannot be listened on.
    """
    from skippyd.stage.http import (  # noqa: PLC0415 - only this server needs it
        StageDiagnostics,
        serve_diagnostics,
    )

    config = options.config
    with contextlib.ExitStack() as sockets:
        endpoint = options.bind_addr or config.bind_addr
        listener = sockets.enter_context(listen_on(endpoint))
        async with _loaded(options.runtime, config, options.topology) as runtime:
            node = StageNode(
                config=config, runtime=runtime.runtime, topology=options.topology
            )
            serving = _Serving()
            async with serving.nursery() as nursery:
                await nursery.start(
                    serve_diagnostics, StageDiagnostics(node), _trio_listener(listener)
                )
                task_status.started(
                    EmbeddedServerHandle(
                        runtime=runtime,
                        bind_addr=_bound(listener),
                        node=node,
                        scope=serving.scope,
                        ended=serving.ended,
                        owns_runtime=options.runtime is None,
                    )
                )


async def _add_openai(
    nursery: trio.Nursery,
    handle: EmbeddedServerHandle,
    args: EmbeddedOpenAiArgs,
    listener: socket.socket,
) -> None:
    """Let stage 0 serve OpenAI: the lanes' keeper, and the HTTP server on top."""
    from skippyd.frontend.chain import ServedChain  # noqa: PLC0415 - stage 0 alone
    from skippyd.frontend.lane_pool import LanePool  # noqa: PLC0415 - as above

    node = handle._node  # noqa: SLF001 - both live in this module
    lanes = node.config.lane_count
    asked = args.generation_concurrency
    size = lanes if asked is None else asked
    if not 1 <= size <= lanes:
        raise ConfigError(
            f"--generation-concurrency ({size}) cannot exceed configured lane_count "
            f"({lanes}) and has to be 1 or more"
        )
    pool = LanePool(node, size)
    chain = ServedChain(
        node=node,
        pool=pool,
        vocabulary=handle.runtime.runtime.vocabulary,
        model_id=args.model_id or node.config.model_id,
        created_unix_s=int(time.time()),
    )
    await nursery.start(pool.keep)
    handle._http = await nursery.start(  # noqa: SLF001 - both live in this module
        _serve_openai,
        chain,
        _trio_listener(listener),
        handle._http_ended,  # noqa: SLF001 - both live in this module
    )
    handle._pool = pool  # noqa: SLF001 - both live in this module
    handle.openai_bind_addr = _bound(listener)


async def _serve_openai(
    chain: ServedChain,
    listener: trio.SocketListener,
    ended: trio.Event,
    *,
    task_status: trio.TaskStatus[HttpServer],
) -> None:
    from skippyd.frontend.server import serve_openai  # noqa: PLC0415 - stage 0 alone

    try:
        record = chain.node.spans.record
        await serve_openai([listener], chain, record=record, task_status=task_status)
    finally:
        ended.set()


@contextlib.asynccontextmanager
async def _runtime_of(
    options: BinaryStageOptions,
) -> AsyncIterator[SkippyRuntimeHandle]:
    async with _loaded(
        options.runtime,
        options.config,
        options.topology,
        load=functools.partial(
            SkippyRuntimeHandle.load,
            progress=options.progress,
            logits_sink=options.logits_sink,
        ),
    ) as runtime:
        yield runtime


@contextlib.asynccontextmanager
async def _loaded(
    given: SkippyRuntimeHandle | None,
    config: StageConfig,
    topology: StageTopology | None = None,
    *,
    load: Callable[..., Awaitable[SkippyRuntimeHandle]] = SkippyRuntimeHandle.load,
) -> AsyncIterator[SkippyRuntimeHandle]:
    """The host's runtime as it is, or one loaded here and closed here."""
    if given is not None:
        yield given
        return
    runtime = await load(config, topology)
    try:
        yield runtime
    finally:
        await runtime.shutdown()


def _openai_listener(
    args: EmbeddedOpenAiArgs | None, sockets: contextlib.ExitStack
) -> socket.socket | None:
    if args is None:
        return None
    return sockets.enter_context(listen_on(args.bind_addr))


def _trio_listener(listener: socket.socket) -> trio.SocketListener:
    return trio.SocketListener(trio.socket.from_stdlib_socket(listener))


def _bound(listener: socket.socket) -> Endpoint:
    host, port = listener.getsockname()[:2]
    return Endpoint(host, port)
