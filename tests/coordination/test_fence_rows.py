"""A record comes back from its row as it was."""

from __future__ import annotations

import attrs
import pytest

from skippyd.coordination.fence_rows import record_of, row_of
from skippyd.core.coordinator.memory import TERM_LIMIT, FenceRecord, Tombstone
from skippyd.ids import RunId, Term
from support.claims import KEY, claim


STONES = (
    Tombstone(Term(TERM_LIMIT - 1), RunId("run-ü")),
    Tombstone(Term(3), RunId("")),
)
RECORDS = (
    FenceRecord(key=KEY, claim=claim(TERM_LIMIT - 1)),
    FenceRecord(key=KEY, claim=claim(7), tombstones=STONES),
    FenceRecord(key=KEY, tombstones=STONES),
)


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_comes_back_as_it_was(record: FenceRecord) -> None:
    assert record_of(row_of(record)) == record


def test_a_claim_with_a_hole_is_no_claim() -> None:
    row = row_of(RECORDS[0])

    with pytest.raises(ValueError, match="empty field"):
        record_of((*row[:6], None, *row[7:]))
    with pytest.raises(ValueError, match="without a lease"):
        record_of((*row[:9], None, row[10]))


def test_every_field_of_a_claim_has_its_column() -> None:
    """A new field of the epoch must not be forgotten on the disk."""
    epoch = RECORDS[0].claim.epoch if RECORDS[0].claim else None
    assert epoch is not None
    values = [v for v in attrs.astuple(epoch, recurse=False) if isinstance(v, str)]

    assert set(values) <= set(row_of(RECORDS[0]))
