"""Run one seed and say what came of it; on a violation everything needed to replay."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import attrs

from simulation.ghost import InvariantBrokenError
from simulation.schedule import draw_schedule
from simulation.world import World


if TYPE_CHECKING:
    from simulation.schedule import FaultClass, Schedule


ROUNDS_ALONE = 3
ROUNDS_OF_TWO = 20
"""L1: so many claim rounds are enough when all is calm, for one coordinator and two."""


@attrs.frozen(kw_only=True)
class Violation:
    """A broken invariant and the events before it."""

    name: str
    text: str
    trace: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Outcome:
    """What a schedule came to."""

    schedule: Schedule
    event_count: int
    frame_count: int
    is_served: bool
    violation: Violation | None


def run_seed(
    seed: int,
    *,
    is_liveness: bool = False,
    checks_all: bool = False,
    dropped_faults: frozenset[int] = frozenset(),
    dropped_classes: frozenset[FaultClass] = frozenset(),
) -> Outcome:
    """Run one schedule, with some of its faults left out."""
    rng = random.Random(seed)
    drawn = draw_schedule(seed, rng, is_liveness=is_liveness)
    schedule = drawn.without(dropped_faults, dropped_classes)
    world = World(schedule, rng, checks_all=checks_all)
    try:
        world.run()
        if is_liveness:
            check_liveness(world)
    except InvariantBrokenError as broken:
        return _outcome(world, broken)
    return _outcome(world, None)


def check_liveness(world: World) -> None:
    """L1: at the end a run is served, by stages that all live."""
    is_alone = len(world.campaigners) == 1
    bound = ROUNDS_ALONE if is_alone else ROUNDS_OF_TWO
    for campaigner in world.campaigners:
        rounds = campaigner.rounds - campaigner.rounds_at_calm
        if rounds > bound:
            raise InvariantBrokenError("L1", f"{campaigner.name}: {rounds} rounds")
    if not _is_served(world):
        raise InvariantBrokenError("L1", "nothing is served long after healing")


def _is_served(world: World) -> bool:
    published = [c.published for c in world.campaigners if c.published is not None]
    return any(
        all(
            world.node_of(stage.node_id).live_process(run.term, run.run_id)
            for stage in run.plan.stages
        )
        for run in published
    )


def _outcome(world: World, broken: InvariantBrokenError | None) -> Outcome:
    violation = None
    if broken is not None:
        trace = tuple(f"{at_ms:>8} ms  {what!r}" for at_ms, what in world.trace)
        violation = Violation(name=broken.name, text=str(broken), trace=trace)
    return Outcome(
        schedule=world.schedule_,
        event_count=world.event_count,
        frame_count=world.frame_count,
        is_served=_is_served(world),
        violation=violation,
    )
