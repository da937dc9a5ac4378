"""How a coordinator picks and learns terms."""

from __future__ import annotations

import pytest

from skippyd.core.coordinator.instant import NS_PER_MS, Instant
from skippyd.core.coordinator.memory import TERM_HORIZON_NS
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    PreparationState,
    PreparationStatus,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    Reply,
    Request,
    StageReady,
    StageStopped,
    StopFailed,
)
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    PrepareRefusalReason,
    RejectReason,
    StopRefusalReason,
)
from skippyd.core.coordinator.terms import learn_term, next_term, run_of
from skippyd.core.coordinator.verdict import (
    Accepted,
    LoadRefused,
    PrepareRefused,
    Rejected,
    StopRefused,
)
from skippyd.ids import Term, UnixMs
from support.claims import claim, load_of, ready_status, stop_of


NOW = Instant(UnixMs(1_000), 0)
CLOCK_NS = 1_000 * NS_PER_MS
LOAD = load_of(claim(10))
CANCEL = CancelPrepareStage(
    key=LOAD.key, stage=LOAD.stage, coordinator_term=Term(10), shutdown_generation=1
)


def rejected_at(current: int | None) -> Rejected:
    return Rejected(
        claim=claim(10),
        reason=RejectReason.STALE_TERM,
        current_term=None if current is None else Term(current),
    )


SEEN = Term(77)
REPLIES: list[tuple[Reply, int]] = [
    (ClaimAnswer(verdict=rejected_at(77), instance_id=""), 77),
    (ProbeAnswer(verdict=rejected_at(77), fenced_runs=(), instance_id=""), 77),
    (ClaimAnswer(verdict=rejected_at(None), instance_id=""), 5),
    (ClaimAnswer(verdict=Accepted(claim(99)), instance_id=""), 5),
    (
        LoadFailed(
            stage=LOAD.stage,
            refusal=LoadRefused(
                reason=LoadRefusalReason.TERM_MISMATCH, term=Term(1), current_term=SEEN
            ),
        ),
        77,
    ),
    (
        StopFailed(
            stage=LOAD.stage,
            refusal=StopRefused(
                reason=StopRefusalReason.STALE_TERM, term=Term(1), current_term=SEEN
            ),
        ),
        77,
    ),
    (
        PrepareFailed(
            stage=LOAD.stage,
            refusal=PrepareRefused(
                reason=PrepareRefusalReason.STALE_TERM, term=Term(1), current_term=SEEN
            ),
        ),
        77,
    ),
    (StageReady(ready_status(LOAD)), 5),
    (StageStopped(LOAD.stage), 5),
    (PreparationStatus(stage=LOAD.stage, state=PreparationState.ASSIGNED), 5),
]


def test_the_next_term_is_above_all_seen_and_never_below_the_clock() -> None:
    assert next_term(Term(0), NOW) == CLOCK_NS
    assert next_term(Term(CLOCK_NS), NOW) == CLOCK_NS + 1
    assert next_term(Term(CLOCK_NS + 9), NOW) == CLOCK_NS + 10
    assert next_term(Term(0), Instant(UnixMs(0), 0)) == 1
    assert next_term(Term(-5), Instant(UnixMs(-9), 0)) == 1


@pytest.mark.parametrize(("reply", "expected"), REPLIES)
def test_refusals_teach_the_term_to_exceed(reply: Reply, expected: int) -> None:
    assert learn_term(Term(5), reply, NOW) == expected


def test_a_term_learnt_never_lowers_the_newest_seen() -> None:
    answer = ClaimAnswer(verdict=rejected_at(77), instance_id="")

    assert learn_term(Term(78), answer, NOW) == 78


def test_an_absurd_term_is_not_learnt() -> None:
    limit = CLOCK_NS + TERM_HORIZON_NS
    too_far = ClaimAnswer(verdict=rejected_at(limit), instance_id="")
    in_reach = ClaimAnswer(verdict=rejected_at(limit - 1), instance_id="")
    at_the_end = Instant(UnixMs(2**63 // NS_PER_MS), 0)
    last = ClaimAnswer(verdict=rejected_at(2**63 - 1), instance_id="")

    assert learn_term(Term(5), too_far, NOW) == 5
    assert learn_term(Term(5), in_reach, NOW) == limit - 1
    assert learn_term(Term(5), last, at_the_end) == 5


@pytest.mark.parametrize(
    "request_",
    [
        ProbeClaim(claim(10)),
        ClaimCoordinator(claim(10)),
        PrepareStage(LOAD),
        LOAD,
        stop_of(LOAD),
        CANCEL,
    ],
)
def test_every_request_is_about_one_run(request_: Request) -> None:
    assert run_of(request_) == (10, "run-a-10")
