"""Short stories of one node that go straight to the corners of its rules.

Each sends what it must, and expects with `expect` only what a user of the node would
see; the ghost checks the rest. A rule that is switched off breaks at least one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.ghost import InvariantBrokenError
from simulation.one_node import HOUR_MS, SECOND_MS, OneNode
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    LoadFailed,
    Origin,
    ProbeAnswer,
    StageReady,
    StageStopped,
    StopFailed,
)
from skippyd.core.coordinator.verdict import FencingInProgress, Rejected


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.coordinator.messages import Reply


FAR_TERM = 10**18 * 3
"""Some forty years after the start of every schedule."""


def expect(condition: bool, text: str) -> None:
    """Require what the story is about."""
    if not condition:
        raise InvariantBrokenError("story", text)


def is_accepted(reply: Reply | None) -> bool:
    """Say whether a claim was accepted."""
    return isinstance(reply, ClaimAnswer) and not isinstance(
        reply.verdict, Rejected | FencingInProgress
    )


def is_refused(reply: Reply | None) -> bool:
    """Say whether anything was refused."""
    if isinstance(reply, ClaimAnswer | ProbeAnswer):
        return isinstance(reply.verdict, Rejected)
    return isinstance(reply, LoadFailed | StopFailed)


def newer_term_ends_the_older_run() -> None:
    """Claim 11 ends run a of term 10; its old coordinator can do no harm then."""
    node = OneNode()
    node.serve("a", 10)
    expect(node.frame("a", 10), "the stage of term 10 answers frames")
    expect(node.claim("b", 11) is None, "the accept waits for the older stage")
    node.wait(SECOND_MS)
    expect(is_accepted(node.reply(3)), "term 11 is accepted")
    node.load("b", 11)
    node.wait(SECOND_MS)
    expect(not node.frame("a", 10), "term 10 answers no frame any more")
    expect(is_refused(node.claim("a", 10)), "term 10 is stale")
    expect(is_refused(node.load("a", 10)), "a load of term 10 is refused")
    expect(is_refused(node.stop("a", 10)), "a stop of term 10 is refused")
    expect(node.frame("b", 11), "term 11 serves on")


def same_term_belongs_to_the_first() -> None:
    """Any difference in identity makes a claim of one term another claim."""
    node = OneNode()
    node.serve("a", 10)
    for change in ({"coordinator": "d"}, {"topology_hash": "other"}):
        expect(is_refused(node.claim("a", 10, **change)), f"{change} conflicts")
    expect(is_refused(node.claim("b", 10)), "another run conflicts")
    expect(is_accepted(node.claim("a", 10)), "the same again is a renewal")
    expect(node.frame("a", 10), "and it serves on")


def load_must_be_of_the_claim() -> None:
    """A load that differs in any field of the claim is refused."""
    node = OneNode()
    node.claim("a", 10)
    expect(is_refused(node.load("a", 9)), "an older term")
    expect(is_refused(node.load("a", 11)), "a newer term")
    expect(is_refused(node.load("b", 10)), "another run")
    expect(is_refused(node.load("a", 10, coordinator="d")), "another coordinator")
    expect(is_refused(node.load("a", 10, topology_hash="x")), "another topology")
    expect(is_refused(node.load("a", 10, participant_hash="x")), "other participants")


def load_without_a_claim() -> None:
    """Nobody claimed: nothing loads."""
    expect(is_refused(OneNode().load("a", 10)), "no claim, no load")


def lease_ends() -> None:
    """After its lease a claim starts nothing, and stops nothing that runs."""
    node = OneNode()
    node.serve("a", 10, lease_ms=5 * SECOND_MS)
    node.wait(5 * SECOND_MS)
    expect(node.frame("a", 10), "what runs, runs on")
    node.stop("a", 10)
    node = OneNode()
    node.claim("a", 10, lease_ms=5 * SECOND_MS)
    node.wait(5 * SECOND_MS)
    expect(is_refused(node.load("a", 10)), "the lease is over at its very end")


def lease_ends_while_loading() -> None:
    """A stage that is ready only after the lease is not called ready."""
    node = OneNode()
    node.claim("a", 10, lease_ms=500)
    node.load("a", 10)
    node.wait(2 * SECOND_MS)
    expect(is_refused(node.reply(2)), "ready too late")
    expect(not node.frame("a", 10), "and it does not live")


def wall_clock_steps_back() -> None:
    """Setting the wall clock back does not make a lease longer."""
    node = OneNode()
    node.claim("a", 10, lease_ms=5 * SECOND_MS)
    node.set_wall_clock(-HOUR_MS)
    node.wait(6 * SECOND_MS)
    expect(is_refused(node.load("a", 10)), "boottime ended the lease")


def wall_clock_steps_forward() -> None:
    """Setting the wall clock forward may end a lease."""
    node = OneNode()
    node.claim("a", 10, lease_ms=5 * SECOND_MS)
    node.set_wall_clock(HOUR_MS)
    expect(is_refused(node.load("a", 10)), "the wall clock ended the lease")


def late_duplicate_revives_no_lease() -> None:
    """A duplicate after the end on boottime changes nothing, whatever the wall says."""
    node = OneNode()
    claim = node.claim_of("a", 10, lease_ms=5 * SECOND_MS)
    until_ms = claim.lease_until_unix_ms
    node.claim("a", 10, until_ms=until_ms)
    node.set_wall_clock(-HOUR_MS)
    node.wait(6 * SECOND_MS)
    expect(is_refused(node.claim("a", 10, until_ms=until_ms)), "it is over")
    expect(is_refused(node.load("a", 10)), "and starts nothing")


def early_duplicate_prolongs_no_lease() -> None:
    """A duplicate within the lease, after a step back, does not prolong it."""
    node = OneNode()
    until_ms = node.claim_of("a", 10, lease_ms=5 * SECOND_MS).lease_until_unix_ms
    node.claim("a", 10, until_ms=until_ms)
    node.set_wall_clock(-HOUR_MS)
    node.wait(SECOND_MS)
    expect(is_accepted(node.claim("a", 10, until_ms=until_ms)), "the same again")
    node.wait(5 * SECOND_MS)
    expect(is_refused(node.load("a", 10)), "still over after five seconds")


def renewal_prolongs_and_never_shortens() -> None:
    """Of two renewals in any order the longer one counts."""
    node = OneNode()
    node.claim("a", 10, lease_ms=20 * SECOND_MS)
    node.claim("a", 10, lease_ms=5 * SECOND_MS)
    node.wait(6 * SECOND_MS)
    node.load("a", 10)
    node.wait(SECOND_MS)
    expect(isinstance(node.reply(3), StageReady), "the longer lease counts")
    node = OneNode()
    node.claim("a", 10, lease_ms=5 * SECOND_MS)
    node.claim("a", 10, lease_ms=20 * SECOND_MS)
    node.wait(6 * SECOND_MS)
    node.load("a", 10)
    node.wait(SECOND_MS)
    expect(isinstance(node.reply(3), StageReady), "the renewal counts")


def lease_is_capped() -> None:
    """No lease is longer than four hours, whatever it says."""
    node = OneNode()
    node.claim("a", 10, lease_ms=10 * HOUR_MS)
    node.wait(4 * HOUR_MS)
    expect(is_refused(node.load("a", 10)), "four hours are over")


def restart_forgets_the_lease() -> None:
    """After a restart the same claim must come again before anything loads."""
    node = OneNode()
    node.claim("a", 10)
    node.restart()
    expect(is_refused(node.load("a", 10)), "no lease is held")
    expect(is_refused(node.claim("b", 9)), "but the term is remembered")
    expect(is_accepted(node.claim("a", 10)), "the same claim again")
    node.load("a", 10)
    node.wait(SECOND_MS)
    expect(isinstance(node.reply(5), StageReady), "and it loads")


def stop_is_final_across_a_restart() -> None:
    """A stopped run never comes back, by a late load after any restart neither."""
    node = OneNode()
    node.serve("a", 10)
    node.stop("a", 10)
    node.wait(SECOND_MS)
    expect(isinstance(node.reply(3), StageStopped), "it stops")
    expect(is_refused(node.load("a", 10)), "a late load comes in vain")
    node.restart()
    node.claim("a", 10)
    node.load("a", 10)
    node.wait(2 * SECOND_MS)
    expect(not node.frame("a", 10), "after a restart too")


def stop_before_its_claim() -> None:
    """A stop that overtakes its claim holds, also past a claim in between."""
    node = OneNode()
    node.stop("c", 12)
    node.claim("b", 11)
    expect(is_refused(node.claim("c", 12)), "run c is over before it began")
    node.load("c", 12)
    node.wait(2 * SECOND_MS)
    expect(not node.frame("c", 12), "and never lives")
    expect(is_accepted(node.claim("d", 13)), "another run may come")


def stop_while_loading() -> None:
    """A stop ends a stage that is not ready yet."""
    node = OneNode()
    node.claim("a", 10)
    node.load("a", 10)
    node.stop("a", 10)
    node.wait(2 * SECOND_MS)
    expect(is_refused(node.reply(2)), "the load fails")
    expect(isinstance(node.reply(3), StageStopped), "the stop is answered")


def stop_of_the_past_and_of_the_future() -> None:
    """Stops that were not meant for what runs here leave it alone."""
    node = OneNode()
    node.serve("b", 11)
    expect(is_refused(node.stop("b", 11, generation=0)), "an old generation")
    expect(is_refused(node.stop("b", 10)), "an old term")
    node.stop("z", 12)
    node.wait(SECOND_MS)
    expect(node.frame("b", 11), "the stage serves on")
    node.stop("b", 12)
    node.wait(SECOND_MS)
    expect(node.frame("b", 11), "a stop of a later run of that name neither")


def repeated_stop_is_answered_alike() -> None:
    """Stops of the unknown and repeated stops are answered as done."""
    node = OneNode()
    node.serve("a", 10)
    node.stop("a", 10)
    node.wait(SECOND_MS)
    for _ in range(2):
        expect(isinstance(node.stop("a", 10), StageStopped), "the same answer")


def too_many_early_stops() -> None:
    """Stops of unknown newer runs do not fill the disk."""
    node = OneNode()
    refused = [is_refused(node.stop(f"r{n}", 20 + n)) for n in range(40)]
    expect(any(refused), "at some number it is enough")
    expect(not refused[0], "the first are remembered")


def forgotten_store_does_not_vote() -> None:
    """A node that lost its store votes again after the longest lease, not before."""
    node = OneNode()
    node.serve("a", 10)
    node.restart(forgets=True)
    expect(is_refused(node.claim("b", 9)), "it might have promised otherwise")
    node.wait(3 * HOUR_MS)
    expect(is_refused(node.claim("b", 12)), "three hours are not enough")
    node.restart()
    node.wait(2 * HOUR_MS)
    expect(is_refused(node.claim("b", 12)), "a restart does not make it shorter")


def quarantine_ends() -> None:
    """After the longest lease, counted from its start, a node votes again."""
    node = OneNode()
    node.restart(forgets=True)
    node.wait(4 * HOUR_MS + SECOND_MS)
    expect(is_accepted(node.claim("b", 12)), "four hours are enough")


def far_terms() -> None:
    """A term nobody can have yet is refused, so that it locks nothing."""
    node = OneNode()
    expect(is_refused(node.claim("a", FAR_TERM)), "forty years ahead")
    expect(is_refused(node.claim("a", 2**63)), "no store could hold it")
    expect(is_refused(node.stop("a", FAR_TERM)), "a stop neither")
    expect(is_accepted(node.claim("b", 10)), "the model is free")


def unfenced_from_the_network() -> None:
    """A load without term and coordinator is taken from the admin socket only."""
    node = OneNode()
    expect(is_refused(node.load_unfenced("x", Origin.NETWORK)), "not from outside")
    node.load_unfenced("local-x", Origin.ADMIN)
    node.wait(SECOND_MS)
    expect(isinstance(node.reply(2), StageReady), "from inside")


def unfenced_beside_a_claim() -> None:
    """While a claim is live nothing unfenced starts; afterwards it may."""
    node = OneNode()
    node.claim("a", 10, lease_ms=5 * SECOND_MS)
    expect(is_refused(node.load_unfenced("local-x", Origin.ADMIN)), "a claim is live")
    node.wait(6 * SECOND_MS)
    node.load_unfenced("local-x", Origin.ADMIN)
    node.wait(SECOND_MS)
    expect(isinstance(node.reply(3), StageReady), "the lease is over")
    node.claim("b", 11)
    node.wait(SECOND_MS)
    expect(is_accepted(node.reply(4)), "a new claim ends it")


def claim_comes_while_unfenced_loads() -> None:
    """An unfenced stage that becomes ready beside a claim is not let."""
    node = OneNode()
    node.load_unfenced("local-x", Origin.ADMIN)
    node.claim("a", 10)
    node.wait(2 * SECOND_MS)
    expect(is_refused(node.reply(1)), "it was fenced while it loaded")
    expect(is_accepted(node.reply(2)), "and the claim holds")


def second_load_waits_for_memory() -> None:
    """A newer generation of a stage starts when the older one is gone."""
    node = OneNode(reaping_ms=3 * SECOND_MS)
    node.serve("a", 10)
    node.load("a", 10, generation=2)
    node.wait(2 * SECOND_MS)
    expect(node.reply(3) is None, "the old one still holds its memory")
    node.wait(3 * SECOND_MS)
    expect(isinstance(node.reply(3), StageReady), "then the new one starts")
    expect(is_refused(node.load("a", 10, generation=1)), "the old one is past")
    expect(is_refused(node.load("a", 10, stage="stage-1")), "no second stage here")


def load_waits_and_is_checked_again() -> None:
    """A load that waited for memory starts only if it still may."""
    node = OneNode(reaping_ms=3 * SECOND_MS)
    node.serve("a", 10, lease_ms=4 * SECOND_MS)
    node.wait(SECOND_MS)
    node.load("a", 10, generation=2)
    node.wait(5 * SECOND_MS)
    expect(is_refused(node.reply(3)), "its lease ended meanwhile")


def repeated_load_joins() -> None:
    """A load that comes twice starts one stage, and both are answered alike."""
    node = OneNode()
    node.claim("a", 10)
    node.load("a", 10)
    node.load("a", 10)
    node.wait(SECOND_MS)
    for number in (2, 3):
        expect(isinstance(node.reply(number), StageReady), "ready")
    expect(isinstance(node.load("a", 10), StageReady), "and once more")


def slow_end_holds_the_accept_up() -> None:
    """While the old stage dies the new claim is not accepted, whatever it takes."""
    node = OneNode(reaping_ms=12 * SECOND_MS)
    node.serve("a", 10)
    node.claim("b", 11)
    node.wait(6 * SECOND_MS)
    late = node.reply(3)
    is_held_up = isinstance(late, ClaimAnswer) and isinstance(
        late.verdict, FencingInProgress
    )
    expect(is_held_up, "it is told to ask again")
    node.claim("b", 11)
    expect(not is_accepted(node.reply(4)), "and again")
    node.wait(7 * SECOND_MS)
    expect(is_accepted(node.claim("b", 11)), "the old stage is gone")


def newer_claim_overtakes_a_waiting_one() -> None:
    """A claim that waits while a newer one is accepted has lost."""
    node = OneNode(reaping_ms=3 * SECOND_MS)
    node.serve("a", 10)
    node.claim("b", 11)
    node.claim("c", 12)
    node.wait(4 * SECOND_MS)
    expect(is_refused(node.reply(3)), "term 11 has lost")
    expect(is_accepted(node.reply(4)), "term 12 has won")


def crash_between_disk_and_answer() -> None:
    """What was promised on the disk holds though nobody heard it."""
    for effect_count in (0, 1):
        node = OneNode()
        node.crash_in_next_write(effect_count)
        node.claim("a", 10)
        node.wait(2 * SECOND_MS)
        is_durable = node.node.durable_term() == 10
        expect(is_durable == (effect_count == 1), "the disk has it, or has it not")
        expect(is_refused(node.claim("b", 9)) == is_durable, "and that decides")


def probe_changes_nothing() -> None:
    """A probe says what would be, and names the run that would end."""
    node = OneNode()
    node.serve("a", 10)
    reply = node.probe("b", 11)
    expect(isinstance(reply, ProbeAnswer), "it is answered")
    if isinstance(reply, ProbeAnswer):
        named = [run.run_id for run in reply.fenced_runs]
        expect(named == ["a"] and reply.fenced_runs[0].is_serving, "it names run a")
    expect(node.frame("a", 10), "run a serves on")
    expect(is_accepted(node.claim("a", 10)), "its claim holds")
    expect(is_refused(node.probe("b", 9)), "a stale probe is refused")


STORIES: tuple[Callable[[], None], ...] = (
    newer_term_ends_the_older_run,
    same_term_belongs_to_the_first,
    load_must_be_of_the_claim,
    load_without_a_claim,
    lease_ends,
    lease_ends_while_loading,
    wall_clock_steps_back,
    wall_clock_steps_forward,
    late_duplicate_revives_no_lease,
    early_duplicate_prolongs_no_lease,
    renewal_prolongs_and_never_shortens,
    lease_is_capped,
    restart_forgets_the_lease,
    stop_is_final_across_a_restart,
    stop_before_its_claim,
    stop_while_loading,
    stop_of_the_past_and_of_the_future,
    repeated_stop_is_answered_alike,
    too_many_early_stops,
    forgotten_store_does_not_vote,
    quarantine_ends,
    far_terms,
    unfenced_from_the_network,
    unfenced_beside_a_claim,
    claim_comes_while_unfenced_loads,
    second_load_waits_for_memory,
    load_waits_and_is_checked_again,
    repeated_load_joins,
    slow_end_holds_the_accept_up,
    newer_claim_overtakes_a_waiting_one,
    crash_between_disk_and_answer,
    probe_changes_nothing,
)
