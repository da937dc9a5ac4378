"""Rules of the coordinator, each switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.patching import Change, Mutant, changed
from skippyd.core.coordinator import attempt as attempt_module
from skippyd.core.coordinator import campaign as campaign_module
from skippyd.core.coordinator import loading as loading_module
from skippyd.core.coordinator import quorum as quorum_module
from skippyd.core.coordinator.attempt import Attempt
from skippyd.core.coordinator.campaign import Campaign
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    PeerChanged,
    PeerLeaving,
    PersistTerm,
    ProveChain,
    PublishRoute,
    StageLost,
)
from skippyd.core.coordinator.instant import NS_PER_MS, Instant
from skippyd.core.coordinator.loading import LoadSequence
from skippyd.core.coordinator.phases import AttemptFailure, Phase
from skippyd.core.coordinator.quorum import Tally
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.serving import Serving
from skippyd.ids import NodeId, RunId, Term


if TYPE_CHECKING:
    from skippyd.core.coordinator.messages import ClaimAnswer
    from skippyd.core.coordinator.verdict import FencedRun


_claim = Attempt._claim
_count_claim = Attempt._count_claim
_go_on_loading = Attempt._go_on_loading
_lose_stage = Campaign._lose_stage
_take_loss = Campaign._take_loss
_fail = Campaign._fail


def _all_accepted_by_majority() -> tuple[Change, ...]:
    return ((Tally, "are_all_accepted", property(lambda tally: tally.has_quorum)),)


def _prepare_nothing(attempt: Attempt, now: Instant) -> tuple[CampaignEffect, ...]:
    return attempt._claim(now)


def _claim_unwritten(attempt: Attempt, now: Instant) -> tuple[CampaignEffect, ...]:
    return tuple(e for e in _claim(attempt, now) if not isinstance(e, PersistTerm))


def _count_any_store(
    attempt: Attempt, node_id: NodeId, answer: ClaimAnswer, now: Instant
) -> None:
    attempt._instance_ids[node_id] = answer.instance_id
    _count_claim(attempt, node_id, answer, now)


def _ignore_rejections(attempt: Attempt, now: Instant) -> tuple[CampaignEffect, ...]:
    attempt._rejections = ()
    return _conclude_claims(attempt, now)


_conclude_claims = Attempt._conclude_claims


def _is_never_blocking(attempt: Attempt, run: FencedRun) -> bool:
    return False


def _publish_unproved(
    attempt: Attempt, effects: tuple[CampaignEffect, ...], now: Instant
) -> tuple[CampaignEffect, ...]:
    wanted = _go_on_loading(attempt, effects, now)
    if not any(isinstance(effect, ProveChain) for effect in wanted):
        return wanted
    attempt.phase = Phase.PUBLISHING
    return (*wanted, PublishRoute(attempt.run))


def _lose_like_any(
    campaign: Campaign, event: StageLost, now: Instant
) -> tuple[CampaignEffect, ...]:
    return _lose_stage(campaign, attrs.evolve(event, is_fenced=False), now)


def _lose_what_leaves(
    campaign: Campaign, event: PeerLeaving, now: Instant
) -> tuple[CampaignEffect, ...]:
    return campaign._change_peer(PeerChanged(event.node_id, is_available=False), now)


def _take_any_loss(
    campaign: Campaign, event: StageLost, now: Instant
) -> tuple[CampaignEffect, ...]:
    return _take_loss(campaign, attrs.evolve(event, is_stopped=False), now)


def _fail_and_try_at_once(
    campaign: Campaign,
    attempt: Attempt,
    failure: AttemptFailure,
    now: Instant,
    jitter: float,
) -> tuple[CampaignEffect, ...]:
    effects = _fail(campaign, attempt, failure, now, jitter)
    return (*effects, *campaign._request_plan())


def _clock_only(newest_seen: Term, now: Instant) -> Term:
    return Term(max(1, now.unix_ms * NS_PER_MS))


def _learn_nothing(newest_seen: Term, *_: object) -> Term:
    return newest_seen


def _load_unclaimed(loads: LoadSequence, now: Instant) -> tuple[CampaignEffect, ...]:
    return loads._load(now)


def _load_first_to_last() -> tuple[Change, ...]:
    def first(loads: LoadSequence) -> object:
        stages = loads._run.plan.stages
        return stages[len(stages) - 1 - loads._cursor]

    return ((LoadSequence, "_stage", property(first)),)


class _Anything:
    """Equal to every run."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _name_runs_by_term() -> tuple[Change, ...]:
    named = property(lambda run: RunId(f"mesh-split-{run.term}"))
    return ((Run, "run_id", named),)


def _renew_never(serving: Serving, now: Instant) -> tuple[CampaignEffect, ...]:
    serving._renew_ms = now.boottime_ms + 10**9
    return ()


CAMPAIGN_MUTANTS: tuple[Mutant, ...] = (
    Mutant("quorum is a majority", changed(quorum_module, "quorum", lambda _: 1)),
    Mutant("every stage would accept before a claim", _all_accepted_by_majority),
    Mutant(
        "the parts are there before a claim",
        changed(Attempt, "_prepare", _prepare_nothing),
    ),
    Mutant(
        "a term is durable before a claim",
        changed(Attempt, "_claim", _claim_unwritten),
    ),
    Mutant(
        "a changed store is another stage",
        changed(Attempt, "_count_claim", _count_any_store),
    ),
    Mutant(
        "a refused claim ends the attempt",
        changed(Attempt, "_conclude_claims", _ignore_rejections),
    ),
    Mutant("a foreign run stays", changed(Attempt, "_is_blocking", _is_never_blocking)),
    Mutant(
        "a failed attempt is stopped everywhere",
        changed(Attempt, "abandon", lambda _: ()),
    ),
    Mutant(
        "an echo is compared",
        changed(loading_module, "echo_differences", lambda *_: ()),
    ),
    Mutant(
        "a chain is proved before the route",
        changed(Attempt, "_go_on_loading", _publish_unproved),
    ),
    Mutant("loads go from last to first", _load_first_to_last),
    Mutant(
        "only a claimed stage is loaded",
        changed(LoadSequence, "_next_stage", _load_unclaimed),
    ),
    Mutant(
        "a term is above all seen",
        changed(campaign_module, "next_term", _clock_only),
    ),
    Mutant(
        "terms are learnt from refusals",
        changed(campaign_module, "learn_term", _learn_nothing),
    ),
    Mutant(
        "a fenced coordinator stands by",
        changed(Campaign, "_lose_stage", _lose_like_any),
    ),
    Mutant(
        "what has claimed nothing yields to a fence",
        changed(Campaign, "yields_to_rivals", property(lambda _: False)),
    ),
    Mutant(
        "a draining node is moved away from",
        changed(Campaign, "_plan_around", lambda *_: ()),
    ),
    Mutant(
        "a run serves on while a node drains",
        changed(Campaign, "_plan_around", _lose_what_leaves),
    ),
    Mutant(
        "an operator's stop keeps its node out",
        changed(Campaign, "_take_loss", _take_any_loss),
    ),
    Mutant("a failure backs off", changed(Campaign, "_fail", _fail_and_try_at_once)),
    Mutant(
        "a lost run is replaced in time",
        changed(Serving, "lose", lambda *_: None),
    ),
    Mutant("a run is its coordinator's own", _name_runs_by_term),
    Mutant("a lease is renewed", changed(Serving, "renew", _renew_never)),
    Mutant(
        "a lost node takes its stage along",
        changed(Campaign, "_lose_node", lambda *_: ()),
    ),
    Mutant(
        "an answer of another run is no answer",
        changed(attempt_module, "run_of", lambda _: _Anything()),
    ),
)
