"""The nodes this one trusts: who they are, where they are, and their certificates.

Joined peers lie in `peers/NODEID.json` and `.pem` of the state directory; peers of the
configuration file are given by the daemon and win over joined ones of the same id.  A
change is told to whoever waits for `changed`, so trust is gained and lost without a
restart.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.config.convert import structure
from skippyd.config.daemon import LONGEST_NAME
from skippyd.config.documents import parse_json, read_document
from skippyd.config.endpoints import parse_endpoint
from skippyd.coordination.identity import (
    is_node_id,
    node_id_of,
    write_atomically,
)
from skippyd.errors import ConfigError
from skippyd.ids import NodeId
from skippyd.net.tls import parse_certificate


if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FOLDER = "peers"
SCHEMA = "skippy.peer/1"
MOST_PEERS = 256


@attrs.frozen(kw_only=True)
class Peer:
    """A trusted node.

    Args:
        node_id: The hash of its public key.
        name: What people call it; empty when nobody said.
        address: HOST:PORT of its control server.
        certificate_pem: Exactly what it must show.
    """

    node_id: NodeId
    name: str
    address: str
    certificate_pem: str


def checked_peer(
    *, address: str, certificate_pem: str, name: str = "", node_id: str | None = None
) -> Peer:
    """Make a peer of parts that came from outside.

    Args:
        address: HOST:PORT, the port not 0.
        certificate_pem: One certificate.
        name: For people.
        node_id: Who it is said to be, when that was said.

    Raises:
        ConfigError: A part is wrong, or the certificate is another node's.
    """
    parse_endpoint(address, port_zero_allowed=False)
    found = node_id_of(parse_certificate(certificate_pem, source="certificate"))
    if node_id is not None and node_id != found:
        raise ConfigError(
            f"the certificate belongs to node {found}, not to {node_id}; ask the "
            "other side for `skippyctl nodes` and compare"
        )
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"a node's name is up to {LONGEST_NAME} printable characters")
    return Peer(
        node_id=found, name=name, address=address, certificate_pem=certificate_pem
    )


@attrs.frozen(kw_only=True)
class _PeerFile:
    """What `NODEID.json` holds."""

    schema: str
    node_id: str
    name: str
    address: str


class PeerBook:
    """Trusted nodes, on disk and in the configuration."""

    def __init__(self, state_dir: Path, configured: Iterable[Peer] = ()) -> None:
        """Read what is there.

        Args:
            state_dir: The state directory.
            configured: Peers of the configuration file.

        Raises:
            ConfigError: A stored peer is broken; the message names its file.
        """
        self._folder = state_dir / FOLDER
        self._joined = {peer.node_id: peer for peer in self._read_all()}
        self._configured = {peer.node_id: peer for peer in configured}
        self._changed = trio.Event()

    def all(self) -> tuple[Peer, ...]:
        """Return every trusted node, in the order of their ids."""
        merged = self._joined | self._configured
        return tuple(merged[node_id] for node_id in sorted(merged))

    def get(self, node_id: NodeId) -> Peer | None:
        """Return one node, None when it is not trusted."""
        return self._configured.get(node_id) or self._joined.get(node_id)

    def changed(self) -> trio.Event:
        """Return an event that is set at the next change; a new one each time."""
        return self._changed

    def add(self, peer: Peer) -> None:
        """Store a peer for good, or what is new about it; done when it is on disk.

        Raises:
            ConfigError: There are too many, or the disk refuses.
        """
        if peer.node_id not in self._joined and len(self._joined) >= MOST_PEERS:
            raise ConfigError(
                f"{MOST_PEERS} peers are stored already; remove one before another "
                "joins"
            )
        document = _PeerFile(
            schema=SCHEMA, node_id=peer.node_id, name=peer.name, address=peer.address
        )
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            # The document comes last: without it the certificate is no peer yet.
            write_atomically(
                self._certificate(peer.node_id), peer.certificate_pem.encode()
            )
            text = json.dumps(attrs.asdict(document), indent=2) + "\n"
            write_atomically(self._document(peer.node_id), text.encode())
        except OSError as error:
            raise ConfigError(
                f"{self._folder}: cannot store peer {peer.node_id}: {error.strerror}"
            ) from error
        self._joined[peer.node_id] = peer
        self._tell()

    def remove(self, node_id: NodeId) -> bool:
        """Forget a joined peer and say whether there was one.

        Raises:
            ConfigError: The disk refuses; then the peer is trusted as before.
        """
        if node_id not in self._joined:
            return False
        try:
            # Without its document it is no peer after a restart either.
            self._document(node_id).unlink(missing_ok=True)
            self._certificate(node_id).unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self._folder}: cannot forget peer {node_id}: {error.strerror}"
            ) from error
        del self._joined[node_id]
        self._tell()
        return True

    def set_configured(self, peers: Iterable[Peer]) -> None:
        """Replace the peers of the configuration file, after it was read again."""
        self._configured = {peer.node_id: peer for peer in peers}
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _read_all(self) -> list[Peer]:
        if not self._folder.is_dir():
            return []
        paths = sorted(self._folder.glob("*.json"))[: MOST_PEERS + 1]
        if len(paths) > MOST_PEERS:
            raise ConfigError(f"{self._folder}: holds more than {MOST_PEERS} peers")
        return [self._read(path) for path in paths]

    def _read(self, path: Path) -> Peer:
        remedy = "restore the file, or delete it and join that node again"
        if not is_node_id(path.stem):
            raise ConfigError(f"{path}: its name is no node id; {remedy}")
        text = read_document(path)
        stored = structure(
            parse_json(text, source=str(path)), _PeerFile, source=str(path)
        )
        pem = read_document(self._certificate(NodeId(path.stem)))
        if stored.schema != SCHEMA or stored.node_id != path.stem:
            raise ConfigError(f"{path}: is no {SCHEMA} of that node; {remedy}")
        try:
            return checked_peer(
                node_id=stored.node_id,
                name=stored.name,
                address=stored.address,
                certificate_pem=pem,
            )
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}; {remedy}") from error

    def _document(self, node_id: NodeId) -> Path:
        return self._folder / f"{node_id}.json"

    def _certificate(self, node_id: NodeId) -> Path:
        return self._folder / f"{node_id}.pem"
