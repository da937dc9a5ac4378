"""The documents of the admin socket: what `skippyctl` shows and prints with `--json`.

A leaf: nothing but attrs. They lie in `schema_*`, so that a command that needs one does
not pay for all; here they are together. Keys are fixed by the contract ("Command
output"); terms, session and request ids are decimal strings. An optional key that is
None is written as null, in events it is left out.
"""

from __future__ import annotations

import attrs

from skippyd.admin.api import API, HELLO, ITEM, PATH
from skippyd.admin.schema_changes import (
    Deployment,
    Done,
    Invitation,
    Joined,
)
from skippyd.admin.schema_checks import (
    CheckRow,
    Doctor,
    Fence,
    FenceRow,
)
from skippyd.admin.schema_lists import (
    ClaimRow,
    Claims,
    LaneRow,
    Lanes,
    LeaseRow,
    Leases,
    NodeRow,
    Nodes,
    SessionRow,
    Sessions,
)
from skippyd.admin.schema_live import (
    Distribution,
    Event,
    Events,
    LogRow,
    Logs,
    RingRow,
    SpanRow,
    Telemetry,
    present_keys,
)
from skippyd.admin.schema_status import (
    DaemonStatus,
    RunStatus,
    SafeMode,
    SafeModeReport,
    StageRow,
    Status,
)


__all__ = [
    "API",
    "HELLO",
    "ITEM",
    "PATH",
    "CheckRow",
    "ClaimRow",
    "Claims",
    "DaemonStatus",
    "Deployment",
    "Distribution",
    "Doctor",
    "Done",
    "Event",
    "Events",
    "Fence",
    "FenceRow",
    "Hello",
    "Invitation",
    "Joined",
    "LaneRow",
    "Lanes",
    "LeaseRow",
    "Leases",
    "LogRow",
    "Logs",
    "NodeRow",
    "Nodes",
    "Nothing",
    "RingRow",
    "RunStatus",
    "SafeMode",
    "SafeModeReport",
    "SessionRow",
    "Sessions",
    "SpanRow",
    "StageRow",
    "Status",
    "Telemetry",
    "present_keys",
]


@attrs.frozen
class Nothing:
    """The parameters of a method that takes none."""


@attrs.frozen(kw_only=True)
class Hello:
    """What both sides say first.

    Args:
        api: Version of the methods.
        version: Version of the program, for messages only.
    """

    schema: str = "skippy.hello/1"
    api: int
    version: str
