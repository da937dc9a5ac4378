"""A real admin socket over a made-up node, in a thread: for clients that block."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.admin.server import serve_admin


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from skippyd.admin.access import Access
    from support.admin_view import FakeNodeView

START_S = 10.0
END_S = 10.0


@attrs.define(eq=False)
class _Running:
    """Where the server's trio lives while it runs."""

    started: threading.Event = attrs.Factory(threading.Event)
    token: trio.lowlevel.TrioToken | None = None
    scope: trio.CancelScope | None = None
    error: BaseException | None = None


@contextlib.contextmanager
def admin_daemon(
    path: Path, view: FakeNodeView, access: Access | None = None
) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Serve until the block ends; yields a way to run something in its trio."""
    running = _Running()

    async def main() -> None:
        with trio.CancelScope() as scope:
            running.token = trio.lowlevel.current_trio_token()
            running.scope = scope
            async with trio.open_nursery() as nursery:
                await nursery.start(_serve)
                running.started.set()

    async def _serve(*, task_status: trio.TaskStatus[None]) -> None:
        await serve_admin(path, view, access=access, task_status=task_status)

    def target() -> None:
        try:
            trio.run(main)
        except BaseException as error:  # noqa: BLE001 - raised again below
            running.error = error
        finally:
            running.started.set()

    thread = threading.Thread(target=target, name="admin-daemon")
    thread.start()
    try:
        assert running.started.wait(START_S)
        if running.error is not None:
            raise running.error
        token = running.token
        assert token is not None
        yield token.run_sync_soon
    finally:
        if running.token is not None and running.scope is not None:
            with contextlib.suppress(trio.RunFinishedError):
                running.token.run_sync_soon(running.scope.cancel)
        thread.join(END_S)
    assert not thread.is_alive()
    if running.error is not None:
        raise running.error
