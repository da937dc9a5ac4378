"""Network endpoints as people write them: `host:port`, `[v6]:port`, `tcp://…`."""

from __future__ import annotations

import ipaddress
import re

import attrs

from skippyd.config.complaints import shorten, show
from skippyd.errors import ConfigError


PORT_MAX = 65_535
_LONGEST_HOST = 253  # RFC 1035, in presentation form
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


@attrs.frozen
class Endpoint:
    """A host and a TCP port; port 0 asks the system for a free one when binding."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether nothing outside this machine can reach the host."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return (
            f"[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.host}:{self.port}"
        )


def parse_endpoint(text: str, *, port_zero_allowed: bool = True) -> Endpoint:
    """Read an endpoint; a leading `tcp://` is accepted and dropped.

    Raises:
        ConfigError: Naming the text and the part of it that is wrong.
    """
    body = text.removeprefix("tcp://")
    host, separator, port_text = body.rpartition(":")
    if not separator or not host:
        raise ConfigError(
            f"{show(text)} is not an endpoint; write HOST:PORT, as in 127.0.0.1:19000"
        )
    port = _parse_port(port_text, text)
    if port == 0 and not port_zero_allowed:
        raise ConfigError(f"{show(text)} has port 0; a peer needs a real port")
    return Endpoint(_parse_host(host, text), port)


def _parse_port(port_text: str, whole: str) -> int:
    is_number = re.fullmatch(r"[0-9]{1,5}", port_text) is not None
    if not is_number or int(port_text) > PORT_MAX:
        raise ConfigError(
            f"{show(whole)} has port {shorten(port_text)!r}; "
            f"write a number from 0 to {PORT_MAX}"
        )
    return int(port_text)


def _parse_host(host: str, whole: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ConfigError(
                f"{show(whole)} has no IPv6 address in its brackets"
            ) from None
    if ":" in host:
        raise ConfigError(
            f"{show(whole)} has colons in its host; "
            "write an IPv6 address in brackets, as in [::1]:19000"
        )
    if len(host) > _LONGEST_HOST or not _HOST_NAME.fullmatch(host):
        raise ConfigError(f"{show(whole)} has no valid host name or address")
    return host
