from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.config.daemon import (
    LogLevel,
    NodeTable,
    OpenAiTable,
    PeerTable,
    StagesTable,
)
from skippyd.config.endpoints import Endpoint
from skippyd.coordination.identity import load_or_create
from skippyd.daemon.signals import take_over, waiting_keys
from skippyd.errors import ConfigError
from support.running_nodes import a_node, node_config


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from skippyd.config.daemon import DaemonConfig


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level
    yield
    root.setLevel(before)


def test_keys_that_wait_for_a_restart_are_named(tmp_path: Path) -> None:
    old = node_config(tmp_path)
    fresh = attrs.evolve(
        old,
        node=attrs.evolve(old.node, name="other", log_level=LogLevel.DEBUG),
        stages=StagesTable(first_port=19000, last_port=19099),
        timers=attrs.evolve(old.timers, drain_ms=10),
    )
    assert waiting_keys(old, fresh) == (
        "node.name",
        "stages.first_port",
        "stages.last_port",
    )
    assert waiting_keys(old, old) == ()


@pytest.mark.slow
@pytest.mark.watchdog(60)
async def test_peers_and_log_level_change_at_once(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    identity = load_or_create(other)
    peer = PeerTable(
        id=identity.node_id,
        address=Endpoint("127.0.0.1", 9),
        certificate=str(other / "identity.pem"),
        name="other",
    )
    async with a_node(tmp_path / "atlas") as view:
        node = view.node
        fresh = attrs.evolve(
            node.config,
            peers=(peer,),
            node=attrs.evolve(node.config.node, log_level=LogLevel.ERROR),
        )
        assert take_over(node, lambda: fresh)
        assert [known.name for known in node.peers.all()] == ["other"]
        assert logging.getLogger().level == logging.ERROR
        take_over(node, lambda: attrs.evolve(fresh, peers=()))
        assert node.peers.all() == ()


@pytest.mark.slow
@pytest.mark.watchdog(60)
async def test_a_wrong_configuration_changes_nothing(tmp_path: Path) -> None:
    def broken() -> DaemonConfig:
        raise ConfigError("skippyd.toml: unknown key")

    async with a_node(tmp_path / "atlas") as view:
        before = view.node.config
        take_over(view.node, broken)
        missing = PeerTable(
            id=view.node.identity.node_id,
            address=Endpoint("127.0.0.1", 9),
            certificate=str(tmp_path / "absent.pem"),
        )
        fresh = attrs.evolve(before, peers=(missing,), node=NodeTable(name="x"))
        take_over(view.node, lambda: fresh)
        exposed = attrs.evolve(
            before,
            openai=OpenAiTable(bind=Endpoint("0.0.0.0", 9337)),
            node=attrs.evolve(before.node, log_level=LogLevel.ERROR),
        )
        assert not take_over(view.node, lambda: exposed)
        assert view.node.config is before
