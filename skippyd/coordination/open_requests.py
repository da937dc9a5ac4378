"""Requests that wait for the rules' answer: numbered, bounded, answered once."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.errors import ExitCode, SkippyError


if TYPE_CHECKING:
    from skippyd.coordination.ports import StageRunSettings
    from skippyd.core.coordinator.messages import LoadStage, Origin, Reply, Request

MAX_OPEN_REQUESTS = 256
"""Loads and fencing claims wait long."""


class StageSideBusyError(SkippyError):
    """Too many requests are open; ask again."""

    exit_code = ExitCode.TRY_AGAIN


class StageSideClosedError(SkippyError):
    """This node's stage side has ended; the daemon is stopping."""

    exit_code = ExitCode.TRY_AGAIN


@attrs.define(eq=False, kw_only=True)
class OpenRequest:
    """A request, who sent it, and its answer once there is one."""

    request_id: int
    request: Request
    origin: Origin
    settings: StageRunSettings | None
    _answered: trio.Event = attrs.Factory(trio.Event)
    _reply: Reply | None = None

    def answer(self, reply: Reply | None) -> None:
        """Let whoever waits go on; None: there will be no answer."""
        self._reply = reply
        self._answered.set()

    async def reply(self) -> Reply:
        """Wait for the answer.

        Raises:
            StageSideClosedError: There will be none.
        """
        await self._answered.wait()
        if self._reply is None:
            raise StageSideClosedError("this node stopped before it could answer")
        return self._reply


@attrs.define(eq=False)
class OpenRequests:
    """All requests that are not answered yet.

    One whose sender went away stays: the rules still answer it.
    """

    _open: dict[int, OpenRequest] = attrs.Factory(dict)
    _numbers: itertools.count[int] = attrs.Factory(lambda: itertools.count(1))
    _is_closed: bool = False

    def check_room(self) -> None:
        """Refuse another request when there are too many, or no more answers.

        Raises:
            StageSideBusyError: Too many requests are open.
            StageSideClosedError: The daemon is stopping.
        """
        if self._is_closed:
            raise StageSideClosedError("this node is stopping; ask again later")
        if len(self._open) >= MAX_OPEN_REQUESTS:
            raise StageSideBusyError(
                f"{MAX_OPEN_REQUESTS} requests are open at this node; ask again later"
            )

    def open(
        self, request: Request, origin: Origin, settings: StageRunSettings | None
    ) -> OpenRequest:
        """Take a request in."""
        number = next(self._numbers)
        opened = self._open[number] = OpenRequest(
            request_id=number, request=request, origin=origin, settings=settings
        )
        return opened

    def answer(self, request_id: int, reply: Reply) -> None:
        """Answer a request; a KeyError here is one that was answered before."""
        self._open.pop(request_id).answer(reply)

    def settings(self, request_id: int) -> StageRunSettings | None:
        """What a request brought along."""
        return self._open[request_id].settings

    def asking_for(self, load: LoadStage) -> OpenRequest:
        """The request for a load that now starts: it is open until that is ready."""
        return next(o for o in self._open.values() if o.request == load)

    def close(self) -> None:
        """Tell everybody that there will be no answer."""
        self._is_closed = True
        for opened in self._open.values():
            opened.answer(None)
