"""The daemon's configuration, `skippyd.toml`: one frozen value of all tables.

Precedence, key by key: a flag, the environment (`SKIPPY_TABLE_KEY`), the files of
`skippyd.toml.d` in their order, the file, the default. `layers.py` joins them and knows
where each value came from.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

from skippyd.config.complaints import Complaint, InvalidConfigError, show
from skippyd.config.endpoints import PORT_MAX, Endpoint
from skippyd.config.sizes import SizeBytes
from skippyd.ids import NodeId


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DAEMON_SCHEMA = "skippy.daemon/1"
DEFAULT_CONFIG_PATH = "/etc/skippyd/skippyd.toml"
DEFAULT_STATE_DIR = "/var/lib/skippyd"
DEFAULT_ADMIN_SOCKET = "/run/skippyd/admin.sock"
DEFAULT_CONTROL_BIND = Endpoint("127.0.0.1", 9401)
HOURS_4_MS = 4 * 60 * 60 * 1000
LONGEST_NAME = 128
NODE_ID = re.compile(r"[0-9a-f]{64}")
UNSPECIFIED = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound
"""Every address of a machine: good for listening, no place that others can reach."""


class LogLevel(StrEnum):
    """Least severity that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@attrs.frozen(kw_only=True)
class NodeTable:
    """`[node]`: who this is and where it keeps its word."""

    name: str = ""  # the host's name
    state_dir: str = DEFAULT_STATE_DIR
    log_level: LogLevel = LogLevel.INFO

    def __attrs_post_init__(self) -> None:
        """Check the name: other nodes take in no other one."""
        _refuse(_name_complaints(self.name))


@attrs.frozen(kw_only=True)
class ControlTable:
    """`[control]`: the connections between nodes, always TLS."""

    bind: Endpoint = DEFAULT_CONTROL_BIND
    advertise: Endpoint | None = None  # bind, as others are told to reach it

    def __attrs_post_init__(self) -> None:
        """What others are told must be a place that they can reach."""
        if self.advertise is not None:
            _refuse(_unreachable("advertise", self.advertise))


@attrs.frozen(kw_only=True)
class StagesTable:
    """`[stages]`: stage processes of this node."""

    host: str = "127.0.0.1"  # the address other nodes' stages reach
    first_port: int = 0  # with last_port a range to listen in; 0 takes free ports
    last_port: int = 0
    max_memory: SizeBytes | None = None  # no cap
    headroom: SizeBytes | None = None  # a tenth of what is detected
    allow_plaintext: bool = False  # no TLS off loopback; the same on every node

    def __attrs_post_init__(self) -> None:
        """Check the range of ports, and that the host is one that others can reach."""
        _refuse(self._complaints())

    def _complaints(self) -> Iterator[Complaint]:
        if self.host in UNSPECIFIED:
            yield Complaint(
                "host",
                f"{self.host!r} is every address of this machine, and other nodes' "
                "stages are told to connect to it; write the one address that they "
                "reach (ip -brief address), or 127.0.0.1 for this machine alone",
            )
        if not 0 <= self.first_port <= self.last_port <= PORT_MAX:
            yield Complaint(
                "first_port",
                f"{self.first_port} to {self.last_port} is no range of ports; "
                f"write 0 <= first_port <= last_port <= {PORT_MAX}",
            )


@attrs.frozen(kw_only=True)
class ModelsTable:
    """`[models]`: where model files lie."""

    paths: tuple[str, ...] = ()  # folders or files, looked through for GGUF files


@attrs.frozen(kw_only=True)
class OpenAiTable:
    """`[openai]`: the front door, which follows the published route."""

    bind: Endpoint | None = None  # no front door on this node
    api_keys_file: str | None = None  # one key a line; needed off loopback


@attrs.frozen(kw_only=True)
class AdminTable:
    """`[admin]`: the socket `skippyctl` speaks to."""

    socket: str = DEFAULT_ADMIN_SOCKET
    read_group: str = "skippy"
    write_group: str = "skippy-admin"


@attrs.frozen(kw_only=True)
class TimersTable:
    """`[timers]`: rhythms and patience, in milliseconds; the defaults are meant."""

    status_every_ms: int = 2_000
    drain_ms: int = 60_000  # how long running answers may take at a shutdown
    withdraw_grace_ms: int = 75_000  # how long a broken run keeps its route

    def __attrs_post_init__(self) -> None:
        """Every time is at least a few milliseconds and at most some hours."""
        _refuse(
            Complaint(name, f"{value} is outside 10 to {HOURS_4_MS}")
            for name, value in attrs.asdict(self).items()
            if not 10 <= value <= HOURS_4_MS  # noqa: PLR2004 - said in the message
        )


@attrs.frozen(kw_only=True)
class PeerTable:
    """One `[[peers]]`: a node trusted by hand, as `skippyctl join` would store it."""

    id: NodeId
    address: Endpoint
    certificate: str  # path of its PEM file
    name: str = ""

    def __attrs_post_init__(self) -> None:
        """Check the form of what is known without its certificate."""
        _refuse(self._complaints())

    def _complaints(self) -> Iterator[Complaint]:
        if NODE_ID.fullmatch(self.id) is None:
            yield Complaint(
                "id",
                f"{show(self.id)} is no node id; write the 64 hexadecimal digits, lower "
                "case, that `skippyctl nodes --json` shows there",
            )
        yield from _unreachable("address", self.address)
        yield from _name_complaints(self.name)


@attrs.frozen(kw_only=True)
class DaemonConfig:
    """All of `skippyd.toml`."""

    node: NodeTable = attrs.Factory(NodeTable)
    control: ControlTable = attrs.Factory(ControlTable)
    stages: StagesTable = attrs.Factory(StagesTable)
    models: ModelsTable = attrs.Factory(ModelsTable)
    openai: OpenAiTable = attrs.Factory(OpenAiTable)
    admin: AdminTable = attrs.Factory(AdminTable)
    timers: TimersTable = attrs.Factory(TimersTable)
    peers: tuple[PeerTable, ...] = ()

    def __attrs_post_init__(self) -> None:
        """A peer is there once: of two of them one would be passed over."""
        seen: set[NodeId] = set()
        twice: list[Complaint] = []
        for place, peer in enumerate(self.peers):
            if peer.id in seen:
                twice.append(Complaint(f"peers[{place}].id", "is there twice"))
            seen.add(peer.id)
        _refuse(twice)


def _refuse(complaints: Iterable[Complaint]) -> None:
    found = list(complaints)
    if found:
        raise InvalidConfigError(found)


def _unreachable(key: str, endpoint: Endpoint) -> Iterator[Complaint]:
    if endpoint.host in UNSPECIFIED or endpoint.port == 0:
        yield Complaint(
            key,
            f"{endpoint} is no place to connect to; write an address and a port that "
            "other nodes reach",
        )


def _name_complaints(name: str) -> Iterator[Complaint]:
    if len(name) > LONGEST_NAME or not name.isprintable():
        yield Complaint("name", f"is not up to {LONGEST_NAME} printable characters")
