"""What a seed decides before the first event: sizes, fault classes and fault events.

Every fault class is switched on or off by the seed, so that quiet mixes occur as
often as wild ones. Faults are values in a list: the shrinker drops them one by one,
and the random stream after the drawing stays where it was.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    import random


HORIZON_MS = 120_000
"""Simulated time of one schedule."""

COORDINATOR_COUNT = 2
"""Nodes 0 and 1 run a coordinator each, for one and the same model."""

HEAL_MS = 60_000
"""In liveness mode every fault ends here."""

CALM_MS = HEAL_MS + 45_000
"""From here on nothing of the past is left: every node is up, no message is late."""

LIVENESS_HORIZON_MS = 420_000
"""In liveness mode: room for a withdraw, the retry ticks and one slow load."""


class FaultClass(Enum):
    """One way in which the world misbehaves."""

    LOSS = "loss"
    DUPLICATION = "duplication"
    SLOW_LINKS = "slow-links"
    CUTS = "cuts"
    CLOGS = "clogs"
    PAUSES = "pauses"
    CLOCK_JUMPS = "clock-jumps"
    DRIFT = "drift"
    SLOW_LOADS = "slow-loads"
    SLOW_REAPING = "slow-reaping"
    CRASHES = "crashes"
    TORN_WRITES = "torn-writes"
    AMNESIA = "amnesia"
    STAGE_DEATHS = "stage-deaths"
    FALSE_ECHO = "false-echo"
    SHORT_LEASES = "short-leases"
    ROGUES = "rogues"
    UNFENCED = "unfenced"


ENDLESS_CLASSES = frozenset(
    {
        FaultClass.SHORT_LEASES,
        FaultClass.ROGUES,
        FaultClass.UNFENCED,
        FaultClass.FALSE_ECHO,
    }
)
"""What does not end by healing: wrong clocks, strangers, stages that block a claim,
an echo that differs (after which a coordinator rightly gives the model up)."""


class FaultKind(Enum):
    """What happens at one moment to one node."""

    CUT = "cut"
    CLOG = "clog"
    PAUSE = "pause"
    CLOCK_JUMP = "clock-jump"
    CRASH = "crash"
    TEAR = "tear"
    FORGET = "forget"
    STAGE_DEATH = "stage-death"


@attrs.frozen(kw_only=True)
class Fault:
    """One fault event.

    `amount` is how long it lasts in milliseconds, for a clock jump its size. `other`
    is the far end of a cut, for a torn write the number of effects done before it.
    """

    at_ms: int
    kind: FaultKind
    node: int
    other: int
    amount: int


@attrs.frozen(kw_only=True)
class Schedule:
    """Everything a seed decides up front."""

    seed: int
    stage_count: int
    node_count: int
    classes: frozenset[FaultClass]
    faults: tuple[Fault, ...]
    loss: float
    duplication: float
    slowness: float
    mean_delay_ms: float
    mean_load_ms: float
    wall_offsets_ms: tuple[int, ...]
    drifts_ppm: tuple[int, ...]
    replacing: float
    coordinator_count: int = COORDINATOR_COUNT
    is_liveness: bool

    @property
    def horizon_ms(self) -> int:
        """When the schedule ends."""
        return LIVENESS_HORIZON_MS if self.is_liveness else HORIZON_MS

    def without(
        self, faults: frozenset[int], classes: frozenset[FaultClass]
    ) -> Schedule:
        """Drop fault events by their number, and whole classes of small faults."""
        kept = tuple(f for i, f in enumerate(self.faults) if i not in faults)
        is_off = classes.__contains__
        return attrs.evolve(
            self,
            faults=kept,
            classes=self.classes - classes,
            loss=0.0 if is_off(FaultClass.LOSS) else self.loss,
            duplication=0.0 if is_off(FaultClass.DUPLICATION) else self.duplication,
            slowness=0.0 if is_off(FaultClass.SLOW_LINKS) else self.slowness,
        )


_KINDS_OF_CLASS = {
    FaultClass.CUTS: FaultKind.CUT,
    FaultClass.PAUSES: FaultKind.PAUSE,
    FaultClass.CLOCK_JUMPS: FaultKind.CLOCK_JUMP,
    FaultClass.CRASHES: FaultKind.CRASH,
    FaultClass.TORN_WRITES: FaultKind.TEAR,
    FaultClass.AMNESIA: FaultKind.FORGET,
    FaultClass.STAGE_DEATHS: FaultKind.STAGE_DEATH,
}

CLASS_ODDS = 0.35

MAX_FAULT_MS = 30_000

_JUMPS_MS = (5_000, -5_000, 20_000, -20_000, 3_600_000, -3_600_000)

_LEASE_MS = 4 * 60 * 60 * 1_000


def draw_schedule(
    seed: int, rng: random.Random, *, is_liveness: bool = False
) -> Schedule:
    """Draw a schedule; `rng` was seeded with `seed` and is used on by the run."""
    stage_count = rng.choice((3, 3, 3, 4, 5))
    node_count = stage_count + rng.choice((0, 0, 1))
    classes = frozenset(c for c in FaultClass if rng.random() < CLASS_ODDS)
    if is_liveness:
        classes -= ENDLESS_CLASSES
    until_ms = HEAL_MS - 5_000 if is_liveness else HORIZON_MS
    faults = _draw_faults(rng, classes, node_count, until_ms)
    if is_liveness:
        faults = [_spare_coordinators(fault, node_count) for fault in faults]
    has_drift = FaultClass.DRIFT in classes
    return Schedule(
        seed=seed,
        stage_count=stage_count,
        node_count=node_count,
        classes=classes,
        faults=tuple(faults),
        loss=rng.choice((0.02, 0.1, 0.3)) if FaultClass.LOSS in classes else 0.0,
        duplication=(
            rng.choice((0.05, 0.3)) if FaultClass.DUPLICATION in classes else 0.0
        ),
        slowness=rng.choice((0.02, 0.1)) if FaultClass.SLOW_LINKS in classes else 0.0,
        mean_delay_ms=rng.choice((2.0, 20.0, 300.0)),
        mean_load_ms=15_000.0 if FaultClass.SLOW_LOADS in classes else 1_500.0,
        wall_offsets_ms=tuple(
            _draw_offset(rng, classes) if node < COORDINATOR_COUNT else 0
            for node in range(node_count)
        ),
        drifts_ppm=tuple(
            rng.randrange(-10_000, 10_001) if has_drift else 0
            for _ in range(node_count)
        ),
        replacing=0.0 if is_liveness else rng.choice((0.0, 0.3, 1.0)),
        is_liveness=is_liveness,
        coordinator_count=rng.choice((1, 2)) if is_liveness else COORDINATOR_COUNT,
    )


def _draw_offset(rng: random.Random, classes: frozenset[FaultClass]) -> int:
    """Set a coordinator's clock back by almost a lease: what it grants is short."""
    if FaultClass.SHORT_LEASES not in classes:
        return 0
    return rng.choice((0, 5_000, 15_000, 60_000)) - _LEASE_MS


def _draw_faults(
    rng: random.Random,
    classes: frozenset[FaultClass],
    node_count: int,
    until_ms: int,
) -> list[Fault]:
    faults: list[Fault] = []
    for fault_class, kind in _KINDS_OF_CLASS.items():
        if fault_class in classes:
            count = 1 if kind is FaultKind.FORGET else rng.randrange(1, 4)
            faults += [
                _draw_fault(rng, kind, node_count, until_ms) for _ in range(count)
            ]
    if FaultClass.CLOGS in classes:
        faults.extend(_draw_clogs(rng, node_count, until_ms))
    if not faults:
        faults.append(_draw_fault(rng, FaultKind.CRASH, node_count, until_ms))
    return faults


def _draw_fault(
    rng: random.Random, kind: FaultKind, node_count: int, until_ms: int
) -> Fault:
    node = rng.randrange(node_count)
    if kind is FaultKind.CLOCK_JUMP:
        amount = rng.choice(_JUMPS_MS)
    else:
        amount = min(int(rng.expovariate(1 / 8_000)) + 200, MAX_FAULT_MS)
    other = rng.randrange(node_count - 1)
    if kind is FaultKind.TEAR:
        other = rng.randrange(3)
    elif other >= node:
        other += 1
    return Fault(
        at_ms=rng.randrange(until_ms), kind=kind, node=node, other=other, amount=amount
    )


def _spare_coordinators(fault: Fault, node_count: int) -> Fault:
    """Let other nodes than the coordinators' forget.

    The stages of a coordinator that came back without its memory keep their lease, and
    a run whose lease is held and whose coordinator is there is left alone by the other
    one: up to four hours, unless an operator replaces it. That is no liveness to check.
    """
    if fault.kind is not FaultKind.FORGET:
        return fault
    others = node_count - COORDINATOR_COUNT
    return attrs.evolve(fault, node=COORDINATOR_COUNT + fault.node % others)


def _draw_clogs(rng: random.Random, node_count: int, until_ms: int) -> list[Fault]:
    """Clog some nodes one after another and open them in another order."""
    start_ms = rng.randrange(until_ms // 2)
    clogged = rng.sample(range(node_count), rng.randrange(1, node_count))
    clogs: list[Fault] = []
    for position, node in enumerate(clogged):
        at_ms = start_ms + position * rng.randrange(500, 3_000)
        end_ms = start_ms + 10_000 + rng.randrange(20_000)
        clogs.append(
            Fault(
                at_ms=at_ms,
                kind=FaultKind.CLOG,
                node=node,
                other=node,
                amount=max(1, end_ms - at_ms),
            )
        )
    return clogs
