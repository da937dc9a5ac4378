"""Every refusal text, word for word."""

from __future__ import annotations

import pytest

from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    PrepareRefusalReason,
    RefusalReason,
    RejectReason,
    StopRefusalReason,
    refusal_text,
)
from skippyd.ids import Term


# The first ten are skippy-facts 3.1, the two of stops are skippy-facts 2.5.
TEXTS: list[tuple[RefusalReason, str]] = [
    (RejectReason.MISSING_MODEL_ID, "coordinator claim requires model_id"),
    (RejectReason.MISSING_PACKAGE_REF, "coordinator claim requires package_ref"),
    (
        RejectReason.MISSING_MANIFEST_SHA256,
        "coordinator claim requires manifest_sha256",
    ),
    (
        RejectReason.MISSING_TOPOLOGY_RUN,
        "coordinator claim requires topology_id and run_id",
    ),
    (RejectReason.MISSING_COORDINATOR_ID, "coordinator claim requires coordinator_id"),
    (RejectReason.MISSING_TERM, "coordinator claim requires non-zero term"),
    (
        RejectReason.MISSING_HASHES,
        "coordinator claim requires participant and topology hashes",
    ),
    (RejectReason.EXPIRED_LEASE, "coordinator claim lease is expired"),
    (RejectReason.STALE_TERM, "stale coordinator term 10 < 11"),
    (
        RejectReason.CONFLICTING_SAME_TERM,
        "conflicting coordinator claim for existing term",
    ),
    (
        RejectReason.UNUSABLE_FIELD,
        (
            "coordinator claim has a field over 512 bytes, of invalid Unicode, or a lease "
            "beyond 64 bits"
        ),
    ),
    (
        RejectReason.TERM_TOO_FAR_AHEAD,
        (
            "term too far ahead: 10 is more than 366 days in the future; set the "
            "coordinator's clock"
        ),
    ),
    (
        RejectReason.QUARANTINED,
        (
            "this node's fence store was lost or is older than it should be: it accepts no "
            "claim until the longest lease has passed, or until the operator runs "
            "`skippyctl fence init --i-know`"
        ),
    ),
    (
        RejectReason.RUN_STOPPED,
        "the run of term 10 was stopped here and is over; claim a new run",
    ),
    (
        RejectReason.TOO_MANY_MODELS,
        "this node already remembers claims for as many models as it can hold",
    ),
    (StopRefusalReason.STALE_TERM, "stale coordinator term 10 < 11"),
    (StopRefusalReason.STALE_GENERATION, "stale shutdown generation"),
    (
        StopRefusalReason.UNFENCED_FROM_NETWORK,
        "a stop without term is taken from the local admin socket only",
    ),
    (
        StopRefusalReason.UNUSABLE_FIELD,
        "stop has an empty field, a field over 512 bytes or of invalid Unicode",
    ),
    (
        StopRefusalReason.TERM_TOO_FAR_AHEAD,
        (
            "term too far ahead: 10 is more than 366 days in the future; set the "
            "coordinator's clock"
        ),
    ),
    (
        StopRefusalReason.TOO_MANY_STOPS,
        (
            "this node already remembers as many stops of unknown newer runs as it can "
            "hold; claim a newer term"
        ),
    ),
    (
        LoadRefusalReason.UNFENCED_FROM_NETWORK,
        "a load without term and coordinator is taken from the local admin socket only",
    ),
    (
        LoadRefusalReason.FENCED_CLAIM_LIVE,
        "coordinator term 11 holds this model here; stop its run first",
    ),
    (LoadRefusalReason.MISSING_TERM, "stage load requires non-zero term"),
    (LoadRefusalReason.MISSING_COORDINATOR_ID, "stage load requires coordinator_id"),
    (
        LoadRefusalReason.MISSING_CLAIM,
        "stage load requires an accepted coordinator claim for this model; claim first",
    ),
    (
        LoadRefusalReason.TERM_MISMATCH,
        "stage load term 10 differs from accepted term 11",
    ),
    (
        LoadRefusalReason.COORDINATOR_MISMATCH,
        "stage load coordinator differs from the one accepted at term 11",
    ),
    (
        LoadRefusalReason.TOPOLOGY_RUN_MISMATCH,
        "stage load topology or run differs from the one accepted at term 11",
    ),
    (
        LoadRefusalReason.HASH_MISMATCH,
        (
            "stage load participant or topology hash differs from the one accepted at "
            "term 11"
        ),
    ),
    (
        LoadRefusalReason.RUN_STOPPED,
        "the run of term 10 was stopped here and never starts again; claim a new run",
    ),
    (
        LoadRefusalReason.LEASE_NOT_HELD,
        "no lease is held since this node restarted; claim term 11 again",
    ),
    (
        LoadRefusalReason.EXPIRED_LEASE,
        "coordinator claim lease of term 11 is expired; claim again",
    ),
    (LoadRefusalReason.STALE_GENERATION, "stale shutdown generation"),
    (
        LoadRefusalReason.OTHER_STAGE_LIVE,
        "another stage of this model runs or starts on this node; stop it first",
    ),
    (LoadRefusalReason.SUPERSEDED, "superseded by newer coordinator term 11"),
    (LoadRefusalReason.STOPPED, "the stage was asked to stop"),
    (LoadRefusalReason.START_FAILED, "the stage ended before it was ready"),
    (
        PrepareRefusalReason.UNUSABLE_FIELD,
        (
            "stage preparation has an empty field, a field over 512 bytes or of invalid "
            "Unicode"
        ),
    ),
    (
        PrepareRefusalReason.UNFENCED_FROM_NETWORK,
        (
            "a preparation without term and coordinator is taken from the local admin "
            "socket only"
        ),
    ),
    (PrepareRefusalReason.STALE_TERM, "stale coordinator term 10 < 11"),
    (
        PrepareRefusalReason.CONFLICTING_SAME_TERM,
        "conflicting stage preparation for existing term",
    ),
    (PrepareRefusalReason.STALE_GENERATION, "stale shutdown generation"),
    (
        PrepareRefusalReason.TOO_MANY_PREPARATIONS,
        "this node already prepares as many stages as it can hold; cancel one",
    ),
]


@pytest.mark.parametrize(("reason", "text"), TEXTS)
def test_each_refusal_has_its_words(reason: RefusalReason, text: str) -> None:
    assert refusal_text(reason, Term(10), Term(11)) == text


def test_no_refusal_is_left_out() -> None:
    listed = {reason for reason, _ in TEXTS}

    assert listed == {
        *RejectReason,
        *LoadRefusalReason,
        *StopRefusalReason,
        *PrepareRefusalReason,
    }
