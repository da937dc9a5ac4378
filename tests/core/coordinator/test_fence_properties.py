"""Properties of the fence, and a machine that checks it against a tiny reference."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import MAX_LEASE_MS, Instant
from skippyd.core.coordinator.memory import FenceSnapshot
from skippyd.core.coordinator.messages import Origin
from skippyd.core.coordinator.verdict import (
    Accepted,
    LoadAllowed,
    Rejected,
    StopAllowed,
    Superseded,
)
from skippyd.ids import UnixMs
from support.claims import KEY, claim, load_of, stop_of


TERMS = st.integers(1, 6)
OWNERS = st.sampled_from("ab")
LEASES = st.sampled_from([0, 50, 5_000, 2 * MAX_LEASE_MS])
START = Instant(UnixMs(10), 10)


def new_fence() -> ClaimFence:
    return ClaimFence.restore(FenceSnapshot(instance_id="store"), START)


@given(st.lists(st.tuples(TERMS, OWNERS, LEASES), max_size=12))
def test_the_accepted_term_never_falls_and_a_repeat_changes_nothing(
    offers: list[tuple[int, str, int]],
) -> None:
    fence, newest = new_fence(), 0
    for term, owner, lease in offers:
        offered = claim(term, coordinator=owner, lease=lease)
        verdict, _ = fence.offer(offered, START)
        before = fence.snapshot()
        again, persist = fence.offer(offered, START)
        accepted = fence.claim_of(KEY)

        assert isinstance(again, Rejected) == isinstance(verdict, Rejected)
        assert (persist, fence.snapshot()) == ((), before)
        assert (accepted.term if accepted else 0) >= newest
        newest = accepted.term if accepted else 0


@given(TERMS, TERMS, OWNERS, OWNERS)
def test_an_old_stop_never_ends_a_newer_stage(
    term: int, other: int, owner: str, other_owner: str
) -> None:
    fence = new_fence()
    accepted = claim(term, coordinator=owner)
    fence.offer(accepted, START)
    stale = stop_of(load_of(claim(other, coordinator=other_owner, run="run-a-1")))
    running = load_of(accepted)

    verdict = fence.check_stop(stale, running, Origin.NETWORK, START)

    is_ended = isinstance(verdict, StopAllowed) and verdict.ends_stage
    assert not is_ended or other == term


@attrs.define
class Reference:
    """The rules in a few lines: one accepted claim, its stop, its lease."""

    accepted: tuple[int, str] = (0, "")
    stopped: set[tuple[int, str]] = attrs.Factory(set)
    deadline: int = 0
    until: int = 0

    def take(self, term: int, owner: str, lease: int, wall: int, boot: int) -> bool:
        mine, is_newer = (term, owner), term > self.accepted[0]
        if lease <= wall or not (is_newer or mine == self.accepted):
            return False
        if mine in self.stopped:
            return False
        held = not is_newer and self.until > 0
        if held and lease <= self.until:
            return boot < self.deadline
        fresh = boot + min(lease - wall, MAX_LEASE_MS)
        self.deadline = max(fresh, self.deadline) if held else fresh
        self.until, self.accepted = lease, mine
        return True


class FenceAgainstReference(RuleBasedStateMachine):
    """Drives the fence and the reference through the same history."""

    def __init__(self) -> None:
        super().__init__()
        self.fence = new_fence()
        self.reference = Reference()
        self.now = START
        self.terms = [0]

    @rule(term=TERMS, owner=OWNERS, lease_ms=LEASES)
    def offer(self, term: int, owner: str, lease_ms: int) -> None:
        """Both accept or both refuse."""
        until = self.now.unix_ms + lease_ms
        offered = claim(term, coordinator=owner, lease=until)
        expected = self.reference.take(
            term, owner, until, self.now.unix_ms, self.now.boottime_ms
        )
        probed = self.fence.probe(offered, self.now)
        verdict, _ = self.fence.offer(offered, self.now)
        assert verdict == probed
        assert isinstance(verdict, Accepted | Superseded) == expected

    @rule(term=TERMS, owner=OWNERS)
    def stop(self, term: int, owner: str) -> None:
        """A stop counts for the accepted run and for runs yet to come."""
        stop = stop_of(load_of(claim(term, coordinator=owner)))
        verdict = self.fence.check_stop(stop, None, Origin.NETWORK, self.now)
        is_stale = term < self.reference.accepted[0]
        assert isinstance(verdict, StopAllowed) == (not is_stale)
        if isinstance(verdict, StopAllowed) and verdict.leaves_tombstone:
            self.fence.bury(stop)
            self.reference.stopped.add((term, owner))

    @rule(term=TERMS, owner=OWNERS)
    def load(self, term: int, owner: str) -> None:
        """A load needs the accepted claim, a lease on both clocks and no stop."""
        load = load_of(claim(term, coordinator=owner))
        verdict = self.fence.check_load(load, Origin.NETWORK, self.now)
        mine, reference = (term, owner), self.reference
        assert isinstance(verdict, LoadAllowed) == (
            mine == reference.accepted
            and mine not in reference.stopped
            and self.now.boottime_ms < reference.deadline
            and self.now.unix_ms < reference.until
        )

    @rule(passed_ms=st.sampled_from([1, 49, 5_000, MAX_LEASE_MS]))
    def wait(self, passed_ms: int) -> None:
        """Time passes on both clocks."""
        self.now = self.now.later(passed_ms)

    @rule(offset_ms=st.sampled_from([-5_000, -1, 1, 5_000, MAX_LEASE_MS]))
    def step_wall_clock(self, offset_ms: int) -> None:
        """The wall clock jumps."""
        unix_ms = UnixMs(max(0, self.now.unix_ms + offset_ms))
        self.now = attrs.evolve(self.now, unix_ms=unix_ms)

    @rule()
    def restart(self) -> None:
        """The disk remembers claims and stops; leases are gone."""
        self.fence = ClaimFence.restore(self.fence.snapshot(), self.now)
        self.reference.deadline = self.reference.until = 0

    @invariant()
    def the_term_never_falls(self) -> None:
        """I1."""
        accepted = self.fence.claim_of(KEY)
        self.terms.append(accepted.term if accepted else 0)
        assert self.terms[-1] >= self.terms[-2]


TestFenceAgainstReference = pytest.mark.slow(FenceAgainstReference.TestCase)
