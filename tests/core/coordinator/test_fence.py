"""What one node remembers of claims: terms, leases, quarantine."""

from __future__ import annotations

import attrs
import pytest

from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import MAX_LEASE_MS, NS_PER_MS, Instant
from skippyd.core.coordinator.memory import (
    MAX_KEYS,
    TERM_HORIZON_NS,
    TERM_LIMIT,
    FenceRecord,
    FenceSnapshot,
    Lease,
    PersistFence,
    PersistQuarantine,
)
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    RejectReason,
    StopRefusalReason,
)
from skippyd.core.coordinator.verdict import (
    Accepted,
    FencingInProgress,
    Rejected,
    Superseded,
)
from skippyd.ids import Term, UnixMs
from support.claims import KEY, claim, load_of
from support.fences import (
    NOW,
    fence_with,
    load_reason,
    reject_reason,
    restarted,
    stop_reason,
)


# Claims.


def test_the_first_claim_is_accepted_and_persisted() -> None:
    offered = claim(10)

    verdict, persist = fence_with().offer(offered, NOW)

    assert verdict == Accepted(offered)
    assert persist == (PersistFence(FenceRecord(key=KEY, claim=offered)),)


def test_a_newer_term_supersedes() -> None:
    verdict, _ = fence_with(claim(10)).offer(claim(11), NOW)

    assert verdict == Superseded(claim(11), Term(10))


def test_a_shape_defect_is_refused_first_and_carries_the_current_term() -> None:
    fence = fence_with(claim(10))
    offered = claim(9, lease=1_000)

    verdict = fence.probe(offered, NOW)

    assert verdict == Rejected(
        claim=offered, reason=RejectReason.EXPIRED_LEASE, current_term=Term(10)
    )
    assert isinstance(verdict, Rejected)
    assert verdict.text == "coordinator claim lease is expired"


def test_a_stale_term_is_refused_with_both_terms_even_when_the_lease_is_over() -> None:
    fence = fence_with(claim(11, lease=2_000))
    later = NOW.later(10_000)

    verdict = fence.probe(claim(10, lease=99_000), later)

    assert isinstance(verdict, Rejected)
    assert verdict.text == "stale coordinator term 10 < 11"
    assert verdict.current_term == 11


def test_one_term_has_one_identity() -> None:
    fence = fence_with(claim(10))

    for other in (
        claim(10, coordinator="b"),
        claim(10, run="other"),
        claim(10, participants="other"),
        claim(10, topology="other"),
    ):
        assert reject_reason(fence, other) is RejectReason.CONFLICTING_SAME_TERM


def test_each_model_artifact_has_its_own_claim() -> None:
    other = claim(5, key=attrs.evolve(KEY, package_ref="hf://org/other"))
    fence = fence_with(claim(10), other)

    assert fence.claim_of(KEY) == claim(10)
    assert fence.claim_of(other.key) == other
    assert [r.key for r in fence.snapshot().records] == [other.key, KEY]


def test_a_repeated_claim_gets_the_same_answer_and_writes_nothing() -> None:
    fence = fence_with(claim(10))

    assert fence.offer(claim(10), NOW) == (Accepted(claim(10)), ())


def test_a_probe_stores_nothing() -> None:
    fence = fence_with(claim(10))
    before = fence.snapshot()

    assert isinstance(fence.probe(claim(11), NOW), Superseded)
    assert fence.snapshot() == before
    assert fence.lease_of(KEY) == Lease.received(claim(10), NOW)


def test_terms_are_bounded_by_clock_build_date_and_current_term() -> None:
    """Contract: above the newest of the three + 366 days, or from 2^63 on."""
    clock_ns = NOW.unix_ms * NS_PER_MS
    limit = clock_ns + TERM_HORIZON_NS
    too_far = RejectReason.TERM_TOO_FAR_AHEAD

    assert reject_reason(fence_with(), claim(limit + 1)) is too_far
    built = ClaimFence.restore(FenceSnapshot(instance_id="s"), NOW, build_date_ns=limit)
    assert isinstance(built.probe(claim(limit + TERM_HORIZON_NS), NOW), Accepted)
    assert reject_reason(built, claim(limit + TERM_HORIZON_NS + 1)) is too_far
    ahead = fence_with(claim(limit))
    assert isinstance(ahead.probe(claim(limit + TERM_HORIZON_NS), NOW), Superseded)
    old = FenceRecord(key=KEY, claim=claim(TERM_LIMIT - 2))
    full = FenceSnapshot(instance_id="s", records=(old,))
    last = ClaimFence.restore(full, NOW)
    assert isinstance(last.probe(claim(TERM_LIMIT - 1), NOW), Superseded)
    assert reject_reason(last, claim(TERM_LIMIT)) is too_far


def test_the_number_of_remembered_models_is_bounded_but_none_is_forgotten() -> None:
    records = tuple(
        FenceRecord(key=attrs.evolve(KEY, package_ref=str(n))) for n in range(MAX_KEYS)
    )
    snapshot = FenceSnapshot(instance_id="s", records=records)
    fence = ClaimFence.restore(snapshot, NOW)

    assert reject_reason(fence, claim(10)) is RejectReason.TOO_MANY_MODELS
    assert isinstance(fence.probe(claim(10, key=records[0].key), NOW), Accepted)
    early = StopRefusalReason.TOO_MANY_STOPS
    assert stop_reason(fence, load_of(claim(10))) is early


# Leases, on two clocks.


def test_a_load_needs_both_clocks_before_the_end_of_the_lease() -> None:
    """I4: both ends are exclusive, at the very millisecond no load starts."""
    fence = fence_with(claim(10, lease=10_000))
    load = load_of(claim(10))
    expired = LoadRefusalReason.EXPIRED_LEASE

    assert load_reason(fence, load) is None
    assert load_reason(fence, load, now=NOW.later(8_999)) is None
    assert load_reason(fence, load, now=NOW.later(9_000)) is expired
    set_back = Instant(UnixMs(0), NOW.boottime_ms + 9_000)
    assert load_reason(fence, load, now=set_back) is expired
    set_ahead = Instant(UnixMs(10_000), NOW.boottime_ms)
    assert load_reason(fence, load, now=set_ahead) is expired


def test_no_lease_is_longer_than_the_longest() -> None:
    lease = Lease.received(claim(10, lease=10 * MAX_LEASE_MS), NOW)

    assert lease.deadline_boottime_ms == NOW.boottime_ms + MAX_LEASE_MS


def test_a_renewal_never_shortens_and_is_persisted_when_it_prolongs() -> None:
    fence = fence_with(claim(10, lease=10_000))
    shorter, longer = claim(10, lease=5_000), claim(10, lease=20_000)

    assert fence.offer(shorter, NOW) == (Accepted(shorter), ())
    assert fence.lease_of(KEY) == Lease.received(claim(10, lease=10_000), NOW)
    verdict, persist = fence.offer(longer, NOW)
    assert verdict == Accepted(longer)
    assert persist == (PersistFence(FenceRecord(key=KEY, claim=longer)),)
    assert fence.lease_of(KEY) == Lease.received(longer, NOW)


def test_a_renewal_keeps_the_later_deadline_when_the_wall_clock_ran_ahead() -> None:
    fence = fence_with(claim(10, lease=10_000))
    ahead = Instant(UnixMs(9_999), NOW.boottime_ms)

    fence.offer(claim(10, lease=10_001), ahead)

    lease = fence.lease_of(KEY)
    assert lease is not None
    assert lease.until_unix_ms == 10_001
    assert lease.deadline_boottime_ms == NOW.boottime_ms + 9_000


def test_a_late_duplicate_does_not_revive_a_lease_when_the_clock_was_set_back() -> None:
    fence = fence_with(claim(10, lease=10_000))
    set_back = Instant(UnixMs(1_000), NOW.boottime_ms + 9_000)

    verdict, _ = fence.offer(claim(10, lease=10_000), set_back)

    assert isinstance(verdict, Rejected)
    assert verdict.reason is RejectReason.EXPIRED_LEASE
    renewed, _ = fence.offer(claim(10, lease=10_001), set_back)
    assert isinstance(renewed, Accepted)
    assert fence.is_lease_held(KEY, set_back)


def test_after_a_restart_no_lease_is_held_until_the_same_claim_comes_again() -> None:
    fence = restarted(fence_with(claim(10)))
    load = load_of(claim(10))

    assert fence.claim_of(KEY) == claim(10)
    assert fence.lease_of(KEY) is None
    assert not fence.is_lease_held(KEY, NOW)
    assert load_reason(fence, load) is LoadRefusalReason.LEASE_NOT_HELD
    assert fence.offer(claim(10), NOW) == (Accepted(claim(10)), ())
    assert load_reason(fence, load) is None


# Quarantine.


def test_a_node_that_may_have_forgotten_refuses_claims_for_the_longest_lease() -> None:
    forgetful = FenceSnapshot(instance_id="new store", is_quarantined=True)
    fence = ClaimFence.restore(forgetful, NOW)
    end = NOW.later(MAX_LEASE_MS)

    assert reject_reason(fence, claim(10)) is RejectReason.QUARANTINED
    assert fence.quarantined_until_boottime_ms == fence.next_deadline()
    assert fence.next_deadline() == end.boottime_ms
    assert fence.snapshot().is_quarantined
    assert fence.expire(NOW.later(MAX_LEASE_MS - 1)) == ()
    assert fence.expire(end) == (PersistQuarantine("new store"),)
    assert fence.next_deadline() is None
    assert not fence.snapshot().is_quarantined
    late = claim(10, lease=end.unix_ms + 1)
    assert isinstance(fence.probe(late, end), Accepted)


def test_the_wall_clock_does_not_end_a_quarantine_but_the_operator_does() -> None:
    forgetful = FenceSnapshot(instance_id="new store", is_quarantined=True)
    fence = ClaimFence.restore(forgetful, NOW)

    ahead = Instant(UnixMs(NOW.unix_ms + 2 * MAX_LEASE_MS), NOW.boottime_ms)
    assert fence.expire(ahead) == ()
    assert fence.lift_quarantine() == (PersistQuarantine("new store"),)
    assert fence.lift_quarantine() == ()
    assert isinstance(fence.probe(claim(10), NOW), Accepted)
    assert fence.instance_id == "new store"


def test_a_new_node_with_a_new_store_votes_at_once() -> None:
    assert isinstance(fence_with().probe(claim(10), NOW), Accepted)


@pytest.mark.parametrize("term", [1, 7])
def test_an_unfinished_claim_is_told_so(term: int) -> None:
    assert FencingInProgress(claim(term)).text == "fencing in progress"
