"""Short stories of claims and leases at one node; see `stories`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.expectations import expect, is_accepted, is_refused
from simulation.one_node import HOUR_MS, SECOND_MS, OneNode
from simulation.plans import MODEL_KEY
from skippyd.core.coordinator.memory import MAX_KEYS
from skippyd.core.coordinator.messages import (
    ClaimCoordinator,
    Origin,
    ProbeAnswer,
    StageReady,
)
from skippyd.core.coordinator.verdict import Rejected
from skippyd.ids import CoordinatorId, ModelId, RunId, Term, TopologyId, UnixMs


if TYPE_CHECKING:
    from collections.abc import Callable


FAR_TERM = 10**18 * 3
"""Some forty years after the start of every schedule."""


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


def crash_between_disk_and_answer() -> None:
    """What was promised on the disk holds though nobody heard it."""
    for effect_count in (0, 1):
        node = OneNode()
        node.crash_in_next_write(effect_count)
        node.claim("a", 10)
        node.wait(2 * SECOND_MS)
        is_durable = node.node.store.durable_term == 10
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


def malformed_claims() -> None:
    """A claim that lacks something, or holds what no disk could keep, is refused."""
    good = OneNode().claim_of("a", 10)
    epochs = [
        attrs.evolve(good.epoch, key=key)
        for key in (
            attrs.evolve(MODEL_KEY, model_id=ModelId("")),
            attrs.evolve(MODEL_KEY, package_ref=""),
            attrs.evolve(MODEL_KEY, manifest_sha256=""),
        )
    ]
    for value in ("", "x" * 600, "\udc80"):
        epochs += [
            attrs.evolve(good.epoch, topology_id=TopologyId(value)),
            attrs.evolve(good.epoch, run_id=RunId(value)),
            attrs.evolve(good.epoch, coordinator_id=CoordinatorId(value)),
            attrs.evolve(good.epoch, participant_set_hash=value),
            attrs.evolve(good.epoch, topology_hash=value),
        ]
    bad = [attrs.evolve(good, epoch=epoch) for epoch in epochs]
    bad.append(attrs.evolve(good, term=Term(0)))
    bad.append(attrs.evolve(good, lease_until_unix_ms=UnixMs(1)))
    bad.append(attrs.evolve(good, lease_until_unix_ms=UnixMs(2**63)))
    for claim in bad:
        node = OneNode()
        expect(is_refused(node.send(ClaimCoordinator(claim))), f"refused: {claim}")


def malformed_loads() -> None:
    """A term without coordinator, and a coordinator without term, are refused."""
    node = OneNode()
    node.claim("a", 10)
    good = node.load_of("a", 10)
    for bad in (
        attrs.evolve(good, coordinator_id=None),
        attrs.evolve(good, coordinator_term=Term(0)),
    ):
        for origin in Origin:
            expect(is_refused(node.send(bad, origin)), "neither nor")


def too_many_models() -> None:
    """Claims for ever new models do not fill the disk."""
    fence = OneNode().node.fence()
    good = OneNode().claim_of("a", 10)
    now = OneNode().node.now
    refused = []
    for number in range(MAX_KEYS + 1):
        key = attrs.evolve(MODEL_KEY, model_id=ModelId(f"m{number}"))
        claim = attrs.evolve(good, epoch=attrs.evolve(good.epoch, key=key))
        verdict, _ = fence.offer(claim, now)
        refused.append(isinstance(verdict, Rejected))
    expect(refused[-1] and not any(refused[:-1]), "one is too many")


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
    forgotten_store_does_not_vote,
    quarantine_ends,
    far_terms,
    crash_between_disk_and_answer,
    probe_changes_nothing,
    malformed_claims,
    malformed_loads,
    too_many_models,
)
