"""One node and a hand that sends it what a story wants; the ghost looks on.

Random schedules are too seldom in the right corner for some rules: a story goes there
straight. Nothing is random here, what is sent arrives, and stages take one second to
start and a tenth to end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import attrs

from simulation.coordinators import Coordinator
from simulation.occurrences import Delivery
from simulation.plans import MODEL_KEY
from simulation.schedule import Schedule
from simulation.world import World
from skippyd.core.coordinator.claim import ClaimEpoch, CoordinatorClaim
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimCoordinator,
    LoadStage,
    Origin,
    PrepareStage,
    ProbeClaim,
    StageKey,
    StopStage,
)
from skippyd.ids import CoordinatorId, RunId, StageId, Term, TopologyId, UnixMs


if TYPE_CHECKING:
    from skippyd.core.coordinator.messages import Reply, Request


START_MS = 1_000
END_MS = 100
SECOND_MS = 1_000
HOUR_MS = 3_600 * SECOND_MS

QUIET = Schedule(
    seed=0,
    stage_count=1,
    node_count=1,
    classes=frozenset(),
    faults=(),
    loss=0.0,
    duplication=0.0,
    slowness=0.0,
    mean_delay_ms=1.0,
    mean_load_ms=1.0,
    wall_offsets_ms=(0,),
    drifts_ppm=(0,),
    replacing=0.0,
    is_liveness=False,
    coordinator_count=0,
)


@attrs.define(eq=False)
class StoryWorld(World):
    """A world without chance."""

    reaping_ms: int = END_MS
    preparation_count: int = 0
    cancel_count: int = 0

    def preparation_cancelled(self) -> None:
        """Count it."""
        self.cancel_count += 1

    def draw_preparation_ms(self) -> int:
        """Every preparation takes as long as a start."""
        self.preparation_count += 1
        return START_MS

    def draw_load(self) -> tuple[int, bool]:
        """Every stage starts."""
        return START_MS, False

    def draw_reaping_ms(self) -> int:
        """Every stage ends as the story wants."""
        return self.reaping_ms

    def send_reply(self, node: object, asked: Delivery, reply: Reply) -> None:
        """Hand the reply to the hand that asked."""
        hand = asked.sender
        assert isinstance(hand, Hand)
        hand.replies[asked.number] = reply


@attrs.define(eq=False, kw_only=True)
class Hand(Coordinator):
    """Sends by hand and keeps what comes back."""

    replies: dict[int, Reply] = attrs.field(factory=dict)


class OneNode:
    """A node under a story's hand. Runs are named by a letter, their term a number."""

    def __init__(self, *, reaping_ms: int = END_MS) -> None:
        self.world = StoryWorld(QUIET, random.Random(0), reaping_ms=reaping_ms)
        self.node = self.world.nodes[0]
        self.hand = Hand(world=self.world, name="hand", home=self.node)
        self._count = 0

    def send(self, request: Request, origin: Origin = Origin.NETWORK) -> Reply | None:
        """Deliver a request; returns the reply, None when it is not there yet."""
        self._count += 1
        delivery = Delivery(self.node, self.hand, self._count, request, origin)
        self.world.schedule(0, delivery)
        self.world.pass_time(0)
        return self.hand.replies.get(self._count)

    def reply(self, number: int) -> Reply | None:
        """Return the reply to the request with that number, counted from one."""
        return self.hand.replies.get(number)

    def claim(self, run: str, term: int, **changes: int | str) -> Reply | None:
        """Claim a run; `lease_ms` is counted from the node's own clock."""
        return self.send(ClaimCoordinator(self.claim_of(run, term, **changes)))

    def probe(self, run: str, term: int) -> Reply | None:
        """Probe a claim."""
        return self.send(ProbeClaim(self.claim_of(run, term)))

    def claim_of(self, run: str, term: int, **changes: int | str) -> CoordinatorClaim:
        """Return a claim of a run; `until_ms` fixes its lease, `lease_ms` its length."""
        now_ms = self.node.clocks.read(self.world.now_ms).unix_ms
        lease_ms = int(changes.get("lease_ms", 60 * SECOND_MS))
        until_ms = int(changes.get("until_ms", now_ms + lease_ms))
        return CoordinatorClaim(
            epoch=ClaimEpoch(
                key=MODEL_KEY,
                topology_id=TopologyId(f"t-{run}"),
                run_id=RunId(run),
                coordinator_id=CoordinatorId(str(changes.get("coordinator", "c"))),
                participant_set_hash="p",
                topology_hash=str(changes.get("topology_hash", "h")),
            ),
            term=Term(term),
            lease_until_unix_ms=UnixMs(until_ms),
        )

    def load(self, run: str, term: int, **changes: int | str) -> Reply | None:
        """Load the stage of a run."""
        return self.send(self.load_of(run, term, **changes))

    def load_of(self, run: str, term: int, **changes: int | str) -> LoadStage:
        """Return the load of a run's stage."""
        return LoadStage(
            key=MODEL_KEY,
            stage=_stage(run, str(changes.get("stage", "stage-0"))),
            coordinator_term=Term(term),
            coordinator_id=CoordinatorId(str(changes.get("coordinator", "c"))),
            participant_set_hash=str(changes.get("participant_hash", "p")),
            topology_hash=str(changes.get("topology_hash", "h")),
            shutdown_generation=int(changes.get("generation", 1)),
            stage_index=0,
            layer_start=0,
            layer_end=8,
            admission="a",
        )

    def load_unfenced(self, run: str, origin: Origin) -> Reply | None:
        """Load without term and coordinator."""
        load = attrs.evolve(
            self.load_of(run, 0),
            coordinator_id=None,
            participant_set_hash="",
            topology_hash="",
        )
        return self.send(load, origin)

    def stop(self, run: str, term: int, **changes: int | str) -> Reply | None:
        """Stop the stage of a run."""
        stop = StopStage(
            key=MODEL_KEY,
            stage=_stage(run, str(changes.get("stage", "stage-0"))),
            coordinator_term=Term(term),
            shutdown_generation=int(changes.get("generation", 1)),
        )
        return self.send(stop)

    def prepare(self, run: str, term: int, **changes: int | str) -> Reply | None:
        """Prepare the stage of a run."""
        return self.send(PrepareStage(self.load_of(run, term, **changes)))

    def cancel(self, run: str, term: int) -> Reply | None:
        """Cancel the preparation of a run's stage."""
        cancel = CancelPrepareStage(
            key=MODEL_KEY,
            stage=_stage(run, "stage-0"),
            coordinator_term=Term(term),
            shutdown_generation=1,
        )
        return self.send(cancel)

    def serve(self, run: str, term: int, **changes: int | str) -> None:
        """Claim, load, and wait until the stage is ready."""
        self.claim(run, term, **changes)
        self.load(run, term)
        self.wait(START_MS)

    def wait(self, duration_ms: int) -> None:
        """Let time pass."""
        self.world.pass_time(duration_ms)

    def set_wall_clock(self, change_ms: int) -> None:
        """Let the wall clock jump."""
        self.node.clocks.wall_offset_ms += change_ms

    def restart(self, *, forgets: bool = False) -> None:
        """Crash, and come back after a second."""
        self.node.crash(SECOND_MS, forgets=forgets)
        self.wait(SECOND_MS)

    def crash_in_next_write(self, effect_count: int) -> None:
        """Crash in the next batch that writes, after so many effects; come back."""
        self.node.arm_tear(effect_count, SECOND_MS)

    def frame(self, run: str, term: int) -> bool:
        """Send a frame of a run; says whether the stage answers it."""
        if self.node.live_process(term, run) is None:
            return False
        self.node.ghost.frame_answered(term)
        return True


def _stage(run: str, stage: str) -> StageKey:
    return StageKey(
        topology_id=TopologyId(f"t-{run}"), run_id=RunId(run), stage_id=StageId(stage)
    )
