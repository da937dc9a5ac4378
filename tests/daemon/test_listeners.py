from __future__ import annotations

import socket

import attrs
import pytest

from skippyd.config.daemon import ControlTable, DaemonConfig, OpenAiTable
from skippyd.config.endpoints import Endpoint
from skippyd.daemon.listeners import bound_listeners
from skippyd.errors import ConfigError


def _config(control: Endpoint, openai: Endpoint | None = None) -> DaemonConfig:
    return DaemonConfig(
        control=ControlTable(bind=control), openai=OpenAiTable(bind=openai)
    )


async def test_every_address_is_bound_and_closed_again() -> None:
    free = Endpoint("127.0.0.1", 0)
    with bound_listeners(_config(free, free)) as listeners:
        port = listeners.control_port
        assert listeners.openai is not None
        with socket.create_connection(("127.0.0.1", port)):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_without_a_door_none_is_bound() -> None:
    with bound_listeners(_config(Endpoint("localhost", 0))) as listeners:
        assert listeners.openai is None


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_of_another_machine_is_named(host: str) -> None:
    with (
        pytest.raises(ConfigError, match=rf"\[control\] bind {host}:0"),
        bound_listeners(_config(Endpoint(host, 0))),
    ):
        pass


async def test_a_stage_host_of_another_machine_is_named_at_the_start() -> None:
    config = attrs.evolve(
        _config(Endpoint("127.0.0.1", 0)),
        stages=attrs.evolve(DaemonConfig().stages, host="192.0.2.1"),
    )
    with (
        pytest.raises(ConfigError, match=r"\[stages\] host 192.0.2.1"),
        bound_listeners(config),
    ):
        pass
