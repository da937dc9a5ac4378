"""What is wrong with the ways to other nodes, judged from what is known of them.

Pure, but for the kernel's view of a network interface.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from skippyd import __version__
from skippyd.admin.doctor import doubtful, failed, well


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyd.admin.schema import CheckRow, NodeRow, Nodes

SLOW_US = 10_000
"""A hop of 10 ms alone costs half the default target of 33 ms a token with two stages."""

OTHER_GENERATION = "skippy stage generation"
"""In the words by which nodes of other releases refuse each other."""

SAME_VERSION = "install the same version on both"

SLOW_MBIT = 1000
SYS_NET = Path("/sys/class/net")


def peer_checks(
    nodes: Nodes,
    stage_path_us: Mapping[str, int | None],
    sys_net: Path = SYS_NET,
) -> tuple[CheckRow, ...]:
    """Judge each other node and the way to it.

    Args:
        nodes: What this node knows.
        stage_path_us: Measured between the stages' own addresses, by node id; None
            where a measurement was tried and failed.
        sys_net: The kernel's view of network interfaces.
    """
    return tuple(_peer_checks(nodes, stage_path_us, sys_net))


def _peer_checks(
    nodes: Nodes, stage_path_us: Mapping[str, int | None], sys_net: Path
) -> Iterator[CheckRow]:
    peers = [node for node in nodes.items if not node.is_this_node]
    if not peers:
        finding = "no other node is known: models are served from this machine alone"
        yield well("peers", finding)
    for peer in peers:
        yield _control_check(peer)
        if peer.node_id in stage_path_us:
            yield _stage_path_check(peer, stage_path_us[peer.node_id])
        if peer.interface is not None:
            yield interface_check(peer, peer.interface, sys_net)


def _control_check(peer: NodeRow) -> CheckRow:
    name = f"node {peer.name or peer.node_id[:12]}"
    if peer.health not in {"ok", "draining"}:
        remedy = (
            f"on that machine: systemctl status skippyd; from here: is {peer.address} "
            "let through by its firewall"
        )
        if OTHER_GENERATION in peer.reason:
            remedy = SAME_VERSION
        return failed(
            name,
            f"{peer.address}: {peer.health}{': ' if peer.reason else ''}{peer.reason}",
            remedy,
        )
    if peer.version is not None and peer.version != __version__:
        return doubtful(
            name,
            f"runs skippyd {peer.version}, this node {__version__}",
            SAME_VERSION,
        )
    return well(name, f"{peer.address}: {peer.health}")


def _stage_path_check(peer: NodeRow, measured_us: int | None) -> CheckRow:
    name = f"stage path to {peer.name or peer.node_id[:12]}"
    if measured_us is None:
        return failed(
            name,
            "stages cannot reach each other, though the daemons can",
            "let [stages] first_port to last_port through both firewalls, and check "
            "[stages] host on both machines",
        )
    finding = f"{measured_us / 1000:.2f} ms"
    if measured_us > SLOW_US:
        remedy = "every token crosses it: use a nearer node or a faster network"
        return doubtful(name, finding, remedy)
    return well(name, finding)


def interface_check(peer: NodeRow, interface: str, sys_net: Path) -> CheckRow:
    """Judge the network card that the path to a peer uses."""
    name = f"way to {peer.name or peer.node_id[:12]}"
    folder = sys_net / Path(interface).name
    if (folder / "wireless").exists():
        remedy = "connect both by cable: its delays go into every token"
        return doubtful(name, f"goes over wireless {interface}", remedy)
    speed = _speed_mbit(folder)
    if speed is not None and 0 < speed < SLOW_MBIT:
        remedy = "use a card or a switch of 1000 Mbit/s and more"
        return doubtful(name, f"{interface} runs at {speed} Mbit/s", remedy)
    return well(name, f"{interface}{'' if speed is None else f', {speed} Mbit/s'}")


def _speed_mbit(folder: Path) -> int | None:
    # Loopback and virtual cards have no speed; reading it is an error there.
    try:
        speed = int((folder / "speed").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None
