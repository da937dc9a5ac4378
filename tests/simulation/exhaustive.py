"""Every order of events in a small world: two coordinators, three stages, few faults.

Each coordinator claims every stage once, loads everywhere once a majority accepted,
and may stop everywhere after that. Any message may arrive at any time, or never; some
may arrive twice; a stage may crash, also between its disk and its answer; once, all
leases end. A breadth-first search visits every state.

What a stage does depends on nothing but itself, so its steps on the real fence are
worked out once and remembered; the states of the whole are tuples of their numbers.
Stages are alike, so a state is the sorted tuple of theirs.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from simulation.ghost import GhostProcess, InvariantBrokenError, NodeGhost
from simulation.plans import MODEL_KEY
from skippyd.core.coordinator.claim import ClaimEpoch, CoordinatorClaim
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import (
    LoadStage,
    Origin,
    StageKey,
    StopStage,
)
from skippyd.core.coordinator.superseding import fenced_work
from skippyd.core.coordinator.verdict import LoadAllowed, Rejected, StopAllowed
from skippyd.ids import CoordinatorId, RunId, StageId, Term, TopologyId, UnixMs


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.core.coordinator.memory import FenceRecord, Lease, PersistFence


EARLY = Instant(UnixMs(1_000_000), 1_000)
LATE = Instant(UnixMs(1_100_000), 101_000)
LEASE_UNTIL = UnixMs(1_050_000)

CLAIM, LOAD, STOP, READY, CRASH, TORN_CLAIM = range(6)
"""Steps of a stage; the first three are messages, of coordinator 0 or 1."""

MESSAGES = 6

_StageState = tuple[int, int, int]
"""Number of the local state, messages under way (bits), accepts that arrived (bits)."""

_Move = tuple[_StageState, int, int]
"""A stage's next state, and how many duplicates and crashes it used up."""

_State = tuple[tuple[_StageState, ...], tuple[int, int], int, int, bool]
"""Stages, how far each coordinator is, duplicates and crashes left, leases over."""


@attrs.frozen(kw_only=True)
class Scope:
    """How much may go wrong, and which terms the two coordinators use."""

    stages: int = 3
    terms: tuple[int, int] = (1, 2)
    duplicates: int = 2
    crashes: int = 1
    stopping: tuple[int, ...] = (0,)
    has_leases_end: bool = True


@attrs.frozen(kw_only=True)
class _Local:
    """One stage: its disk, its memory, its runtime and what its ghost saw."""

    record: FenceRecord | None = None
    memory: FenceRecord | None = None
    lease: Lease | None = None
    is_leased: bool = False
    live: LoadStage | None = None
    is_ready: bool = False
    answered_term: int = 0
    identities: frozenset[tuple[int, str]] = frozenset()
    stopped: frozenset[tuple[int, str]] = frozenset()


@attrs.frozen
class _Step:
    """A step of a stage: its next state, and whether an accept left it."""

    local: int
    is_accepted: bool


@attrs.define
class Search:
    """The search and what it counted."""

    scope: Scope
    state_count: int = 0
    step_count: int = 0
    _locals: list[_Local] = attrs.field(factory=list, init=False)
    _numbers: dict[_Local, int] = attrs.field(factory=dict, init=False)
    _steps: dict[tuple[int, int, int, bool], _Step] = attrs.field(
        factory=dict, init=False
    )
    _stage_moves: dict[tuple[_StageState, bool, bool, bool], tuple[_Move, ...]] = (
        attrs.field(factory=dict, init=False)
    )

    @property
    def local_count(self) -> int:
        """How many states one stage can be in."""
        return len(self._locals)

    def run(self) -> None:
        """Visit every state; raises `InvariantBrokenError` in the first bad one."""
        stage = (self._number(_Local()), 0b11, 0)
        scope = self.scope
        first: _State = (
            (stage,) * scope.stages,
            (0, 0),
            scope.duplicates,
            scope.crashes,
            False,
        )
        seen, queue = {first}, deque([first])
        while queue:
            for following in self._followers(queue.popleft()):
                self.step_count += 1
                if following not in seen:
                    seen.add(following)
                    queue.append(following)
        self.state_count = len(seen)

    def _followers(self, state: _State) -> Iterator[_State]:
        stages, progress, duplicates, crashes, is_late = state
        yield from self._coordinator_steps(state)
        if self.scope.has_leases_end and not is_late:
            yield stages, progress, duplicates, crashes, True
        for index, stage in enumerate(stages):
            if index and stages[index - 1] == stage:
                continue  # Stages are alike: the same step of the same state.
            others = stages[:index] + stages[index + 1 :]
            for moved, duplicate, crash in self._moves(stage, state):
                together = tuple(sorted((*others, moved)))
                left = duplicates - duplicate, crashes - crash
                yield (together, progress, *left, is_late)

    def _coordinator_steps(self, state: _State) -> Iterator[_State]:
        stages, progress, duplicates, crashes, is_late = state
        for who in (0, 1):
            accepts = sum(stage[2] >> who & 1 for stage in stages)
            kind = LOAD if progress[who] == 0 else STOP
            if progress[who] == 2 or (
                kind == LOAD and accepts * 2 <= self.scope.stages
            ):
                continue
            if kind == STOP and who not in self.scope.stopping:
                continue
            self._check_exclusion(who, progress)
            bit = 1 << (2 * kind + who)
            sent = tuple(sorted((local, way | bit, got) for local, way, got in stages))
            advanced = (
                (progress[0] + 1, progress[1])
                if who == 0
                else (progress[0], progress[1] + 1)
            )
            yield sent, advanced, duplicates, crashes, is_late

    def _check_exclusion(self, who: int, progress: tuple[int, int]) -> None:
        terms = self.scope.terms
        if terms[0] == terms[1] and progress[who] == 0 and progress[1 - who] > 0:
            raise InvariantBrokenError("I8", "two runs of one term load")

    def _moves(self, stage: _StageState, state: _State) -> tuple[_Move, ...]:
        """What one stage may do: the same in every state that leaves it as much."""
        _, _, duplicates, crashes, is_late = state
        place = (stage, duplicates > 0, crashes > 0, is_late)
        moves = self._stage_moves.get(place)
        if moves is None:
            moves = tuple(self._stage_steps(*place))
            self._stage_moves[place] = moves
        return moves

    def _stage_steps(
        self, stage: _StageState, duplicates: bool, crashes: bool, is_late: bool
    ) -> Iterator[_Move]:
        local, way, got = stage
        for message in range(MESSAGES):
            if not way >> message & 1:
                continue
            kind, who = message // 2, message % 2
            step = self._step(local, kind, who, is_late)
            accepts = got | (step.is_accepted << who)
            yield (step.local, way & ~(1 << message), accepts), 0, 0
            if duplicates:
                yield (step.local, way, accepts), 1, 0
            if crashes and kind == CLAIM:
                torn = self._step(local, TORN_CLAIM, who, is_late)
                yield (torn.local, way & ~(1 << message), got), 0, 1
        if self._locals[local].live is not None and not self._locals[local].is_ready:
            yield (self._step(local, READY, 0, is_late).local, way, got), 0, 0
        if crashes:
            yield (self._step(local, CRASH, 0, is_late).local, way, got), 0, 1

    def _number(self, local: _Local) -> int:
        number = self._numbers.setdefault(local, len(self._locals))
        if number == len(self._locals):
            self._locals.append(local)
        return number

    def _step(self, local: int, kind: int, who: int, is_late: bool) -> _Step:
        place = (local, kind, who, is_late)
        step = self._steps.get(place)
        if step is None:
            stage = _Stage(self._locals[local], LATE if is_late else EARLY)
            term = self.scope.terms[who]
            is_accepted = stage.do(kind, who, term)
            step = _Step(self._number(stage.local()), is_accepted)
            self._steps[place] = step
        return step


class _Stage:
    """A stage brought to life from its state: the real fence and a ghost."""

    def __init__(self, local: _Local, now: Instant) -> None:
        self.now = now
        self.fence = ClaimFence(
            instance_id="i",
            build_date_ns=0,
            quarantined_until_boottime_ms=None,
            records={} if local.memory is None else {MODEL_KEY: local.memory},
            leases={} if local.lease is None else {MODEL_KEY: local.lease},
        )
        self.durable = local.record
        self.ghost = NodeGhost("stage")
        self.ghost.answered_term = local.answered_term
        self.identities = set(local.identities)
        self.ghost.stopped = set(local.stopped)
        self._recall_claim(local)
        if local.live is not None:
            process = GhostProcess(local.live, is_ready=local.is_ready)
            self.ghost.processes.append(process)

    def _recall_claim(self, local: _Local) -> None:
        record = local.record
        if record is not None and record.claim is not None:
            self.ghost.claim_became_durable(record.claim, EARLY)
        # What the ghost knows of the lease is its own: a restart ended it, or not.
        if not local.is_leased:
            self.ghost.lease_until_ms = None

    def do(self, kind: int, who: int, term: int) -> bool:
        """Do one step; says whether an accept of a claim left the stage."""
        is_accepted = False
        if kind in {CLAIM, TORN_CLAIM}:
            is_accepted = self._claim(_claim(who, term), is_torn=kind == TORN_CLAIM)
        elif kind == LOAD:
            self._load(_load(who, term))
        elif kind == STOP:
            self._stop(_stop(who, term))
        elif kind == READY:
            self._ready()
        if kind in {CRASH, TORN_CLAIM}:
            self._crash()
        self.ghost.check(0 if self.durable is None else self.durable.term)
        return is_accepted

    def _persist(self, effects: tuple[PersistFence, ...]) -> None:
        for effect in effects:
            before = None if self.durable is None else self.durable.claim
            self.durable = effect.record
            claim = effect.record.claim
            if claim is not None and claim != before:
                self.ghost.claim_became_durable(claim, self.now)

    def _claim(self, claim: CoordinatorClaim, *, is_torn: bool) -> bool:
        verdict, effects = self.fence.offer(claim, self.now)
        self._persist(effects)
        if isinstance(verdict, Rejected):
            is_stopped = (claim.term, claim.epoch.run_id) in self.ghost.stopped
            is_newer = claim.term > self.ghost.term and self.now == EARLY
            if is_newer and not is_stopped:
                self.ghost.broken("F2", f"refused: {verdict.text}")
            return False
        for process in tuple(self.ghost.processes):
            if fenced_work(claim, [process.load]):
                self.ghost.ended(process)
        if is_torn:
            return False
        self.identities.add((claim.term, claim.epoch.run_id))
        if len({run for term, run in self.identities if term == claim.term}) > 1:
            self.ghost.broken("I2", f"two identities at term {claim.term}")
        self.ghost.lease_granted(claim, self.now)
        self.ghost.accept_left(claim, self.durable.claim if self.durable else None)
        return True

    def _load(self, load: LoadStage) -> None:
        verdict = self.fence.check_load(load, Origin.NETWORK, self.now)
        is_live = any(process.load == load for process in self.ghost.processes)
        if isinstance(verdict, LoadAllowed) and not is_live:
            self.ghost.started(load, self.now, is_local=False)

    def _ready(self) -> None:
        process = self.ghost.processes[0]
        verdict = self.fence.check_load(process.load, Origin.NETWORK, self.now)
        if isinstance(verdict, LoadAllowed):
            self.ghost.became_ready(process, self.now)
        else:
            self.ghost.ended(process)

    def _stop(self, stop: StopStage) -> None:
        process = next(iter(self.ghost.processes), None)
        is_own = process is not None and process.load.stage.run_id == stop.stage.run_id
        running = process.load if process is not None and is_own else None
        verdict = self.fence.check_stop(stop, running, Origin.NETWORK, self.now)
        if not isinstance(verdict, StopAllowed):
            return
        if verdict.leaves_tombstone:
            self._persist(self.fence.bury(stop))
        if verdict.ends_stage and process is not None:
            if process.load.coordinator_term != stop.coordinator_term or not is_own:
                self.ghost.broken("I5", f"{stop.stage.run_id} stopped another run")
            self.ghost.ended(process)
        self.ghost.stopped_left(stop)

    def _crash(self) -> None:
        snapshot = self.fence.snapshot()
        records = () if self.durable is None else (self.durable,)
        disk = attrs.evolve(snapshot, records=records)
        self.fence = ClaimFence.restore(disk, self.now)
        self.ghost.restarted(forgot=False)

    def local(self) -> _Local:
        """Return the state the stage is in now."""
        process = next(iter(self.ghost.processes), None)
        return _Local(
            record=self.durable,
            memory=next(iter(self.fence.snapshot().records), None),
            lease=self.fence.lease_of(MODEL_KEY),
            is_leased=self.ghost.lease_until_ms is not None,
            live=None if process is None else process.load,
            is_ready=process is not None and process.is_ready,
            answered_term=self.ghost.answered_term,
            identities=frozenset(self.identities),
            stopped=frozenset(self.ghost.stopped),
        )


def _claim(who: int, term: int) -> CoordinatorClaim:
    epoch = ClaimEpoch(
        key=MODEL_KEY,
        topology_id=TopologyId(f"t{who}"),
        run_id=RunId(f"r{who}"),
        coordinator_id=CoordinatorId(f"c{who}"),
        participant_set_hash="p",
        topology_hash=f"h{who}",
    )
    return CoordinatorClaim(
        epoch=epoch, term=Term(term), lease_until_unix_ms=LEASE_UNTIL
    )


def _stage_key(who: int) -> StageKey:
    return StageKey(
        topology_id=TopologyId(f"t{who}"),
        run_id=RunId(f"r{who}"),
        stage_id=StageId("stage-0"),
    )


def _load(who: int, term: int) -> LoadStage:
    return LoadStage(
        key=MODEL_KEY,
        stage=_stage_key(who),
        coordinator_term=Term(term),
        coordinator_id=CoordinatorId(f"c{who}"),
        participant_set_hash="p",
        topology_hash=f"h{who}",
        shutdown_generation=1,
        stage_index=0,
        layer_start=0,
        layer_end=8,
        admission="a",
    )


def _stop(who: int, term: int) -> StopStage:
    return StopStage(
        key=MODEL_KEY,
        stage=_stage_key(who),
        coordinator_term=Term(term),
        shutdown_generation=1,
    )
