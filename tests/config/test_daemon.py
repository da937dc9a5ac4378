from __future__ import annotations

import attrs
import pytest

from skippyd.config.daemon import (
    LONGEST_NAME,
    ControlTable,
    DaemonConfig,
    NodeTable,
    PeerTable,
    StagesTable,
    TimersTable,
)
from skippyd.config.endpoints import Endpoint
from skippyd.errors import ConfigError
from skippyd.ids import NodeId


def test_the_defaults_serve_this_machine_alone() -> None:
    config = DaemonConfig()
    assert config.control.bind == Endpoint("127.0.0.1", 9401)
    assert config.stages.host == "127.0.0.1"
    assert config.openai.bind is None
    assert not config.stages.allow_plaintext
    assert config.node.state_dir == "/var/lib/skippyd"
    assert config.admin.socket == "/run/skippyd/admin.sock"
    assert config.timers.status_every_ms == 2_000


@pytest.mark.parametrize(
    ("first", "last"), [(19_100, 19_000), (-1, 5), (0, 65_536), (5, 0)]
)
def test_stage_ports_are_a_range(first: int, last: int) -> None:
    with pytest.raises(ConfigError, match="no range of ports"):
        StagesTable(first_port=first, last_port=last)


@pytest.mark.parametrize("value", [0, 9, 4 * 60 * 60 * 1000 + 1])
def test_timers_are_milliseconds_within_bounds(value: int) -> None:
    with pytest.raises(ConfigError, match=f"{value} is outside"):
        TimersTable(status_every_ms=value)
    with pytest.raises(ConfigError, match="drain_ms"):
        TimersTable(drain_ms=value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_stages_have_one_address_that_others_reach(host: str) -> None:
    with pytest.raises(ConfigError, match=r"host: .* is every address of this machine"):
        StagesTable(host=host)


@pytest.mark.parametrize(
    "place", [Endpoint("0.0.0.0", 9401), Endpoint("::", 9401), Endpoint("192.0.2.1", 0)]
)
def test_others_are_told_a_place_that_they_can_reach(place: Endpoint) -> None:
    with pytest.raises(ConfigError, match=r"advertise: .* is no place to connect to"):
        ControlTable(advertise=place)
    with pytest.raises(ConfigError, match=r"address: .* is no place to connect to"):
        _peer(address=place)


@pytest.mark.parametrize("node_id", ["", "b" * 63, "B" * 64, "b" * 64 + "\n", "atlas"])
def test_the_id_of_a_peer_has_its_form(node_id: str) -> None:
    with pytest.raises(ConfigError, match="is no node id; write the 64 hexadecimal"):
        _peer(id=NodeId(node_id))


def test_a_name_is_one_that_other_nodes_take_in() -> None:
    for name in ("a\nb", "x" * (LONGEST_NAME + 1)):
        with pytest.raises(ConfigError, match="printable characters"):
            NodeTable(name=name)
        with pytest.raises(ConfigError, match="printable characters"):
            _peer(name=name)


def test_a_peer_is_there_once() -> None:
    with pytest.raises(ConfigError, match=r"^peers\[1\]\.id: is there twice$"):
        DaemonConfig(peers=(_peer(), _peer(name="again")))


def _peer(**fields: object) -> PeerTable:
    base = PeerTable(
        id=NodeId("b" * 64), address=Endpoint("192.0.2.1", 9401), certificate="b.pem"
    )
    return attrs.evolve(base, **fields)  # type: ignore[arg-type] # any field
