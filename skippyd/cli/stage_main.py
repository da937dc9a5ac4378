"""The main thread of a stage process: start, signals, the line to the parent, stop."""

from __future__ import annotations

import faulthandler
import functools
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.embedding import start_binary_stage
from skippyd.errors import ExitCode, SkippyError
from skippyd.proving.logits_pipe import LogitsWriter
from skippyd.runtime.llama.parent_death import die_with_parent
from skippyd.stage.lifecycle import LifecycleChannel


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from skippyd.embedding import BinaryStageOptions, EmbeddedServerHandle

logger = logging.getLogger("skippyd")

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
        die_with_parent()
        channel = LifecycleChannel(lifecycle_fd)
        options = attrs.evolve(
            options, progress=lambda share: channel.tell("loading", done=share)
        )
    if logits_fd is not None:
        options = attrs.evolve(options, logits_sink=LogitsWriter(logits_fd))
    return unwrapped(functools.partial(start_binary_stage, options), channel)


def unwrapped(
    start: Callable[..., Awaitable[None]], channel: LifecycleChannel | None = None
) -> int:
    """Run a `start_*` function to its end, with nurseries' groups taken off errors."""
    try:
        return _serve_until_stopped(start, channel)
    except BaseExceptionGroup as group:
        error = first_error(group)
        if isinstance(error, SkippyError):
            raise error from None
        raise


def _serve_until_stopped(
    start: Callable[..., Awaitable[None]], channel: LifecycleChannel | None
) -> int:
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    # SIGUSR1 prints every thread's stack: what a person needs when a stage hangs.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    return trio.run(_serve, start, channel)


async def _serve(
    start: Callable[..., Awaitable[None]], channel: LifecycleChannel | None
) -> int:
    received: list[int] = []
    async with trio.open_nursery() as nursery:
        handle: EmbeddedServerHandle = await nursery.start(start)
        logger.info(
            "ready: stage=%s listening=%s openai=%s pid=%s",
            handle.runtime.config.stage_id,
            handle.bind_addr,
            handle.openai_base_url or "-",
            os.getpid(),
        )
        stopped = trio.Event()
        if channel is not None:
            channel.tell(
                "ready",
                pid=os.getpid(),
                bind_addr=str(handle.bind_addr),
                openai_base_url=handle.openai_base_url,
            )
            nursery.start_soon(
                channel.serve, functools.partial(_status, handle), stopped.set
            )
        nursery.start_soon(_watch_signals, received, stopped)
        await stopped.wait()
        await handle.shutdown()
        nursery.cancel_scope.cancel()
    return ExitCode.INTERRUPTED if signal.SIGINT in received else ExitCode.DONE


async def _watch_signals(received: list[int], stopped: trio.Event) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            logger.info("stopping: %s", signal.Signals(number).name)
            received.append(number)
            stopped.set()


def _status(handle: EmbeddedServerHandle) -> dict[str, object]:
    status = handle.status()
    statistics = status.runtime.statistics
    return {
        "lanes": status.lanes,
        "messages": status.messages,
        "busy_lanes": status.busy_lanes,
        "health": None if status.health is None else status.health.status,
    } | attrs.asdict(statistics)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group: one of them is what a person needs."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error
