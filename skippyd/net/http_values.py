"""The values of the HTTP/1.1 server: limits, requests, responses, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.errors import SkippyError
from skippyd.units import KIB, MIB


if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen(kw_only=True)
class HttpLimits:
    """What one client, and all of them together, may cost.

    Args:
        header_bytes: Request line and headers.
        header_count: Number of header lines.
        target_bytes: The request target alone.
        body_bytes: One request body.
        total_body_bytes: All bodies held at one time.
        header_s: From the first wait (or byte) to a complete head.
        idle_s: Between two requests on one connection.
        body_grace_s: A body may take this long at any rate, and then one second
            more for each `body_bytes_per_s` received.
        body_bytes_per_s: Slowest average rate of a body after the grace.
        write_s: Without any progress of a write.
        linger_s: Reading on after a refusal, so that the client sees it.
        drain_s: From the begin of a drain to the end of everything.
        connections: Of all clients.
        connections_per_address: Of one client address.
    """

    header_bytes: int = 32 * KIB
    header_count: int = 100
    target_bytes: int = 8 * KIB
    body_bytes: int = 8 * MIB
    total_body_bytes: int = 64 * MIB
    header_s: float = 10.0
    idle_s: float = 75.0
    body_grace_s: float = 10.0
    body_bytes_per_s: int = KIB
    write_s: float = 30.0
    linger_s: float = 2.0
    drain_s: float = 10.0
    connections: int = 512
    connections_per_address: int = 64


@attrs.frozen
class HttpRequest:
    """One request, complete with its body.

    Args:
        method: As sent, such as `POST`.
        path: The target before `?`, still percent-encoded.
        headers: Lower-case names; of a repeated name the values joined by commas.
        body: Decoded from its transfer coding.
    """

    method: str
    path: str
    headers: Mapping[str, str] = attrs.field(kw_only=True)
    body: bytes = attrs.field(kw_only=True, repr=False)


@attrs.frozen
class HttpResponse:
    """A response that is complete; its length header is added when sent."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class HttpRefusalError(SkippyError):
    """A request the server does not hand to the handler; the connection ends."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class PeerGoneError(SkippyError):
    """The client hung up, or stopped reading for too long."""
