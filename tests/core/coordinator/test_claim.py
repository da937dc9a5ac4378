"""Shape checks of a claim, in their order, and what makes two claims one."""

from __future__ import annotations

import pytest

from skippyd.core.coordinator.claim import (
    MAX_FIELD_BYTES,
    MAX_LEASE_UNTIL_UNIX_MS,
    CoordinatorClaim,
    is_storable,
    shape_defect,
)
from skippyd.core.coordinator.reasons import RejectReason
from skippyd.ids import ModelId, RunId, Term, UnixMs
from support.claims import KEY, changed, claim


NOW = UnixMs(1_000)


def with_key(**fields: str) -> CoordinatorClaim:
    return claim(key=changed(KEY, **fields))


def with_epoch(**fields: str) -> CoordinatorClaim:
    good = claim()
    return changed(good, epoch=changed(good.epoch, **fields))


DEFECTS = [
    (with_key(model_id=""), RejectReason.MISSING_MODEL_ID),
    (with_key(package_ref=""), RejectReason.MISSING_PACKAGE_REF),
    (with_key(manifest_sha256=""), RejectReason.MISSING_MANIFEST_SHA256),
    (with_epoch(topology_id=""), RejectReason.MISSING_TOPOLOGY_RUN),
    (with_epoch(run_id=""), RejectReason.MISSING_TOPOLOGY_RUN),
    (with_epoch(coordinator_id=""), RejectReason.MISSING_COORDINATOR_ID),
    (claim(0), RejectReason.MISSING_TERM),
    (claim(-1), RejectReason.MISSING_TERM),
    (with_epoch(participant_set_hash=""), RejectReason.MISSING_HASHES),
    (with_epoch(topology_hash=""), RejectReason.MISSING_HASHES),
    (with_epoch(run_id="r" * (MAX_FIELD_BYTES + 1)), RejectReason.UNUSABLE_FIELD),
    (with_key(model_id="\ud800"), RejectReason.UNUSABLE_FIELD),
    (claim(lease=MAX_LEASE_UNTIL_UNIX_MS), RejectReason.UNUSABLE_FIELD),
    (claim(lease=NOW), RejectReason.EXPIRED_LEASE),
]


@pytest.mark.parametrize(("defective", "reason"), DEFECTS)
def test_each_defect_is_named(
    defective: CoordinatorClaim, reason: RejectReason
) -> None:
    assert shape_defect(defective, NOW) is reason


def test_a_well_shaped_claim_has_no_defect() -> None:
    assert shape_defect(claim(lease=NOW + 1), NOW) is None


def test_the_first_defect_in_the_documented_order_wins() -> None:
    """Make every field wrong, then mend one after another (skippy-facts 3.1)."""
    broken = claim(0, lease=0)
    empty = changed(
        broken.epoch,
        key=changed(KEY, model_id=ModelId(""), package_ref="", manifest_sha256=""),
        topology_id="",
        run_id="",
        coordinator_id="",
        participant_set_hash="",
        topology_hash="",
    )
    broken = changed(broken, epoch=empty)
    seen = []
    for mend in (
        {"key": changed(empty.key, model_id=ModelId("m"))},
        {"key": changed(KEY, manifest_sha256="")},
        {"key": KEY},
        {"topology_id": "t", "run_id": "r" * 600},
        {"coordinator_id": "c"},
    ):
        seen.append(shape_defect(broken, NOW))
        broken = changed(broken, epoch=changed(broken.epoch, **mend))
    seen.append(shape_defect(broken, NOW))
    broken = changed(broken, term=Term(1))
    seen.append(shape_defect(broken, NOW))
    hashes = {"participant_set_hash": "p", "topology_hash": "t"}
    broken = changed(broken, epoch=changed(broken.epoch, **hashes))
    seen.append(shape_defect(broken, NOW))
    short = changed(broken.epoch, run_id=RunId("r"))
    seen.append(shape_defect(changed(broken, epoch=short), NOW))

    assert seen == [
        RejectReason.MISSING_MODEL_ID,
        RejectReason.MISSING_PACKAGE_REF,
        RejectReason.MISSING_MANIFEST_SHA256,
        RejectReason.MISSING_TOPOLOGY_RUN,
        RejectReason.MISSING_COORDINATOR_ID,
        RejectReason.MISSING_TERM,
        RejectReason.MISSING_HASHES,
        RejectReason.UNUSABLE_FIELD,
        RejectReason.EXPIRED_LEASE,
    ]


def test_the_bound_of_a_field_counts_bytes() -> None:
    assert is_storable("x" * MAX_FIELD_BYTES)
    assert is_storable("é" * (MAX_FIELD_BYTES // 2))
    assert not is_storable("é" * (MAX_FIELD_BYTES // 2) + "x")


def test_a_renewal_is_the_same_claim_and_any_other_change_is_not() -> None:
    good = claim()

    assert good.is_same_identity(changed(good, lease_until_unix_ms=UnixMs(99_999)))
    assert not good.is_same_identity(claim(11, run="run-a-10"))
    assert not good.is_same_identity(claim(participants="other"))
