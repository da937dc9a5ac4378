from __future__ import annotations

import contextlib

import attrs
import pytest
import trio

from skippyd.admin import node_view, schema, wishes
from skippyd.admin.access import Permission
from skippyd.admin.handlers import METHODS, STREAMS, Method, Stream
from skippyd.config.complaints import InvalidConfigError
from support.admin_documents import event, idle
from support.admin_view import FakeNodeView


READS = {
    "claims", "doctor", "fence.show", "lanes", "leases", "logs", "nodes",
    "safe_mode.status", "sessions", "status", "telemetry",
}  # fmt: skip
WRITES = {
    "deploy", "drain", "fence.init", "invite", "join", "load_local",
    "safe_mode.off", "safe_mode.on", "stop", "withdraw",
}  # fmt: skip
UID = 1000


def method(name: str) -> Method:
    return next(each for each in METHODS if each.name == name)


def stream(name: str) -> Stream:
    return next(each for each in STREAMS if each.name == name)


def test_the_tables_are_sorted_and_name_nothing_twice() -> None:
    for table in (METHODS, STREAMS):
        names = [entry.name for entry in table]
        assert names == sorted(set(names))


def test_looking_is_for_readers_changing_for_writers() -> None:
    by_permission = {
        permission: {m.name for m in METHODS if m.permission is permission}
        for permission in Permission
    }
    assert by_permission == {
        Permission.NONE: set(),
        Permission.READ: READS,
        Permission.WRITE: WRITES,
    }
    assert all(each.permission is Permission.READ for each in STREAMS)


def test_the_made_up_node_is_a_node_view() -> None:
    view: node_view.NodeView = FakeNodeView()
    assert isinstance(view.changed(), trio.Event)


@pytest.mark.parametrize("name", sorted(READS))
async def test_each_read_answers_with_its_document(name: str) -> None:
    answer = await method(name).answer(FakeNodeView(), None, UID)
    wanted = {"fence.show": "fence", "safe_mode.status": "safe-mode"}.get(name, name)
    assert getattr(answer, "schema", None) == f"skippy.{wanted}/1"


@pytest.mark.parametrize(
    ("name", "params", "wish", "uid"),
    [
        (
            "deploy",
            {"model": "m", "context": 8192, "nodes": ["a", "b"], "dry_run": True},
            wishes.Deploy(model="m", context=8192, nodes=("a", "b"), dry_run=True),
            None,
        ),
        ("drain", {}, wishes.Drain(), None),
        (
            "fence.init",
            {"reason": "new disk"},
            wishes.InitFence(reason="new disk"),
            UID,
        ),
        ("invite", None, schema.Nothing(), None),
        ("join", {"token": "t"}, wishes.Join(token="t"), None),
        ("load_local", {"model": "m"}, wishes.LoadLocal(model="m"), None),
        ("safe_mode.off", {}, wishes.SafeModeOff(), UID),
        (
            "safe_mode.on",
            {"reason": "odd", "restart": True},
            wishes.SafeModeOn(reason="odd", restart=True),
            UID,
        ),
        ("stop", {"stage_id": "stage-1"}, wishes.Stop(stage_id="stage-1"), None),
        ("withdraw", {"model": None}, wishes.Withdraw(), None),
    ],
)
async def test_each_write_hands_its_wish_over(
    name: str, params: object, wish: object, uid: int | None
) -> None:
    view = FakeNodeView()
    await method(name).answer(view, params, UID)
    assert view.changes == [(wish, uid)]


@pytest.mark.parametrize(
    ("name", "params", "complaint"),
    [
        ("deploy", {}, "model"),
        ("deploy", {"model": "m", "contxt": 1}, "contxt"),
        ("deploy", {"model": "m", "lanes": "4"}, "lanes"),
        ("status", {"verbose": True}, "verbose"),
        ("safe_mode.on", {}, "reason"),
    ],
)
async def test_parameters_are_strict_and_complaints_name_them(
    name: str, params: object, complaint: str
) -> None:
    view = FakeNodeView()
    with pytest.raises(InvalidConfigError, match=complaint):
        await method(name).answer(view, params, UID)
    assert view.changes == []


async def test_the_status_is_pushed_at_each_change(autojump_clock: object) -> None:
    view = FakeNodeView()
    async with contextlib.aclosing(
        stream("status.watch").documents(view, None)
    ) as documents:
        first = await anext(documents)
        assert first == view.now
        begun = trio.current_time()
        view.show(idle())
        assert await anext(documents) == idle()
        assert trio.current_time() - begun < 0.5
        await anext(documents)
        assert trio.current_time() - begun == pytest.approx(1.2, abs=0.05)


async def test_events_go_on_from_the_last_one_that_was_sent() -> None:
    view = FakeNodeView(missed_events=3)
    watching = stream("events.watch").documents(view, {"after": 0})
    async with contextlib.aclosing(watching) as documents:
        assert await anext(documents) == schema.Events(missed=3, items=())
        sent = [await anext(documents) for _ in view.story]
        assert tuple(sent) == view.story
        view.story += (event(7, "withdraw", "gone", is_final=True),)
        assert await anext(documents) == view.story[-1]


async def test_events_of_another_model_are_left_out() -> None:
    view = FakeNodeView(story=(event(1, "plan", "x"), event(2, "plan", "y")))
    view.story += (attrs.evolve(view.story[0], sequence=3, model_id="other"),)
    watching = stream("events.watch").documents(view, {"model_id": "other"})
    async with contextlib.aclosing(watching) as documents:
        assert await anext(documents) == view.story[-1]


async def test_log_lines_and_spans_are_sent_once(autojump_clock: object) -> None:
    view = FakeNodeView()
    lines = stream("logs.watch").documents(view, {"limit": 10})
    async with contextlib.aclosing(lines) as documents:
        page = await anext(documents)
        assert isinstance(page, schema.Logs)
        assert [row.sequence for row in page.items] == [1, 2]
        with trio.move_on_after(60) as waiting:
            await anext(documents)
        assert waiting.cancelled_caught
    spans = stream("telemetry.watch").documents(view, None)
    async with contextlib.aclosing(spans) as documents:
        pages = [await anext(documents), await anext(documents)]
    assert [len(getattr(page, "items", ())) for page in pages] == [1, 0]
