"""Short stories of one campaign: the order of a deployment, and every way out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.desk import NODES, Desk, plan
from simulation.expectations import expect
from skippyd.core.coordinator.campaign_effects import (
    PeerChanged,
    PeerLeaving,
    PersistTerm,
    PlanMade,
    PlanMissing,
    ProveChain,
    PublishRoute,
    RequestFailed,
    RequestPlan,
    RouteWithdrawn,
    Send,
    StageLost,
    Start,
    Withdraw,
    WithdrawRoute,
)
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimCoordinator,
    LoadStage,
    PreparationState,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    StopStage,
)
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.verdict import Accepted, FencedRun
from skippyd.ids import CoordinatorId, RunId, Term


if TYPE_CHECKING:
    from collections.abc import Callable


SECOND_MS = 1_000
HOUR_MS = 3_600 * SECOND_MS

FOREIGN = FencedRun(
    run_id=RunId("other"),
    coordinator_id=CoordinatorId("n1"),
    term=Term(5),
    is_serving=True,
    is_lease_held=True,
)


def deployment_in_its_order() -> None:
    """Probe, prepare, claim, load from the last to the first, prove, publish."""
    desk = Desk()
    desk.begin()
    expect(len(desk.sent(ProbeClaim)) == len(NODES), "everyone is probed")
    desk.probes()
    expect(len(desk.sent(PrepareStage)) == len(NODES), "everyone prepares")
    expect(not desk.sent(ClaimCoordinator), "nothing is claimed yet")
    desk.preparations()
    expect(len(desk.sent(ClaimCoordinator)) == len(NODES), "everyone is claimed")
    persisted = [i for i, e in enumerate(desk.log) if isinstance(e, PersistTerm)]
    claims = [
        index
        for index, effect in enumerate(desk.log)
        if isinstance(effect, Send) and isinstance(effect.request, ClaimCoordinator)
    ]
    is_first = bool(persisted) and persisted[0] < claims[0]
    expect(is_first, "the term is durable before it leaves")
    expect(not desk.sent(LoadStage), "nothing loads yet")
    desk.claims()
    order = [desk.next_load() for _ in NODES]
    expect(order == list(reversed(NODES)), "the last stage loads first")
    expect(not desk.wanted(PublishRoute), "nothing is published unproved")
    expect(len(desk.wanted(ProveChain)) == 1, "the chain is proved")
    desk = Desk()
    desk.serve()
    expect(len(desk.wanted(PublishRoute)) == 1, "then it is published")
    expect(desk.campaign.serving is not None, "and served")


def one_stage_would_refuse() -> None:
    """A majority that would accept is not enough when a stage that must load would not."""
    desk = Desk()
    desk.begin()
    desk.probes(refusing=(NODES[2],), current_term=Term(3))
    desk.preparations()
    expect(not desk.sent(ClaimCoordinator), "nothing is claimed")
    expect(not desk.wanted(WithdrawRoute), "and nothing ends")


def next_term_is_above_all_seen() -> None:
    """Whoever is refused learns the term to exceed."""
    desk = Desk()
    desk.begin()
    first = desk.sent(ProbeClaim)[-1][1].claim.term
    current = Term(first + 10**15)
    desk.probes(refusing=NODES, current_term=current)
    expect(len(desk.wanted(RequestPlan)) == 1, "it does not try again at once")
    desk.wait(40 * SECOND_MS)
    desk.tell(PlanMade(plan()))
    expect(desk.sent(ProbeClaim)[-1][1].claim.term > current, "above what it saw")


def one_part_is_missing() -> None:
    """Nothing is claimed while a preparation goes on."""
    desk = Desk()
    desk.begin()
    desk.probes()
    desk.preparations(PreparationState.DOWNLOADING)
    expect(not desk.sent(ClaimCoordinator), "nothing is claimed")


def foreign_run_stays() -> None:
    """A run that another coordinator serves is left alone, unless told otherwise."""
    desk = Desk()
    desk.begin()
    desk.probes(ending=(FOREIGN,))
    desk.preparations()
    expect(not desk.sent(ClaimCoordinator), "it stands by")
    expect(not desk.sent(PrepareStage), "and prepares nothing")
    desk = Desk()
    desk.begin(may_replace=True)
    desk.probes(ending=(FOREIGN,))
    desk.preparations()
    expect(bool(desk.sent(ClaimCoordinator)), "told to replace it, it goes on")


def minority_loads_nothing() -> None:
    """Claims that a minority accepts are taken back."""
    desk = Desk()
    desk.begin()
    desk.probes()
    desk.preparations()
    desk.claims(refusing=NODES[1:])
    expect(not desk.sent(LoadStage), "nothing loads")
    stopped = [node_id for node_id, _ in desk.sent(StopStage)]
    expect(sorted(stopped) == sorted(NODES), "the run is stopped everywhere")


def silent_minority_loads_nothing() -> None:
    """One accept of three is no majority when the others stay silent."""
    desk = Desk()
    desk.begin()
    desk.probes()
    desk.preparations()
    desk.claims(silent=NODES[:2])
    desk.wait(60 * SECOND_MS)
    expect(not desk.sent(LoadStage), "nothing loads")


def majority_is_enough_to_begin() -> None:
    """A stage that was not reached is claimed again right before its load."""
    desk = Desk()
    desk.begin()
    desk.probes()
    desk.preparations()
    desk.claims(silent=(NODES[0],))
    desk.wait(60 * SECOND_MS)
    expect(desk.sent(LoadStage)[-1][0] == NODES[2], "the last stage loads")
    desk.next_load()
    desk.next_load()
    loaded = [node_id for node_id, _ in desk.sent(LoadStage)]
    expect(NODES[0] not in loaded, "the silent one is not loaded unclaimed")
    expect(desk.sent(ClaimCoordinator)[-1][0] == NODES[0], "it is claimed again")


def refused_claim_beside_a_majority() -> None:
    """A stage that refuses will not take its load, so the others need not begin."""
    desk = Desk()
    desk.begin()
    desk.probes()
    desk.preparations()
    desk.claims(refusing=(NODES[1],))
    expect(not desk.sent(LoadStage), "nothing loads")


def store_changed_since_the_probe() -> None:
    """A stage with another store than the one that was probed is another stage."""
    desk = Desk()
    desk.begin()
    desk.probes()
    desk.preparations()
    desk.claims(store="other")
    expect(not desk.sent(LoadStage), "its accept does not count")


def echo_differs() -> None:
    """A stage that opened something else ends the run for good."""
    desk = Desk()
    desk.begin()
    desk.probes()
    desk.preparations()
    desk.claims()
    desk.next_load(admission="something else")
    stopped = [node_id for node_id, _ in desk.sent(StopStage)]
    expect(sorted(stopped) == sorted(NODES), "the run is stopped everywhere")
    expect(len(desk.sent(LoadStage)) == 1, "nothing more loads")


def load_fails() -> None:
    """Any failure of a load stops the entire run."""
    desk = Desk()
    desk.begin()
    desk.probes()
    desk.preparations()
    desk.claims()
    node_id, load = desk.sent(LoadStage)[-1]
    desk.tell(RequestFailed(node_id, load, "gone"))
    stopped = [node for node, _ in desk.sent(StopStage)]
    expect(sorted(stopped) == sorted(NODES), "the run is stopped everywhere")


def fenced_coordinator_does_not_fight_back() -> None:
    """A coordinator that was fenced withdraws and stands by for a whole tick."""
    desk = Desk()
    desk.serve()
    run_id = desk.wanted(PublishRoute)[-1].run.run_id
    desk.tell(StageLost(run_id, NODES[1], "fenced", is_fenced=True))
    expect(len(desk.wanted(WithdrawRoute)) == 1, "the route goes at once")
    desk.wait(20 * SECOND_MS)
    expect(len(desk.wanted(RequestPlan)) == 1, "no plan before the tick")
    desk.wait(11 * SECOND_MS)
    expect(len(desk.wanted(RequestPlan)) > 1, "at the tick it looks again")


def fenced_replacement_is_given_up() -> None:
    """A replacement that has claimed nothing does not go on against a newer run."""
    desk = Desk()
    desk.serve()
    run_id = desk.wanted(PublishRoute)[-1].run.run_id
    desk.tell(StageLost(run_id, NODES[2], "it died"))
    desk.tell(PlanMade(plan()))
    desk.probes()
    expect(len(desk.sent(PrepareStage)) == 2 * len(NODES), "it prepares")
    count = len(desk.sent(ClaimCoordinator))
    desk.tell(StageLost(run_id, NODES[1], "fenced", is_fenced=True))
    desk.preparations()
    expect(len(desk.sent(ClaimCoordinator)) == count, "it claims nothing any more")
    expect(len(desk.sent(CancelPrepareStage)) == len(NODES), "preparations are undone")


def draining_node_is_moved_away_from() -> None:
    """A node that drains is planned around; until then its run serves on."""
    desk = Desk()
    desk.serve()
    desk.tell(PeerLeaving(NODES[2], is_leaving=True))
    again = desk.wanted(RequestPlan)[-1]
    expect(again.is_replan and NODES[2] in again.excluded, "a plan without it")
    desk.tell(PlanMissing("nothing can stand in for it"))
    desk.wait(80 * SECOND_MS)
    expect(not desk.wanted(WithdrawRoute), "there is no grace that could end")


def stopped_stage_stays_away() -> None:
    """A node whose operator ended the stage gets none until the model is deployed."""
    desk = Desk()
    desk.serve()
    run_id = desk.wanted(PublishRoute)[-1].run.run_id
    desk.tell(StageLost(run_id, NODES[2], "by its operator", is_stopped=True))
    desk.tell(PlanMissing("too few nodes"))
    desk.wait(31 * SECOND_MS)
    expect(NODES[2] in desk.wanted(RequestPlan)[-1].excluded, "not at the tick")
    desk.tell(PlanMissing("too few nodes"))
    desk.tell(Start())
    expect(not desk.wanted(RequestPlan)[-1].excluded, "when it is deployed again")


def lost_stage_is_replaced_or_withdrawn() -> None:
    """A loss asks for a plan without the node; without one the route goes."""
    desk = Desk()
    desk.serve()
    run_id = desk.wanted(PublishRoute)[-1].run.run_id
    desk.tell(StageLost(run_id, NODES[2], "it died"))
    again = desk.wanted(RequestPlan)[-1]
    expect(again.is_replan and NODES[2] in again.excluded, "a plan without it")
    expect(not desk.wanted(WithdrawRoute), "the route stays for its grace")
    desk.wait(76 * SECOND_MS)
    expect(len(desk.wanted(WithdrawRoute)) == 1, "and goes after that")


def lost_node_counts_as_lost_stage() -> None:
    """A node that is gone took its stage along, and is not planned with."""
    desk = Desk()
    desk.serve()
    desk.tell(PeerChanged(NODES[2], is_available=False))
    expect(NODES[2] in desk.wanted(RequestPlan)[-1].excluded, "a plan without it")


def lease_is_renewed_at_half() -> None:
    """A served run is claimed again after half of its lease."""
    desk = Desk()
    desk.serve()
    count = len(desk.sent(ClaimCoordinator))
    desk.wait(2 * HOUR_MS)
    expect(len(desk.sent(ClaimCoordinator)) == count + len(NODES), "to everyone")


def withdrawing_takes_the_route_first() -> None:
    """The route goes, then it drains, then the stages stop."""
    desk = Desk()
    desk.serve()
    desk.tell(Withdraw())
    expect(len(desk.wanted(WithdrawRoute)) == 1, "the route goes")
    expect(not desk.sent(StopStage), "nothing stops yet")
    run_id = desk.wanted(WithdrawRoute)[-1].run_id
    desk.tell(RouteWithdrawn(run_id))
    expect(len(desk.sent(StopStage)) == len(NODES), "then the stages stop")


def rivals_of_one_term_have_runs_of_their_own() -> None:
    """Two coordinators that picked one term by chance cannot mean the same run."""
    rivals = [
        Run(
            plan=plan(),
            coordinator_id=CoordinatorId(name),
            term=Term(10),
            shutdown_generation=1,
        )
        for name in ("n0", "n1")
    ]
    expect(len({rival.run_id for rival in rivals}) == len(rivals), "two runs")
    expect(len({rival.topology_id for rival in rivals}) == len(rivals), "two splits")


def late_answers_of_an_older_attempt() -> None:
    """What was asked for an older term says nothing about the newer one."""
    desk = Desk()
    desk.begin()
    old = desk.sent(ProbeClaim)
    desk.probes(refusing=NODES, current_term=Term(3))
    desk.wait(40 * SECOND_MS)
    desk.tell(PlanMade(plan()))
    for node_id, request in old:
        answer = ProbeAnswer(
            verdict=Accepted(request.claim), fenced_runs=(), instance_id="store"
        )
        desk.reply(node_id, request, answer)
    expect(not desk.sent(PrepareStage), "nothing follows from them")


STORIES: tuple[Callable[[], None], ...] = (
    deployment_in_its_order,
    one_stage_would_refuse,
    next_term_is_above_all_seen,
    one_part_is_missing,
    foreign_run_stays,
    minority_loads_nothing,
    silent_minority_loads_nothing,
    majority_is_enough_to_begin,
    refused_claim_beside_a_majority,
    store_changed_since_the_probe,
    echo_differs,
    load_fails,
    fenced_coordinator_does_not_fight_back,
    fenced_replacement_is_given_up,
    draining_node_is_moved_away_from,
    stopped_stage_stays_away,
    lost_stage_is_replaced_or_withdrawn,
    lost_node_counts_as_lost_stage,
    lease_is_renewed_at_half,
    rivals_of_one_term_have_runs_of_their_own,
    late_answers_of_an_older_attempt,
    withdrawing_takes_the_route_first,
)
