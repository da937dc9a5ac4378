from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.config.daemon import ControlTable, DaemonConfig, NodeTable, PeerTable
from skippyd.config.daemon import StagesTable as Stages
from skippyd.config.endpoints import Endpoint
from skippyd.coordination.identity import load_or_create
from skippyd.daemon.node import (
    advertised_address,
    configured_peers,
    node_name,
    stage_ports,
)
from skippyd.errors import ConfigError
from skippyd.ids import NodeId


if TYPE_CHECKING:
    from pathlib import Path


def test_a_node_is_called_as_configured_or_as_its_host() -> None:
    assert node_name(DaemonConfig(node=NodeTable(name="atlas"))) == "atlas"
    assert node_name(DaemonConfig()) == socket.gethostname()


def test_others_are_told_the_advertised_address_or_the_bound_one() -> None:
    bound = ControlTable(bind=Endpoint("::1", 0))
    assert advertised_address(DaemonConfig(control=bound), 9401) == "[::1]:9401"
    told = attrs.evolve(bound, advertise=Endpoint("192.0.2.1", 1234))
    assert advertised_address(DaemonConfig(control=told), 9401) == "192.0.2.1:1234"


def test_stages_listen_in_the_configured_range() -> None:
    assert list(stage_ports(DaemonConfig())) == [0]
    ranged = DaemonConfig(stages=Stages(first_port=19000, last_port=19002))
    assert list(stage_ports(ranged)) == [19000, 19001, 19002]


def test_a_configured_peer_is_checked_against_its_certificate(tmp_path: Path) -> None:
    identity = load_or_create(tmp_path)
    table = PeerTable(
        id=identity.node_id,
        address=Endpoint("192.0.2.1", 9401),
        certificate=str(tmp_path / "identity.pem"),
    )
    (peer,) = configured_peers([table])
    assert peer.certificate_pem == identity.certificate_pem
    with pytest.raises(ConfigError, match="belongs to node"):
        configured_peers([attrs.evolve(table, id=NodeId("ab" * 32))])
    with pytest.raises(ConfigError, match="cannot be read"):
        configured_peers([attrs.evolve(table, certificate=str(tmp_path / "gone"))])
