"""What the stage side asks of whoever runs its child processes, and what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from skippyd.errors import SkippyError
from skippyd.stage.activity import StageActivity
from skippyd.stage.span_outbox import SpanBatch


if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping


class StageSpawnError(SkippyError):
    """A stage process could not be started; the message says why."""


@attrs.frozen(kw_only=True)
class StageLaunch:
    """One stage process to start.

    Args:
        name: The stage, for logs.
        documents: Flag and content of each document it reads at start. They hold the
            key of a run, so they are handed over in memory and never lie on a disk.
        arguments: Further arguments of `serve-binary`.
        listener: The listening socket it inherits; stays the caller's.
    """

    name: str
    documents: Mapping[str, bytes] = attrs.field(repr=False)
    arguments: tuple[str, ...] = ()
    listener: socket.socket


@attrs.frozen
class StageLoading:
    """The share of its tensors that a process has loaded, 0 to 1."""

    share: float


@attrs.frozen(kw_only=True)
class StageListening:
    """A process has loaded its layers and serves."""

    openai_base_url: str | None


@attrs.frozen
class StageHealth:
    """What a process says about itself when it is asked.

    Args:
        health: State of the whole chain; None when it does not watch it.
        counters: Lanes, sessions, steps and the like, by the process's own names.
    """

    health: str | None
    counters: Mapping[str, int] = attrs.Factory(dict)


@attrs.frozen
class StageGone:
    """A process is reaped and its memory free."""

    detail: str


StageNews = (
    StageLoading | StageListening | StageHealth | StageActivity | SpanBatch | StageGone
)


class StageChild(Protocol):
    """A stage process that was started and is not known to be gone."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def ask_health(self) -> None:
        """Ask for a `StageHealth`, a `StageActivity` and what spans there are.

        A process that hangs is not waited for.
        """
        ...

    def terminate(self, grace_s: float) -> None:
        """Let it finish and end; kill it when it still runs after the grace."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...


class StageSupervisor(Protocol):
    """Starts stage processes and watches them until they are reaped."""

    @property
    def host(self) -> str:
        """The address that stages listen on."""
        ...

    def listen(self, port: int = 0) -> socket.socket:
        """Bind and listen on the stages' address.

        Args:
            port: The port; 0 takes a free one of those configured.

        Raises:
            StageSpawnError: No port is free.
        """
        ...

    def spawn(
        self, launch: StageLaunch, tell: Callable[[StageNews], None]
    ) -> StageChild:
        """Start a process on this, the main, thread.

        Args:
            launch: What to start.
            tell: Called on the trio thread with each piece of news; `StageGone` is the
                last one, and always comes.

        Raises:
            StageSpawnError: The process could not be started; nothing is told.
        """
        ...
