"""One row of a fence store and the record that it stands for, both ways."""

from __future__ import annotations

import json

from skippyd.core.coordinator.claim import ClaimEpoch, ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.memory import FenceRecord, Tombstone
from skippyd.ids import CoordinatorId, ModelId, RunId, Term, TopologyId, UnixMs


SCHEMA = """
CREATE TABLE store (
  instance_id TEXT NOT NULL, counter INTEGER NOT NULL, quarantine TEXT
) STRICT;
CREATE TABLE fence (
  model_id TEXT NOT NULL, package_ref TEXT NOT NULL, manifest_sha256 TEXT NOT NULL,
  term INTEGER NOT NULL,
  topology_id TEXT, run_id TEXT, coordinator_id TEXT,
  participant_set_hash TEXT, topology_hash TEXT, lease_until_unix_ms INTEGER,
  tombstones TEXT NOT NULL,
  PRIMARY KEY (model_id, package_ref, manifest_sha256)
) STRICT, WITHOUT ROWID;
"""
COLUMNS = (
    "model_id, package_ref, manifest_sha256, term, topology_id, run_id, "
    "coordinator_id, participant_set_hash, topology_hash, lease_until_unix_ms, "
    "tombstones"
)
_VALUES = ", ".join("?" * len(COLUMNS.split(", ")))
_CHANGES = ", ".join(f"{c} = excluded.{c}" for c in COLUMNS.split(", ")[3:])
UPSERT = (
    f"INSERT INTO fence ({COLUMNS}) VALUES ({_VALUES}) "  # noqa: S608 - our own words
    "ON CONFLICT (model_id, package_ref, manifest_sha256) "
    f"DO UPDATE SET {_CHANGES} WHERE excluded.term >= fence.term"
)

Row = tuple[
    str,
    str,
    str,
    int,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    int | None,
    str,
]


def row_of(record: FenceRecord) -> Row:
    """The row of a record; term 0 when only stops are remembered."""
    stones = [[str(stone.term), stone.run_id] for stone in record.tombstones]
    key, claim = record.key, record.claim
    named = (key.model_id, key.package_ref, key.manifest_sha256)
    tombstones = json.dumps(stones)
    if claim is None:
        return (*named, 0, None, None, None, None, None, None, tombstones)
    epoch = claim.epoch
    return (
        *named,
        claim.term,
        epoch.topology_id,
        epoch.run_id,
        epoch.coordinator_id,
        epoch.participant_set_hash,
        epoch.topology_hash,
        claim.lease_until_unix_ms,
        tombstones,
    )


def record_of(row: Row) -> FenceRecord:
    """The record of a row.

    Raises:
        ValueError, TypeError: It is not a row that `row_of` made.
    """
    key = ClaimKey(model_id=ModelId(row[0]), package_ref=row[1], manifest_sha256=row[2])
    tombstones = tuple(
        Tombstone(Term(int(term)), RunId(str(run_id)))
        for term, run_id in json.loads(row[10])
    )
    return FenceRecord(key=key, claim=_claim(key, row), tombstones=tombstones)


def _claim(key: ClaimKey, row: Row) -> CoordinatorClaim | None:
    term, texts, lease = row[3], row[4:9], row[9]
    if term == 0:
        return None
    topology_id, run_id, coordinator_id, participants, topology = (
        _text(text) for text in texts
    )
    if lease is None:
        raise ValueError("a claim without a lease")
    return CoordinatorClaim(
        epoch=ClaimEpoch(
            key=key,
            topology_id=TopologyId(topology_id),
            run_id=RunId(run_id),
            coordinator_id=CoordinatorId(coordinator_id),
            participant_set_hash=participants,
            topology_hash=topology,
        ),
        term=Term(term),
        lease_until_unix_ms=UnixMs(lease),
    )


def _text(value: str | None) -> str:
    if value is None:
        raise ValueError("a claim with an empty field")
    return value
