from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.admin import wishes
from skippyd.config.daemon import AdminTable, ModelsTable, OpenAiTable
from skippyd.config.endpoints import Endpoint
from skippyd.coordination.fence_store import FenceStoreError
from skippyd.daemon import app
from skippyd.daemon.logs import LogRing
from skippyd.daemon.state_directory import StateDirectoryBusyError
from skippyd.errors import ConfigError
from support.running_nodes import a_node, node_config


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.daemon.view import DaemonView

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


async def _until_known(view: DaemonView, other: DaemonView) -> None:
    other_id = other.node.identity.node_id
    while other_id not in view.node.registry.reports():
        await view.node.registry.subscribe().receive()


async def test_two_nodes_meet_by_an_invitation(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as atlas, a_node(tmp_path / "borea") as borea:
        invitation = await atlas.invite()
        joined = await borea.join(wishes.Join(token=invitation.token))
        assert joined.node_id == atlas.node.identity.node_id
        with trio.fail_after(20):
            await _until_known(borea, atlas)
            await _until_known(atlas, borea)
        rows = (await borea.nodes()).items
        assert [(row.name, row.health) for row in rows] == [
            ("borea", "ok"),
            ("atlas", "ok"),
        ]


async def test_a_node_keeps_its_identity_and_its_fence(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas") as first:
        node_id, fence = first.node.identity.node_id, await first.fence()
    async with a_node(tmp_path / "atlas") as second:
        assert second.node.identity.node_id == node_id
        again = await second.fence()
        assert again.instance_id == fence.instance_id
        assert not again.is_quarantined


async def test_a_known_node_without_its_store_does_not_vote(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas"):
        pass
    for file in (tmp_path / "atlas" / "state").glob("fence*"):
        file.unlink()
    async with a_node(tmp_path / "atlas") as view:
        status = await view.status()
        assert status.daemon.state == "degraded"
        assert "does not vote" in status.daemon.reasons[0]
        await view.init_fence(wishes.InitFence(reason="new disk"), uid=0)
        assert (await view.status()).daemon.state == "idle"
        assert not (await view.fence()).is_quarantined


async def test_two_daemons_never_share_a_state_directory(tmp_path: Path) -> None:
    async with a_node(tmp_path / "atlas"):
        with pytest.raises(StateDirectoryBusyError, match="in use by pid"):
            async with a_node(tmp_path / "atlas"):
                pass


async def test_a_damaged_store_refuses_to_start(tmp_path: Path) -> None:
    state = tmp_path / "atlas" / "state"
    state.mkdir(parents=True, mode=0o700)
    (state / "fence.sqlite3").write_bytes(b"no database at all" * 100)
    with pytest.raises(FenceStoreError, match=r"fence\.sqlite3"):
        async with a_node(tmp_path / "atlas"):
            pass


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = Endpoint("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match=r"\[openai\] bind 127\.0\.0\.1"):
            async with a_node(tmp_path / "atlas", openai=OpenAiTable(bind=bind)):
                pass


async def test_exposed_addresses_are_refused(tmp_path: Path) -> None:
    door = OpenAiTable(bind=Endpoint("0.0.0.0", 0))
    with pytest.raises(ConfigError, match="API keys"):
        async with a_node(tmp_path / "atlas", openai=door):
            pass


async def test_what_the_check_refuses_never_starts(tmp_path: Path) -> None:
    folder = tmp_path / "atlas"
    named = AdminTable(socket=str(folder / "s"), read_group="nobody here")
    with pytest.raises(ConfigError, match=r"\[admin\] read_group 'nobody here'"):
        async with a_node(folder, admin=named):
            pass
    assert list(folder.iterdir()) == []


async def test_what_the_check_warns_about_is_logged_at_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = ModelsTable(paths=(str(tmp_path / "absent"),))
    async with a_node(tmp_path / "atlas", models=models):
        pass
    assert f"[models] paths: {tmp_path / 'absent'} does not exist" in caplog.text


async def test_a_daemon_is_ready_and_ends_when_told(tmp_path: Path) -> None:
    folder = tmp_path / "atlas"
    folder.mkdir()
    config = node_config(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)

        async def operate() -> None:
            ready = await trio.to_thread.run_sync(manager.recv, 4096)
            assert ready.startswith(b"READY=1\nSTATUS=idle")
            assert (folder / "admin.sock").is_socket()
            os.kill(os.getpid(), signal.SIGTERM)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(operate)
            is_restarting = await app.run_daemon(
                config,
                log_ring=LogRing(),
                environment={"NOTIFY_SOCKET": str(tmp_path / "notify")},
                reload=lambda: config,
            )
        assert not is_restarting
        said = b""
        while b"STOPPING=1" not in said:
            said = manager.recv(4096)
        assert b"EXTEND_TIMEOUT_USEC=" in said
    assert not (folder / "admin.sock").exists()
