"""Which loads and preparations fit what a node has accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator.load_rules import claim_mismatch
from skippyd.core.coordinator.messages import CancelPrepareStage, LoadStage, Origin
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    PrepareRefusalReason,
    StopRefusalReason,
)
from skippyd.core.coordinator.verdict import (
    LoadAllowed,
    LoadRefused,
    PrepareAllowed,
    PrepareRefused,
)
from skippyd.ids import CoordinatorId, RunId, Term, TopologyId
from support.claims import KEY, claim, load_of, local_load, stop_of
from support.fences import ADMIN, NETWORK, NOW, fence_with, load_reason


if TYPE_CHECKING:
    from skippyd.core.coordinator.fence import ClaimFence


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
