"""What one node remembers and refuses, rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import MAX_LEASE_MS, NS_PER_MS, Instant
from skippyd.core.coordinator.load_rules import claim_mismatch
from skippyd.core.coordinator.memory import (
    MAX_EARLY_STOPS,
    MAX_KEYS,
    TERM_HORIZON_NS,
    TERM_LIMIT,
    FenceRecord,
    FenceSnapshot,
    Lease,
    PersistFence,
    PersistQuarantine,
    Tombstone,
)
from skippyd.core.coordinator.messages import CancelPrepareStage, LoadStage, Origin
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    PrepareRefusalReason,
    RejectReason,
    StopRefusalReason,
)
from skippyd.core.coordinator.verdict import (
    Accepted,
    FencingInProgress,
    LoadAllowed,
    LoadRefused,
    PrepareAllowed,
    PrepareRefused,
    Rejected,
    StopAllowed,
    StopRefused,
    Superseded,
)
from skippyd.ids import CoordinatorId, RunId, StageId, Term, TopologyId, UnixMs
from support.claims import KEY, claim, load_of, local_load, stop_of


if TYPE_CHECKING:
    from skippyd.core.coordinator.claim import CoordinatorClaim


NOW = Instant(UnixMs(1_000), 50_000)
NETWORK, ADMIN = Origin.NETWORK, Origin.ADMIN


def fence_with(*claims: CoordinatorClaim, now: Instant = NOW) -> ClaimFence:
    fence = ClaimFence.restore(FenceSnapshot(instance_id="store"), now)
    for offered in claims:
        verdict, _ = fence.offer(offered, now)
        assert isinstance(verdict, Accepted | Superseded)
    return fence


def restarted(fence: ClaimFence, now: Instant = NOW) -> ClaimFence:
    return ClaimFence.restore(fence.snapshot(), now)


def reject_reason(fence: ClaimFence, offered: CoordinatorClaim) -> RejectReason:
    verdict, persist = fence.offer(offered, NOW)
    assert isinstance(verdict, Rejected)
    assert persist == ()
    assert verdict.claim == offered
    return verdict.reason


def load_reason(
    fence: ClaimFence, load: LoadStage, origin: Origin = NETWORK, now: Instant = NOW
) -> LoadRefusalReason | None:
    verdict = fence.check_load(load, origin, now)
    return verdict.reason if isinstance(verdict, LoadRefused) else None


def stop_reason(
    fence: ClaimFence,
    load: LoadStage,
    running: LoadStage | None = None,
    origin: Origin = NETWORK,
    generation: int | None = None,
) -> StopRefusalReason | None:
    stop = stop_of(load, generation=generation)
    verdict = fence.check_stop(stop, running, origin, NOW)
    return verdict.reason if isinstance(verdict, StopRefused) else None


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


# Loads.


def test_a_fenced_load_of_the_accepted_claim_is_allowed() -> None:
    verdict = fence_with(claim(10)).check_load(load_of(claim(10)), NETWORK, NOW)

    assert verdict == LoadAllowed(is_fenced=True)


def test_each_mismatch_of_a_load_is_named_in_the_documented_order() -> None:
    fence, good = fence_with(claim(10)), load_of(claim(10))
    nothing = attrs.evolve(
        good,
        coordinator_term=Term(0),
        stage=attrs.evolve(good.stage, run_id=RunId("x")),
        topology_hash="x",
    )
    reason = LoadRefusalReason

    assert load_reason(fence, nothing) is reason.MISSING_TERM
    load = attrs.evolve(nothing, coordinator_term=Term(9), coordinator_id=None)
    assert load_reason(fence, load) is reason.MISSING_COORDINATOR_ID
    load = attrs.evolve(load, coordinator_id=CoordinatorId("b"))
    assert load_reason(fence_with(), load) is reason.MISSING_CLAIM
    assert load_reason(fence, load) is reason.TERM_MISMATCH
    load = attrs.evolve(load, coordinator_term=Term(10))
    assert load_reason(fence, load) is reason.COORDINATOR_MISMATCH
    load = attrs.evolve(load, coordinator_id=CoordinatorId("a"))
    assert load_reason(fence, load) is reason.TOPOLOGY_RUN_MISMATCH
    load = attrs.evolve(load, stage=good.stage)
    assert load_reason(fence, load) is reason.HASH_MISMATCH
    load = attrs.evolve(good, participant_set_hash="x")
    assert load_reason(fence, load) is reason.HASH_MISMATCH
    assert claim_mismatch(good, claim(10)) is None


def test_a_load_of_another_topology_with_the_same_run_is_refused() -> None:
    good = load_of(claim(10))
    other = attrs.evolve(good.stage, topology_id=TopologyId("other"))

    reason = load_reason(fence_with(claim(10)), attrs.evolve(good, stage=other))

    assert reason is LoadRefusalReason.TOPOLOGY_RUN_MISMATCH


def test_a_refused_load_carries_both_terms_and_what_the_shell_knows() -> None:
    fence = fence_with(claim(11))
    load = load_of(claim(10))

    refused = fence.check_load(load, NETWORK, NOW)
    failed = fence.load_refusal(load, LoadRefusalReason.START_FAILED, "signal 6")

    assert isinstance(refused, LoadRefused)
    assert (refused.term, refused.current_term) == (10, 11)
    assert refused.text == "stage load term 10 differs from accepted term 11"
    assert failed.text == "the stage ended before it was ready: signal 6"
    assert fence_with().load_refusal(load, failed.reason).current_term is None


def test_an_unfenced_load_passes_from_the_admin_socket_only() -> None:
    fence = fence_with()

    assert fence.check_load(local_load(), ADMIN, NOW) == LoadAllowed(is_fenced=False)
    refused = load_reason(fence, local_load(), NETWORK)
    assert refused is LoadRefusalReason.UNFENCED_FROM_NETWORK


def test_an_unfenced_load_waits_until_the_claim_is_over_or_stopped() -> None:
    """I12: never while a fenced claim is live."""
    fence = fence_with(claim(10))
    load = local_load()

    assert load_reason(fence, load, ADMIN) is LoadRefusalReason.FENCED_CLAIM_LIVE
    assert load_reason(fence, load, ADMIN, NOW.later(9_000)) is None
    fence.bury(stop_of(load_of(claim(10))))
    assert load_reason(fence, load, ADMIN) is None


# Stops and tombstones.


def test_a_stop_of_the_running_stage_ends_it_for_good() -> None:
    fence, load = fence_with(claim(10)), load_of(claim(10))

    verdict = fence.check_stop(stop_of(load), load, NETWORK, NOW)
    (persist,) = fence.bury(stop_of(load))

    assert verdict == StopAllowed(ends_stage=True, leaves_tombstone=True)
    assert persist.record.tombstones == (Tombstone(Term(10), RunId("run-a-10")),)
    assert fence.bury(stop_of(load)) == ()
    for memory in (fence, restarted(fence)):
        memory.offer(claim(10), NOW)
        assert load_reason(memory, load) is LoadRefusalReason.RUN_STOPPED


def test_a_stale_stop_changes_nothing() -> None:
    fence = fence_with(claim(11))
    running = load_of(claim(11))

    stale = stop_reason(fence, load_of(claim(10)), running)

    assert stale is StopRefusalReason.STALE_TERM
    refused = fence.check_stop(stop_of(load_of(claim(10))), None, NETWORK, NOW)
    assert isinstance(refused, StopRefused)
    assert refused.text == "stale coordinator term 10 < 11"
    assert refused.current_term == 11


def test_a_stop_for_an_earlier_load_of_the_stage_is_stale() -> None:
    fence, running = fence_with(claim(10)), load_of(claim(10), generation=2)
    stale = StopRefusalReason.STALE_GENERATION

    assert stop_reason(fence, running, running, generation=1) is stale
    assert stop_reason(fence, running, running, generation=2) is None
    assert stop_reason(fence, running, running, generation=3) is None


def test_a_stop_of_an_unknown_run_at_the_accepted_term_is_idempotent() -> None:
    fence = fence_with(claim(10))
    stop = stop_of(load_of(claim(10, run="unknown")))

    verdict = fence.check_stop(stop, None, NETWORK, NOW)

    assert verdict == StopAllowed(ends_stage=False, leaves_tombstone=False)


def test_a_stop_that_overtakes_its_claim_keeps_the_run_from_starting() -> None:
    fence = fence_with(claim(10))
    early = stop_of(load_of(claim(20)))

    verdict = fence.check_stop(early, None, NETWORK, NOW)
    fence.bury(early)

    assert verdict == StopAllowed(ends_stage=False, leaves_tombstone=True)
    for memory in (fence, restarted(fence)):
        assert reject_reason(memory, claim(20)) is RejectReason.RUN_STOPPED
        verdict_of_newer, persist = memory.offer(claim(21), NOW)
        assert isinstance(verdict_of_newer, Superseded)
        assert persist[0].record.tombstones == ()


def test_early_stops_beyond_an_accepted_term_are_kept() -> None:
    fence = fence_with(claim(10))
    fence.bury(stop_of(load_of(claim(30))))

    _, (persist,) = fence.offer(claim(20), NOW)

    assert persist.record.tombstones == (Tombstone(Term(30), RunId("run-a-30")),)


def test_the_number_of_early_stops_is_bounded() -> None:
    fence = fence_with(claim(10))
    loads = [load_of(claim(20 + n)) for n in range(MAX_EARLY_STOPS + 1)]
    for load in loads[:-1]:
        assert stop_reason(fence, load) is None
        fence.bury(stop_of(load))

    assert stop_reason(fence, loads[-1]) is StopRefusalReason.TOO_MANY_STOPS
    assert stop_reason(fence, loads[0]) is None
    assert stop_reason(fence, load_of(claim(10))) is None


def test_a_stop_far_ahead_or_with_unusable_fields_is_refused() -> None:
    good = load_of(claim(10))
    nameless = attrs.evolve(good, stage=attrs.evolve(good.stage, stage_id=StageId("")))
    endless = attrs.evolve(good, key=attrs.evolve(KEY, package_ref="x" * 513))
    far = load_of(claim(TERM_LIMIT))

    assert stop_reason(fence_with(), nameless) is StopRefusalReason.UNUSABLE_FIELD
    assert stop_reason(fence_with(), endless) is StopRefusalReason.UNUSABLE_FIELD
    assert stop_reason(fence_with(), far) is StopRefusalReason.TERM_TOO_FAR_AHEAD


def test_a_stop_without_a_term_is_local_and_spares_fenced_stages() -> None:
    fence, fenced = fence_with(claim(10)), load_of(claim(10))
    local = local_load()
    network_only = StopRefusalReason.UNFENCED_FROM_NETWORK
    same_place = attrs.evolve(local, stage=fenced.stage)

    assert stop_reason(fence, local, local) is network_only
    assert stop_reason(fence, same_place, fenced, ADMIN) is StopRefusalReason.STALE_TERM
    assert fence.check_stop(stop_of(local), local, ADMIN, NOW) == StopAllowed(
        ends_stage=True, leaves_tombstone=False
    )
    assert fence.check_stop(stop_of(local), None, ADMIN, NOW) == StopAllowed(
        ends_stage=False, leaves_tombstone=False
    )


def test_a_fenced_stop_does_not_end_a_local_stage_of_the_same_name() -> None:
    local = local_load()
    named_alike = attrs.evolve(load_of(claim(10)), stage=local.stage)

    verdict = fence_with().check_stop(stop_of(named_alike), local, NETWORK, NOW)

    assert isinstance(verdict, StopAllowed)
    assert not verdict.ends_stage


# Preparations.


def prepare_reason_of(
    fence: ClaimFence, load: LoadStage, origin: Origin = NETWORK
) -> PrepareRefusalReason | None:
    verdict = fence.check_prepare(load, origin)
    return verdict.reason if isinstance(verdict, PrepareRefused) else None


def test_a_preparation_comes_before_its_claim() -> None:
    assert fence_with().check_prepare(load_of(claim(10)), NETWORK) == PrepareAllowed()
    fence = fence_with(claim(10))
    assert prepare_reason_of(fence, load_of(claim(11))) is None
    assert prepare_reason_of(fence, load_of(claim(10))) is None


def test_each_refusal_of_a_preparation_is_named() -> None:
    fence, reason = fence_with(claim(10)), PrepareRefusalReason
    nameless = attrs.evolve(load_of(claim(10)), key=attrs.evolve(KEY, package_ref=""))
    other = load_of(claim(10, run="other"))
    with_owner = attrs.evolve(local_load(), coordinator_id=CoordinatorId("a"))

    assert prepare_reason_of(fence, load_of(claim(9))) is reason.STALE_TERM
    assert prepare_reason_of(fence, other) is reason.CONFLICTING_SAME_TERM
    assert prepare_reason_of(fence, nameless) is reason.UNUSABLE_FIELD
    assert prepare_reason_of(fence, local_load()) is reason.UNFENCED_FROM_NETWORK
    assert prepare_reason_of(fence, with_owner, ADMIN) is reason.UNFENCED_FROM_NETWORK
    assert prepare_reason_of(fence, local_load(), ADMIN) is None
    refused = fence.check_prepare(load_of(claim(9)), NETWORK)
    assert isinstance(refused, PrepareRefused)
    assert refused.text == "stale coordinator term 9 < 10"
    assert fence_with().prepare_refusal(other, refused.reason).current_term is None


def test_cancelling_a_preparation_follows_the_rules_of_a_stop() -> None:
    fence, load = fence_with(claim(10)), load_of(claim(11), generation=2)

    def cancel(term: int, generation: int) -> StopRefusalReason | None:
        request = CancelPrepareStage(
            key=load.key,
            stage=load.stage,
            coordinator_term=Term(term),
            shutdown_generation=generation,
        )
        refused = fence.check_cancel(request, load, NETWORK, NOW)
        return None if refused is None else refused.reason

    assert cancel(10, 2) is StopRefusalReason.STALE_TERM
    assert cancel(11, 1) is StopRefusalReason.STALE_GENERATION
    assert cancel(11, 2) is None


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
