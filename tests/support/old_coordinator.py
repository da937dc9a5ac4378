"""The word of an old coordinator, said once more by hand. Knows nothing of the package."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from support.raw_control import RawControl, connect_here


if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from support.daemons import Daemon

GENERATION = 8
FEATURES = (
    "stage-control",
    "stage-generation-8",
    "status-list",
    "local-gguf-content-id-v1",
)
KEY_FIELDS = ("model_id", "package_ref", "manifest_sha256")
EPOCH_FIELDS = (
    "topology_id",
    "run_id",
    "coordinator_id",
    "participant_set_hash",
    "topology_hash",
)
LEASE_MS = 3_600_000
DEADLINE_MS = 15_000


def claim_again(
    old: Daemon,
    at: Daemon,
    row: Mapping[str, Any],
    *,
    connect: Callable[[int], socket.socket] = connect_here,
) -> str:
    """Offer a claim that a node has accepted before, with a fresh lease.

    Args:
        old: Whose key is shown; its coordinator made the claim.
        at: The node that is asked.
        row: The claim, as `skippyctl claims` showed it.
        connect: How the node's port is reached.

    Returns:
        The kind of the verdict, or the name of the refusal.
    """
    requester = {"generation": GENERATION, "requester_id": row["coordinator_id"]}
    with RawControl(at.control_port, old.folder / "state", connect) as control:
        assert " 101 " in control.upgrade()
        hello = {"features": FEATURES, "version": "0.1.0", "name": old.name}
        control.say("hello", requester | hello)
        assert "result" in control.answer()
        command = {"request": {"claim": _claim(row)}}
        control.say(
            "claim", requester | {"deadline_ms": DEADLINE_MS, "command": command}
        )
        answer = control.answer()
    verdict = answer["result"]["verdict"]
    return str(verdict.get("reason") or verdict["kind"])


def _claim(row: Mapping[str, Any]) -> dict[str, Any]:
    key = {name: row[name] for name in KEY_FIELDS}
    return {
        "epoch": {"key": key} | {name: row[name] for name in EPOCH_FIELDS},
        "term": row["term"],
        "lease_until_unix_ms": int(time.time() * 1000) + LEASE_MS,
    }
