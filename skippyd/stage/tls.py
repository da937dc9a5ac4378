"""TLS between the stages of one chain: each place is one node's, and its key proves it.

Imported by stages that are told to use it only: reading certificates costs memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from skippyd.errors import ConfigError
from skippyd.net.tls import (
    OwnCertificate,
    TlsRefusedError,
    certificate_key_sha256,
    client_context,
    parse_certificate,
    server_context,
)
from skippyd.net.tls_socket import TlsSocket


if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Mapping

    from skippyd.config.stage import StageConfig, StageTlsConfig
    from skippyd.ids import NodeId

PROTOCOL = "skippy-stage/1"


@attrs.frozen(kw_only=True)
class Place:
    """One stage of the chain as something to dial.

    Args:
        stage_index: The stage.
        node_id: The node it is on.
        context: Trusts that node alone.
    """

    stage_index: int
    node_id: NodeId
    context: ssl.SSLContext = attrs.field(repr=False)

    def dialled(
        self, plain: socket.socket, wait_readable: Callable[[], None]
    ) -> TlsSocket:
        """Make sure that this very place is at the other end of a connection.

        Args:
            plain: The connected socket.
            wait_readable: Returns when it is readable; raises to give up.

        Raises:
            TlsRefusedError: Somebody else is there, or the other end refused.
            OSError: The connection broke.
        """
        connection = TlsSocket(plain, self.context, is_server=False)
        key = connection.shake_hands(wait_readable)
        _check_protocol(connection)
        self.check(key)
        return connection

    def check(self, key: str) -> None:
        """Compare the key that was shown with that of the place.

        Raises:
            TlsRefusedError: It is another node's.
        """
        if key != self.node_id:
            raise TlsRefusedError(
                f"node {key} shows itself at the place of stage {self.stage_index}, "
                f"which is node {self.node_id}'s in this chain"
            )


class StageTls:
    """What one stage shows, and whom it trusts at which place.

    Args:
        index: This stage.
        config: Its table.

    Raises:
        ConfigError: A certificate or the key cannot be used.
    """

    def __init__(self, index: int, config: StageTlsConfig) -> None:
        own = OwnCertificate(
            certificate_path=Path(config.certificate_path),
            key_path=Path(config.key_path),
        )
        for peer in config.peers:
            source = f"tls: certificate of stage {peer.stage_index}"
            parsed = parse_certificate(peer.certificate, source=source)
            if (found := certificate_key_sha256(parsed)) != peer.node_id:
                raise ConfigError(f"{source}: is of node {found}, not {peer.node_id}")
        self._index = index
        try:
            self._server = server_context(
                own,
                trusted_pems=[peer.certificate for peer in config.peers],
                alpn=[PROTOCOL],
            )
            self._places: Mapping[int, Place] = {
                peer.stage_index: Place(
                    stage_index=peer.stage_index,
                    node_id=peer.node_id,
                    context=client_context(
                        own, trusted_pem=peer.certificate, alpn=[PROTOCOL]
                    ),
                )
                for peer in config.peers
            }
        except OSError as error:  # of OpenSSL as well
            raise ConfigError(
                f"tls: {config.certificate_path} and {config.key_path} cannot be used "
                f"as certificate and key: {error.strerror or error}"
            ) from error

    @classmethod
    def of(cls, config: StageConfig) -> StageTls | None:
        """What the configuration asks for."""
        return None if config.tls is None else cls(config.stage_index, config.tls)

    def place(self, stage_index: int) -> Place:
        """The place to dial, or to compare a dialler with.

        Args:
            stage_index: The stage; -1 for a driver, who must be of this node itself.

        Raises:
            TlsRefusedError: The chain has no such place.
        """
        place = self._places.get(self._index if stage_index < 0 else stage_index)
        if place is None:
            raise TlsRefusedError(f"tls names no node for stage {stage_index}")
        return place

    def accepted(
        self, plain: socket.socket, wait_readable: Callable[[], None]
    ) -> tuple[TlsSocket, str]:
        """Make the handshake with a dialler; return its key too, to be compared.

        Raises:
            TlsRefusedError: It is none of this chain.
            OSError: The connection broke.
        """
        connection = TlsSocket(plain, self._server, is_server=True)
        key = connection.shake_hands(wait_readable)
        _check_protocol(connection)
        return connection, key


def _check_protocol(connection: TlsSocket) -> None:
    if connection.protocol != PROTOCOL:
        raise TlsRefusedError(
            f"the other end does not speak {PROTOCOL}: it is no stage connection"
        )
