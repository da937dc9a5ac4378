"""The main thread of a stage process: start, signals, the line to the parent, stop."""

from __future__ import annotations

import faulthandler
import functools
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.embedding import start_binary_stage
from skippyd.errors import ExitCode, SkippyError, UsageError
from skippyd.proving.logits_pipe import LogitsWriter
from skippyd.runtime.llama.parent_death import die_with_parent
from skippyd.stage.activity import activity_fields
from skippyd.stage.lifecycle import LifecycleChannel
from skippyd.stage.span_outbox import SpanBatch, batch_fields


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from skippyd.embedding import BinaryStageOptions, EmbeddedServerHandle

    Event = tuple[str, dict[str, object]]

logger = logging.getLogger("skippyd")

STDERR_DESCRIPTOR = 2
SWITCH_INTERVAL_SECONDS = 0.00005
"""Hand-over of the interpreter lock; 5 ms, the default, would be added to a token."""


def run_stage(
    options: BinaryStageOptions, *, lifecycle_fd: int | None, logits_fd: int | None
) -> int:
    """Serve one stage until a signal, the parent's word or the parent's end.

    Args:
        options: The stage.
        lifecycle_fd: Socket to the process that started this one.
        logits_fd: Where the final stage writes the logits of each predicted row.
    """
    channel: LifecycleChannel | None = None
    if lifecycle_fd is not None:
        channel = LifecycleChannel(lifecycle_fd)
        die_with_parent()
        if channel.is_parent_gone:  # before the kernel was asked to watch it
            raise UsageError("the process that started this stage is gone")
        options = attrs.evolve(
            options, progress=functools.partial(_tell_loading, channel)
        )
    if logits_fd is not None:
        options = attrs.evolve(options, logits_sink=LogitsWriter(logits_fd))
    return unwrapped(functools.partial(start_binary_stage, options), channel)


def unwrapped(
    start: Callable[..., Awaitable[None]], channel: LifecycleChannel | None = None
) -> int:
    """Run a `start_*` function to its end, with nurseries' groups taken off errors."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    # SIGUSR1 prints every thread's stack: what a person needs when a stage hangs.
    faulthandler.register(signal.SIGUSR1, file=STDERR_DESCRIPTOR, all_threads=True)
    try:
        return trio.run(_serve, start, channel)
    except BaseExceptionGroup as group:
        error = first_error(group)
        if isinstance(error, SkippyError | KeyboardInterrupt):
            raise error from None
        raise


@attrs.define(eq=False)
class _Life:
    """What a serving process is told from outside, and what it says of itself."""

    handle: EmbeddedServerHandle | None = None
    stopping: trio.Event = attrs.Factory(trio.Event)
    hurry: trio.Event = attrs.Factory(trio.Event)
    was_interrupted: bool = False

    def stop(self) -> None:
        """End: at once while still loading, else after running answers."""
        if self.handle is None:
            # Loading runs in native code and cannot be cancelled; nothing that
            # outlives this process has been made yet.
            logger.info("stopping: nothing is served yet")
            os._exit(self.exit_code)
        if self.stopping.is_set():
            self.hurry.set()
        self.stopping.set()

    @property
    def exit_code(self) -> ExitCode:
        """How the process ends."""
        return ExitCode.INTERRUPTED if self.was_interrupted else ExitCode.DONE

    def status(self) -> list[Event]:
        """All counters for the parent."""
        return [("status", {} if self.handle is None else _status(self.handle))]

    def glance(self) -> list[Event]:
        """What changes, without what is long: for a parent that asks every second."""
        if self.handle is None:
            return [("status", {})]
        counters = _status(self.handle)
        del counters["decode_ns"], counters["threads"]
        activity = activity_fields(self.handle.activity())
        return [("status", counters), ("activity", activity), *self.spans()]

    def spans(self) -> list[Event]:
        """Spans that the parent has not got yet, when there are any."""
        batch = SpanBatch() if self.handle is None else self.handle.take_spans()
        return [("spans", batch_fields(batch))] if batch != SpanBatch() else []


async def _serve(
    start: Callable[..., Awaitable[None]], channel: LifecycleChannel | None
) -> int:
    life = _Life()
    async with trio.open_nursery() as nursery:
        await nursery.start(_watch_signals, life)
        if channel is not None:
            serve = functools.partial(
                channel.serve, status=life.status, glance=life.glance, stop=life.stop
            )
            nursery.start_soon(serve)
        handle: EmbeddedServerHandle = await nursery.start(start)
        life.handle = handle
        _tell_ready(handle, channel)
        await life.stopping.wait()
        await _shut_down(handle, life)
        if channel is not None:
            _tell_last_spans(life, channel)
        nursery.cancel_scope.cancel()
    return life.exit_code


def _tell_last_spans(life: _Life, channel: LifecycleChannel) -> None:
    while events := life.spans():
        for event, fields in events:
            channel.tell(event, **fields)


async def _shut_down(handle: EmbeddedServerHandle, life: _Life) -> None:
    """Let running answers finish, unless told to stop a second time."""
    async with trio.open_nursery() as nursery:

        async def hurry() -> None:
            await life.hurry.wait()
            await handle.shutdown(drain_s=0.0)
            nursery.cancel_scope.cancel()

        nursery.start_soon(hurry)
        await handle.shutdown()
        nursery.cancel_scope.cancel()


def _tell_loading(channel: LifecycleChannel, share: float) -> None:
    channel.tell("loading", done=share)


def _tell_ready(handle: EmbeddedServerHandle, channel: LifecycleChannel | None) -> None:
    logger.info(
        "ready: stage=%s listening=%s openai=%s pid=%s",
        handle.runtime.config.stage_id,
        handle.bind_addr,
        handle.openai_base_url or "-",
        os.getpid(),
    )
    if channel is not None:
        channel.tell(
            "ready",
            pid=os.getpid(),
            bind_addr=str(handle.bind_addr),
            openai_base_url=handle.openai_base_url,
        )


async def _watch_signals(
    life: _Life, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            logger.info("stopping: %s", signal.Signals(number).name)
            life.was_interrupted |= number == signal.SIGINT
            life.stop()


def _status(handle: EmbeddedServerHandle) -> dict[str, object]:
    status = handle.status()
    statistics = status.runtime.statistics
    return {
        "lanes": status.lanes,
        "messages": status.messages,
        "busy_lanes": status.busy_lanes,
        "idle_lanes": status.idle_lanes,
        "open_returns": status.open_returns,
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "health": None if status.health is None else status.health.status,
        "health_reason": None if status.health is None else status.health.reason,
    } | attrs.asdict(statistics)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group: one of them is what a person needs."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error
