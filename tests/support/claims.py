"""Builders of claims, loads and stops for tests of the coordinator."""

from __future__ import annotations

import copy
from typing import TypeVar

from skippyd.core.coordinator.claim import ClaimEpoch, ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.messages import (
    LoadStage,
    StageKey,
    StageState,
    StageStatus,
    StopStage,
)
from skippyd.ids import (
    CoordinatorId,
    ModelId,
    RunId,
    StageId,
    Term,
    TopologyId,
    UnixMs,
)


Value = TypeVar("Value")

KEY = ClaimKey(
    model_id=ModelId("org/model"),
    package_ref="hf://org/package",
    manifest_sha256="ab" * 32,
)


def claim(
    term: int = 10,
    *,
    coordinator: str = "a",
    run: str = "",
    lease: int = 10_000,
    key: ClaimKey = KEY,
    participants: str = "participants",
    topology: str = "topology",
) -> CoordinatorClaim:
    """A well-shaped claim; the run is named after coordinator and term by default."""
    run = run or f"run-{coordinator}-{term}"
    return CoordinatorClaim(
        epoch=ClaimEpoch(
            key=key,
            topology_id=TopologyId(f"topology-{run}"),
            run_id=RunId(run),
            coordinator_id=CoordinatorId(coordinator),
            participant_set_hash=participants,
            topology_hash=topology,
        ),
        term=Term(term),
        lease_until_unix_ms=UnixMs(lease),
    )


def load_of(
    accepted: CoordinatorClaim, *, stage: str = "stage-1", generation: int = 1
) -> LoadStage:
    """The load that belongs to a claim."""
    return LoadStage(
        key=accepted.key,
        stage=stage_key(accepted, stage),
        coordinator_term=accepted.term,
        coordinator_id=accepted.epoch.coordinator_id,
        participant_set_hash=accepted.epoch.participant_set_hash,
        topology_hash=accepted.epoch.topology_hash,
        shutdown_generation=generation,
        stage_index=1,
        layer_start=10,
        layer_end=20,
        admission="admission",
    )


def local_load(*, run: str = "run-local", generation: int = 1) -> LoadStage:
    """A load without term and coordinator."""
    stage = StageKey(
        topology_id=TopologyId(f"topology-{run}"),
        run_id=RunId(run),
        stage_id=StageId("stage-0"),
    )
    return LoadStage(
        key=KEY,
        stage=stage,
        coordinator_term=Term(0),
        coordinator_id=None,
        shutdown_generation=generation,
        stage_index=0,
        layer_start=0,
        layer_end=30,
        admission="admission",
    )


def stop_of(load: LoadStage, *, generation: int | None = None) -> StopStage:
    """The stop that belongs to a load."""
    return StopStage(
        key=load.key,
        stage=load.stage,
        coordinator_term=load.coordinator_term,
        shutdown_generation=(
            load.shutdown_generation if generation is None else generation
        ),
    )


def stage_key(accepted: CoordinatorClaim, stage: str = "stage-1") -> StageKey:
    """A stage of a claimed run."""
    return StageKey(
        topology_id=accepted.epoch.topology_id,
        run_id=accepted.epoch.run_id,
        stage_id=StageId(stage),
    )


def ready_status(load: LoadStage) -> StageStatus:
    """What an honest stage echoes."""
    return StageStatus(
        key=load.key,
        stage=load.stage,
        state=StageState.READY,
        coordinator_term=load.coordinator_term,
        coordinator_id=load.coordinator_id,
        shutdown_generation=load.shutdown_generation,
        stage_index=load.stage_index,
        layer_start=load.layer_start,
        layer_end=load.layer_end,
        backend=load.backend,
        source_model_sha256=load.source_model_sha256,
        source_model_bytes=load.source_model_bytes,
        source_model_path=None,
        bind_addr="127.0.0.1:19000",
        admission=load.admission,
    )


def changed(value: Value, **fields: object) -> Value:
    """A frozen value with some fields replaced, whatever their types."""
    other = copy.copy(value)
    for name, field in fields.items():
        assert hasattr(other, name), name
        object.__setattr__(other, name, field)
    return other
