from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.admin.doctor_peers import interface_check, peer_checks
from skippyd.admin.schema import Nodes
from support.admin_documents import BETA, GAMMA, node_rows


if TYPE_CHECKING:
    from pathlib import Path

ALPHA_ROW, BETA_ROW, GAMMA_ROW = node_rows()


def test_a_node_alone_is_well(tmp_path: Path) -> None:
    (check,) = peer_checks(Nodes(items=(ALPHA_ROW,)), {}, tmp_path)
    assert check.verdict == "ok"
    assert "no other node is known" in check.finding


def test_each_peer_and_each_path_is_judged(tmp_path: Path) -> None:
    checks = peer_checks(Nodes(items=node_rows()), {BETA: 231, GAMMA: None}, tmp_path)
    assert [(each.check, each.verdict) for each in checks] == [
        ("node beta", "ok"),
        ("stage path to beta", "ok"),
        ("way to beta", "ok"),
        ("node gamma", "failed"),
        ("stage path to gamma", "failed"),
    ]
    silent, unreachable = checks[3], checks[4]
    assert silent.finding == "10.0.0.3:9401: silent: five status messages missed"
    assert "firewall" in silent.remedy
    assert "[stages] first_port to last_port" in unreachable.remedy
    assert checks[1].finding == "0.23 ms"


def test_a_slow_path_is_doubtful(tmp_path: Path) -> None:
    nodes = Nodes(items=(ALPHA_ROW, attrs.evolve(BETA_ROW, interface=None)))
    _, path = peer_checks(nodes, {BETA: 25_000}, tmp_path)
    assert (path.verdict, path.finding) == ("warning", "25.00 ms")


def test_another_version_is_doubtful(tmp_path: Path) -> None:
    old = attrs.evolve(BETA_ROW, version="0.0.9", interface=None)
    (check,) = peer_checks(Nodes(items=(ALPHA_ROW, old)), {}, tmp_path)
    assert check.verdict == "warning"
    assert "runs skippyd 0.0.9" in check.finding


@pytest.mark.parametrize(
    "reason",
    [
        "it refuses this node: bad skippy stage generation: expected 9, got 8",
        "skippy stage generation 8 needs its feature bundle whole; node beta lacks one",
    ],
)
def test_a_node_that_another_release_refuses_is_no_matter_of_firewalls(
    tmp_path: Path, reason: str
) -> None:
    refused = attrs.evolve(BETA_ROW, health="silent", reason=reason, interface=None)
    (check,) = peer_checks(Nodes(items=(ALPHA_ROW, refused)), {}, tmp_path)
    assert check.verdict == "failed"
    assert check.finding.endswith(reason)
    assert check.remedy == "install the same version on both"


@pytest.mark.parametrize(
    ("speed", "verdict", "finding"),
    [
        ("1000\n", "ok", "eth0, 1000 Mbit/s"),
        ("100\n", "warning", "eth0 runs at 100 Mbit/s"),
        ("-1\n", "ok", "eth0"),
        ("fast\n", "ok", "eth0"),
        (None, "ok", "eth0"),
    ],
)
def test_a_slow_card_is_doubtful(
    tmp_path: Path, speed: str | None, verdict: str, finding: str
) -> None:
    (tmp_path / "eth0").mkdir()
    if speed is not None:
        (tmp_path / "eth0" / "speed").write_text(speed)
    check = interface_check(BETA_ROW, "eth0", tmp_path)
    assert (check.verdict, check.finding) == (verdict, finding)


def test_a_wireless_way_is_doubtful(tmp_path: Path) -> None:
    (tmp_path / "wlan0" / "wireless").mkdir(parents=True)
    check = interface_check(BETA_ROW, "wlan0", tmp_path)
    assert check.finding == "goes over wireless wlan0"


def test_a_name_of_an_interface_leads_nowhere_else(tmp_path: Path) -> None:
    assert interface_check(BETA_ROW, "../../etc", tmp_path).verdict == "ok"
