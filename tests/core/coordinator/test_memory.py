"""Stops, the tombstones they leave, and how long a node keeps them."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.memory import (
    MAX_EARLY_STOPS,
    TERM_LIMIT,
    Tombstone,
)
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    RejectReason,
    StopRefusalReason,
)
from skippyd.core.coordinator.verdict import (
    StopAllowed,
    StopRefused,
    Superseded,
)
from skippyd.ids import RunId, StageId, Term
from support.claims import KEY, claim, load_of, local_load, stop_of
from support.fences import (
    ADMIN,
    NETWORK,
    NOW,
    fence_with,
    load_reason,
    reject_reason,
    restarted,
    stop_reason,
)


# Stops and tombstones.


def test_a_stop_of_the_running_stage_ends_it_for_good() -> None:
    fence, load = fence_with(claim(10)), load_of(claim(10))

    verdict = fence.check_stop(stop_of(load), load, NETWORK, NOW)
    (persist,) = fence.bury(stop_of(load))

    assert verdict == StopAllowed(ends_stage=True, leaves_tombstone=True)
    assert persist.record.tombstones == (Tombstone(Term(10), RunId("run-a-10")),)
    assert fence.bury(stop_of(load)) == ()
    for memory in (fence, restarted(fence)):
        assert reject_reason(memory, claim(10)) is RejectReason.RUN_STOPPED
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
