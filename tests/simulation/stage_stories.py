"""Short stories of stages, stops and preparations at one node; see `stories`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.expectations import expect, is_accepted, is_refused
from simulation.one_node import SECOND_MS, OneNode
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    Origin,
    PreparationStatus,
    StageReady,
    StageStopped,
)
from skippyd.core.coordinator.verdict import FencingInProgress


if TYPE_CHECKING:
    from collections.abc import Callable


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


def stop_of_a_waiting_load() -> None:
    """A stop reaches a load that still waits for memory."""
    node = OneNode(reaping_ms=3 * SECOND_MS)
    node.serve("a", 10)
    node.load("a", 10, generation=2)
    node.stop("a", 10, generation=2)
    expect(is_refused(node.reply(3)), "the waiting load fails at once")
    node.wait(5 * SECOND_MS)
    expect(not node.frame("a", 10), "and never starts")


def stop_ends_its_run_whatever_the_stage() -> None:
    """A stop that names another stage of the run that lives here ends that one."""
    node = OneNode()
    node.serve("a", 10)
    node.stop("a", 10, stage="stage-1")
    node.wait(SECOND_MS)
    expect(isinstance(node.reply(3), StageStopped), "it is answered")
    expect(not node.frame("a", 10), "and nothing of the run lives")


def late_claim_of_a_stopped_run() -> None:
    """A claim that comes once more after its run was stopped ends nothing."""
    node = OneNode()
    node.claim("a", 10)
    node.stop("a", 10)
    node.load_unfenced("local-x", Origin.ADMIN)
    node.wait(SECOND_MS)
    expect(isinstance(node.reply(3), StageReady), "the model is free for a local load")
    expect(is_refused(node.claim("a", 10)), "the run is over")
    node.wait(SECOND_MS)
    expect(node.frame("local-x", 0), "and the local stage serves on")


def malformed_stops() -> None:
    """A stop without a term is local; what a node would keep is checked first."""
    node = OneNode()
    node.serve("a", 10)
    expect(is_refused(node.stop("a", 0)), "not from the network")
    expect(is_refused(node.stop("x" * 600, 12)), "too long to keep")
    expect(is_refused(node.stop("b", 12, stage="")), "no stage named")
    expect(node.frame("a", 10), "and it serves on")


def preparations() -> None:
    """A preparation needs no claim, but must not be older than what is claimed."""
    node = OneNode()
    expect(not is_refused(node.prepare("b", 11)), "ahead of any claim")
    node.claim("b", 11)
    expect(is_refused(node.prepare("a", 10)), "older than the claim")
    expect(is_refused(node.prepare("c", 11)), "another run of the term")
    expect(is_refused(node.prepare("d", 0)), "unfenced from the network")
    expect(is_refused(node.prepare("x" * 600, 12)), "too long to keep")
    again = node.prepare("b", 11)
    is_known = isinstance(again, PreparationStatus) and again.error == ""
    expect(is_known, "asking again tells how far it is")
    expect(node.world.preparation_count == 1, "and starts nothing twice")


def cancelled_preparation_stays_cancelled() -> None:
    """A cancel holds against a late request of its generation, not of the next."""
    node = OneNode()
    node.prepare("b", 11)
    node.cancel("b", 11)
    expect(is_refused(node.prepare("b", 11)), "the late one")
    expect(not is_refused(node.prepare("b", 11, generation=2)), "the next one")


def claim_ends_older_preparations() -> None:
    """What an older coordinator has fetched is given up for a newer claim."""
    node = OneNode()
    node.prepare("a", 10)
    node.wait(SECOND_MS)
    node.claim("b", 11)
    expect(node.world.cancel_count == 1, "the older preparation ends")


STORIES: tuple[Callable[[], None], ...] = (
    stop_is_final_across_a_restart,
    stop_before_its_claim,
    stop_while_loading,
    stop_of_the_past_and_of_the_future,
    repeated_stop_is_answered_alike,
    too_many_early_stops,
    unfenced_from_the_network,
    unfenced_beside_a_claim,
    claim_comes_while_unfenced_loads,
    second_load_waits_for_memory,
    load_waits_and_is_checked_again,
    repeated_load_joins,
    slow_end_holds_the_accept_up,
    newer_claim_overtakes_a_waiting_one,
    stop_of_a_waiting_load,
    stop_ends_its_run_whatever_the_stage,
    late_claim_of_a_stopped_run,
    malformed_stops,
    preparations,
    cancelled_preparation_stays_cancelled,
    claim_ends_older_preparations,
)
