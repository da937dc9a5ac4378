from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd import __version__
from skippyd.admin import session as session_module
from skippyd.admin.access import Permission
from skippyd.admin.handlers import Method
from skippyd.admin.session import AdminSession
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from skippyd.net.unix import PeerCredentials
from support.admin_view import FakeNodeView, infeasible


if TYPE_CHECKING:
    from collections.abc import Awaitable

HELLO = {"schema": "skippy.hello/1", "api": 1, "version": "test"}


def new_session(
    permission: Permission = Permission.WRITE, view: FakeNodeView | None = None
) -> AdminSession:
    peer = PeerCredentials(pid=77, uid=1000, gid=1000, groups=frozenset())
    return AdminSession(view=view or FakeNodeView(), peer=peer, permission=permission)


async def greeted(
    permission: Permission = Permission.WRITE, view: FakeNodeView | None = None
) -> AdminSession:
    session = new_session(permission, view)
    await session.answer("hello", HELLO)
    return session


async def refusal(asked: Awaitable[object]) -> RpcError:
    with pytest.raises(RpcError) as raised:
        await asked
    return raised.value


async def test_hello_tells_both_versions() -> None:
    answer = await new_session().answer("hello", HELLO)
    assert answer == HELLO | {"version": __version__}


async def test_nothing_is_answered_before_hello() -> None:
    error = await refusal(new_session().answer("status", None))
    assert error.code == RpcCode.INVALID_REQUEST
    assert "say hello first" in error.message


async def test_another_api_version_is_refused_with_the_remedy() -> None:
    error = await refusal(new_session().answer("hello", HELLO | {"api": 2}))
    assert "speaks admin version 1, skippyctl test version 2" in error.message
    assert "restart skippyd after an upgrade" in error.message


@pytest.mark.parametrize(
    "params", [None, {}, HELLO | {"more": 1}, HELLO | {"api": "1"}]
)
async def test_a_broken_hello_is_refused(params: object) -> None:
    error = await refusal(new_session().answer("hello", params))
    assert error.code == RpcCode.INVALID_PARAMS


async def test_an_unknown_method_is_named() -> None:
    error = await refusal((await greeted()).answer("status.forget", None))
    assert error.code == RpcCode.UNKNOWN_METHOD
    assert "'status.forget'" in error.message


@pytest.mark.parametrize(
    ("permission", "method", "group"),
    [
        (Permission.NONE, "status", "skippy"),
        (Permission.NONE, "status.watch", "skippy"),
        (Permission.NONE, "deploy", "skippy-admin"),
        (Permission.READ, "deploy", "skippy-admin"),
        (Permission.READ, "safe_mode.on", "skippy-admin"),
    ],
)
async def test_who_may_not_is_told_which_group_may(
    permission: Permission, method: str, group: str
) -> None:
    view = FakeNodeView()
    error = await refusal((await greeted(permission, view)).answer(method, {}))
    assert error.code == RpcCode.NOT_ALLOWED
    assert error.message == (
        f"permission denied: user id 1000 may not use {method}; "
        f"join group {group} or use sudo"
    )
    assert error.data == {"exit_code": 5}
    assert view.changes == []


async def test_readers_may_look() -> None:
    session = await greeted(Permission.READ)
    answer = await session.answer("nodes", None)
    assert isinstance(answer, dict)
    assert answer["schema"] == "skippy.nodes/1"


async def test_a_refusal_of_the_node_keeps_its_text_and_exit_code() -> None:
    session = await greeted(view=FakeNodeView(refusal=infeasible()))
    error = await refusal(session.answer("deploy", {"model": "smollm2"}))
    assert error.code == RpcCode.REFUSED
    assert error.message == "smollm2 needs 12 GiB, the nodes have 9.50 GiB"
    assert error.data == {"exit_code": 6}


async def test_wrong_parameters_are_a_usage_error() -> None:
    error = await refusal((await greeted()).answer("deploy", {"modell": "m"}))
    assert error.code == RpcCode.INVALID_PARAMS
    assert error.data == {"exit_code": 2}
    assert "modell" in error.message


async def test_every_change_is_logged_with_its_user_and_without_its_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "skippyd.admin")
    session = await greeted()
    await session.answer("join", {"token": "hush-hush"})
    await session.answer("status", None)
    refused = await greeted(view=FakeNodeView(refusal=infeasible()))
    await refusal(refused.answer("stop", {}))
    assert [record.getMessage() for record in caplog.records] == [
        "event=admin_write uid=1000 pid=77 method=join outcome='done'",
        (
            "event=admin_write uid=1000 pid=77 method=stop "
            "outcome='smollm2 needs 12 GiB, the nodes have 9.50 GiB'"
        ),
    ]
    assert "hush" not in caplog.text


async def test_a_refused_change_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    session = await greeted(Permission.READ)
    await refusal(session.answer("stop", {}))
    assert "event=admin_refused uid=1000 pid=77 method=stop" in caplog.text


async def test_a_node_that_does_not_answer_is_not_waited_for_for_ever(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_view: object, _params: object, _uid: int) -> object:
        await trio.sleep_forever()
        raise AssertionError

    slow = Method(
        name="slow", permission=Permission.READ, deadline_s=10.0, answer=never
    )
    monkeypatch.setitem(session_module._TABLE, "slow", slow)
    error = await refusal((await greeted()).answer("slow", None))
    assert error.code == RpcCode.DEADLINE
    assert "slow took longer than 10 s" in error.message
    assert error.data == {"exit_code": 75}
