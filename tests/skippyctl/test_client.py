"""Every method of the client against a real admin socket over a made-up node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyctl.client import AdminClient
from skippyd.admin import schema, wishes
from skippyd.admin.handlers import METHODS, STREAMS
from support.admin_daemon import admin_daemon
from support.admin_documents import DEPLOYMENT, idle, serving
from support.admin_view import FakeNodeView


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def view() -> FakeNodeView:
    return FakeNodeView()


@pytest.fixture
def client(tmp_path: Path, view: FakeNodeView) -> Iterator[AdminClient]:
    path = tmp_path / "admin.sock"
    with admin_daemon(path, view), AdminClient(path) as client:
        yield client


def test_every_read_gives_its_document(client: AdminClient) -> None:
    after = wishes.After()
    documents = (
        client.status(),
        client.claims(),
        client.leases(),
        client.lanes(),
        client.sessions(),
        client.nodes(),
        client.telemetry(after),
        client.logs(after),
        client.fence(),
        client.safe_mode(),
        client.doctor(),
    )
    assert [type(each) for each in documents] == [
        schema.Status,
        schema.Claims,
        schema.Leases,
        schema.Lanes,
        schema.Sessions,
        schema.Nodes,
        schema.Telemetry,
        schema.Logs,
        schema.Fence,
        schema.SafeModeReport,
        schema.Doctor,
    ]
    assert documents[0] == serving()


def test_every_change_reaches_the_node(client: AdminClient, view: FakeNodeView) -> None:
    asked: list[object] = [
        wishes.Deploy(model="smollm2", lanes=2, nodes=("alpha", "beta")),
        wishes.LoadLocal(model="smollm2", context=512),
        wishes.Withdraw(model="smollm2"),
        wishes.Drain(is_undone=True),
        wishes.Stop(stage_id="stage-1"),
        wishes.Join(token="t"),
        wishes.InitFence(reason="r"),
        wishes.SafeModeOn(reason="r", restart=True),
        wishes.SafeModeOff(),
    ]
    for call, wish in zip(
        (
            client.deploy,
            client.load_local,
            client.withdraw,
            client.drain,
            client.stop,
            client.join,
            client.init_fence,
            client.safe_mode_on,
            client.safe_mode_off,
        ),
        asked,
        strict=True,
    ):
        call(wish)  # type: ignore[operator] # each takes its own wish
    assert client.invite().token == "skippy1-secret"
    assert [wish for wish, _ in view.changes] == [*asked, schema.Nothing()]


def test_events_come_with_what_is_missing(
    client: AdminClient, view: FakeNodeView
) -> None:
    view.missed_events = 9
    events = client.follow_events(wishes.WatchEvents(model_id="smollm2"))
    assert next(events) == schema.Events(missed=9, items=())
    assert [next(events) for _ in DEPLOYMENT] == list(DEPLOYMENT)


@pytest.mark.slow
def test_the_status_is_followed(client: AdminClient, view: FakeNodeView) -> None:
    statuses = client.follow_status()
    assert next(statuses) == serving()
    view.now = idle()
    assert next(statuses) == idle()


@pytest.mark.parametrize("what", ["logs", "telemetry"])
def test_logs_and_telemetry_are_followed(client: AdminClient, what: str) -> None:
    follow = {"logs": client.follow_logs, "telemetry": client.follow_telemetry}[what]
    first = next(iter(follow(wishes.After(limit=1))))
    assert isinstance(first, schema.Logs | schema.Telemetry)
    assert len(first.items) == 1


def test_the_client_has_a_method_for_each_endpoint() -> None:
    names = {
        "events.watch": "follow_events",
        "fence.init": "init_fence",
        "fence.show": "fence",
        "safe_mode.status": "safe_mode",
    }
    for name in [m.name for m in METHODS] + [s.name for s in STREAMS]:
        plain = name.replace(".", "_")
        follow = f"follow_{name.removesuffix('.watch')}"
        known = {names.get(name), plain, follow}
        assert any(each and hasattr(AdminClient, each) for each in known), name
