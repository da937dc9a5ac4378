"""The TCP sockets of a daemon, bound before any part starts: a taken port is no surprise."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.config.endpoints import Endpoint
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.config.daemon import DaemonConfig

BACKLOG = 128


@attrs.frozen(kw_only=True)
class Listeners:
    """What is bound.

    Args:
        control: For other nodes.
        openai: For clients of the front door; None without one.
    """

    control: trio.SocketListener
    openai: trio.SocketListener | None

    @property
    def control_port(self) -> int:
        """The port that other nodes reach."""
        return int(self.control.socket.getsockname()[1])


@contextlib.contextmanager
def bound_listeners(config: DaemonConfig) -> Iterator[Listeners]:
    """Bind every address of the configuration; what nobody took over is closed.

    Raises:
        ConfigError: An address is taken or is not of this machine.
    """
    with contextlib.ExitStack() as sockets:
        control = _listen(config.control.bind, "[control] bind", sockets)
        bind = config.openai.bind
        openai = None if bind is None else _listen(bind, "[openai] bind", sockets)
        # Stages bind theirs later, on ports of their own: a wrong one is told now.
        check_address(Endpoint(config.stages.host, 0), "[stages] host")
        yield Listeners(control=control, openai=openai)


def wanted_addresses(config: DaemonConfig) -> Iterator[tuple[str, Endpoint]]:
    """The addresses that a daemon and its stages listen on, with their keys."""
    yield "[control] bind", config.control.bind
    if config.openai.bind is not None:
        yield "[openai] bind", config.openai.bind
    yield "[stages] host", Endpoint(config.stages.host, 0)


def check_address(endpoint: Endpoint, place: str) -> None:
    """Look whether an address is one of this machine, on a free port of it.

    Args:
        endpoint: What is to be listened on; a daemon that runs may have its port.
        place: Its key, for the message.

    Raises:
        ConfigError: It is not.
    """
    with contextlib.ExitStack() as tried:
        try:
            _bound(attrs.evolve(endpoint, port=0), tried)
        except OSError as error:
            raise _unbound(place, endpoint, error) from error


def _listen(
    endpoint: Endpoint, place: str, sockets: contextlib.ExitStack
) -> trio.SocketListener:
    try:
        listener = _bound(endpoint, sockets)
        listener.listen(BACKLOG)
    except OSError as error:
        raise _unbound(place, endpoint, error) from error
    return trio.SocketListener(trio.socket.from_stdlib_socket(listener))


def _bound(endpoint: Endpoint, sockets: contextlib.ExitStack) -> socket.socket:
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    sockets.callback(listener.close)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    return listener


def _unbound(place: str, endpoint: Endpoint, error: OSError) -> ConfigError:
    return ConfigError(
        f"{place} {endpoint}: {error.strerror or error}; choose a free port and an "
        "address of this machine"
    )
