"""The table of admin methods: name, permission, handler; sorted by name.

A method takes its parameters as one strict object and answers with one document. A
stream pushes documents as `item` notifications and answers when it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import attrs
import trio

from skippyd.admin import schema, wishes
from skippyd.admin.access import Permission
from skippyd.admin.node_view import NodeView
from skippyd.config.convert import structure


if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

__all__ = ["METHODS", "STREAMS", "Method", "NodeView", "Stream"]

P = TypeVar("P")

READ_SECONDS = 10.0
DOCTOR_SECONDS = 60.0
WRITE_SECONDS = 120.0
STATUS_EVERY_SECONDS = 1.0
STATUS_AT_MOST_EVERY_SECONDS = 0.1
POLL_SECONDS = 0.5


@attrs.frozen(kw_only=True)
class Method:
    """A request with one answer.

    Args:
        permission: What the peer must be allowed.
        deadline_s: How long the answer may take.
        answer: Gets the node, the parameters and the uid of the peer.
    """

    name: str
    permission: Permission
    deadline_s: float
    answer: Callable[[NodeView, object, int], Awaitable[object]]


@attrs.frozen(kw_only=True)
class Stream:
    """A request with many documents; it ends with the connection, or by itself."""

    name: str
    permission: Permission
    documents: Callable[[NodeView, object], AsyncGenerator[object, None]]


def _read(
    name: str,
    type_: type[P],
    ask: Callable[[NodeView, P], Awaitable[object]],
    deadline_s: float = READ_SECONDS,
) -> Method:
    async def answer(view: NodeView, params: object, _uid: int) -> object:
        return await ask(view, _parameters(name, type_, params))

    return Method(
        name=name, permission=Permission.READ, deadline_s=deadline_s, answer=answer
    )


def _write(
    name: str, type_: type[P], ask: Callable[[NodeView, P, int], Awaitable[object]]
) -> Method:
    async def answer(view: NodeView, params: object, uid: int) -> object:
        return await ask(view, _parameters(name, type_, params), uid)

    return Method(
        name=name,
        permission=Permission.WRITE,
        deadline_s=WRITE_SECONDS,
        answer=answer,
    )


def _stream(
    name: str,
    type_: type[P],
    follow: Callable[[NodeView, P], AsyncGenerator[object, None]],
) -> Stream:
    def documents(view: NodeView, params: object) -> AsyncGenerator[object, None]:
        return follow(view, _parameters(name, type_, params))

    return Stream(name=name, permission=Permission.READ, documents=documents)


def _parameters(name: str, type_: type[P], params: object) -> P:
    return structure({} if params is None else params, type_, source=name)


async def _follow_status(
    view: NodeView, _: schema.Nothing
) -> AsyncGenerator[schema.Status, None]:
    while True:
        changed = view.changed()
        yield await view.status()
        # A burst of changes is shown once.
        await trio.sleep(STATUS_AT_MOST_EVERY_SECONDS)
        with trio.move_on_after(STATUS_EVERY_SECONDS):
            await changed.wait()


async def _follow_events(
    view: NodeView, wish: wishes.WatchEvents
) -> AsyncGenerator[schema.Event | schema.Events, None]:
    while True:
        page = await view.events(wish)
        if page.missed:
            yield attrs.evolve(page, items=())
        for event in page.items:
            wish = attrs.evolve(wish, after=event.sequence)
            yield event


async def _follow_logs(
    view: NodeView, wish: wishes.After
) -> AsyncGenerator[schema.Logs, None]:
    while True:
        page = await view.logs(wish)
        if page.items or page.missed:
            yield page
            wish = wishes.After(
                max([wish.after, *(row.sequence for row in page.items)])
            )
        await trio.sleep(POLL_SECONDS)


async def _follow_telemetry(
    view: NodeView, wish: wishes.After
) -> AsyncGenerator[schema.Telemetry, None]:
    while True:
        page = await view.telemetry(wish)
        yield page
        wish = wishes.After(max([wish.after, *(row.sequence for row in page.items)]))
        await trio.sleep(STATUS_EVERY_SECONDS)


METHODS: tuple[Method, ...] = (
    _read("claims", schema.Nothing, lambda view, _: view.claims()),
    _write("deploy", wishes.Deploy, lambda view, wish, _: view.deploy(wish)),
    _read("doctor", schema.Nothing, lambda view, _: view.doctor(), DOCTOR_SECONDS),
    _write("drain", wishes.Drain, lambda view, wish, _: view.drain(wish)),
    _write(
        "fence.init",
        wishes.InitFence,
        lambda view, wish, uid: view.init_fence(wish, uid=uid),
    ),
    _read("fence.show", schema.Nothing, lambda view, _: view.fence()),
    _write("invite", schema.Nothing, lambda view, _wish, _uid: view.invite()),
    _write("join", wishes.Join, lambda view, wish, _: view.join(wish)),
    _read("lanes", schema.Nothing, lambda view, _: view.lanes()),
    _read("leases", schema.Nothing, lambda view, _: view.leases()),
    _write("load_local", wishes.LoadLocal, lambda view, wish, _: view.load_local(wish)),
    _read("logs", wishes.After, lambda view, wish: view.logs(wish)),
    _read("nodes", schema.Nothing, lambda view, _: view.nodes()),
    _write(
        "safe_mode.off",
        wishes.SafeModeOff,
        lambda view, wish, uid: view.safe_mode_off(wish, uid=uid),
    ),
    _write(
        "safe_mode.on",
        wishes.SafeModeOn,
        lambda view, wish, uid: view.safe_mode_on(wish, uid=uid),
    ),
    _read("safe_mode.status", schema.Nothing, lambda view, _: view.safe_mode()),
    _read("sessions", schema.Nothing, lambda view, _: view.sessions()),
    _read("status", schema.Nothing, lambda view, _: view.status()),
    _write("stop", wishes.Stop, lambda view, wish, _: view.stop(wish)),
    _read("telemetry", wishes.After, lambda view, wish: view.telemetry(wish)),
    _write("withdraw", wishes.Withdraw, lambda view, wish, _: view.withdraw(wish)),
)

STREAMS: tuple[Stream, ...] = (
    _stream("events.watch", wishes.WatchEvents, _follow_events),
    _stream("logs.watch", wishes.After, _follow_logs),
    _stream("status.watch", schema.Nothing, _follow_status),
    _stream("telemetry.watch", wishes.After, _follow_telemetry),
)
