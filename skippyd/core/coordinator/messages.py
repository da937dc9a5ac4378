"""Requests and replies between a coordinator and the nodes it plans with.

Only what the rules look at: the shell adds a stage's run-time settings (context,
cache types, device) when it puts a load on the wire, and the envelope around all.
"""

from __future__ import annotations

from enum import Enum

import attrs

from skippyd.core.coordinator.claim import ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.verdict import (
    ClaimVerdict,
    FencedRun,
    LoadRefused,
    PrepareRefused,
    ProbeVerdict,
    StopRefused,
)
from skippyd.ids import CoordinatorId, RunId, StageId, Term, TopologyId


class Origin(Enum):
    """Where a request came from; work without a term is local only (I12)."""

    NETWORK = "network"
    ADMIN = "admin"


class StageState(Enum):
    """State of a stage's runtime, in wire words (skippy-facts 2.2)."""

    STARTING = "STARTING"
    READY = "READY"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class PreparationState(Enum):
    """State of a preparation, in wire words (skippy-facts 2.2)."""

    ASSIGNED = "ASSIGNED"
    DOWNLOADING = "DOWNLOADING"
    AVAILABLE = "AVAILABLE"
    RESOLVING = "RESOLVING"
    LOADING = "LOADING"
    READY = "READY"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@attrs.frozen(kw_only=True, cache_hash=True)
class StageKey:
    """Which stage of which run; commands about a stage are matched by it."""

    topology_id: TopologyId
    run_id: RunId
    stage_id: StageId


@attrs.frozen
class ProbeClaim:
    """Ask for the verdict on a claim; nothing is stored, nothing fenced."""

    claim: CoordinatorClaim


@attrs.frozen
class ClaimCoordinator:
    """Offer a claim."""

    claim: CoordinatorClaim


@attrs.frozen(kw_only=True)
class LoadStage:
    """Start one stage of an accepted run.

    `admission` is the canonical text of the stage-admission descriptor: equal texts
    are equal descriptors. Term 0 without a coordinator is an unfenced local load.
    """

    key: ClaimKey
    stage: StageKey
    coordinator_term: Term
    coordinator_id: CoordinatorId | None
    participant_set_hash: str = ""
    topology_hash: str = ""
    shutdown_generation: int
    stage_index: int
    layer_start: int
    layer_end: int
    backend: str = "skippy"
    source_model_sha256: str | None = None
    source_model_bytes: int | None = None
    admission: str


@attrs.frozen(kw_only=True)
class StopStage:
    """Stop one stage; names the model artifact so that a stale term is always seen."""

    key: ClaimKey
    stage: StageKey
    coordinator_term: Term
    shutdown_generation: int


@attrs.frozen
class PrepareStage:
    """Fetch and check what a later load will need."""

    load: LoadStage


@attrs.frozen(kw_only=True)
class CancelPrepareStage:
    """End a preparation and refuse it at this generation from now on."""

    key: ClaimKey
    stage: StageKey
    coordinator_term: Term
    shutdown_generation: int


Request = (
    ProbeClaim
    | ClaimCoordinator
    | PrepareStage
    | CancelPrepareStage
    | LoadStage
    | StopStage
)


@attrs.frozen(kw_only=True)
class StageStatus:
    """What a stage says about itself; a ready one is compared with its load."""

    key: ClaimKey
    stage: StageKey
    state: StageState
    coordinator_term: Term
    coordinator_id: CoordinatorId | None
    shutdown_generation: int
    stage_index: int
    layer_start: int
    layer_end: int
    backend: str
    source_model_sha256: str | None
    source_model_bytes: int | None
    source_model_path: str | None
    bind_addr: str
    admission: str


@attrs.frozen(kw_only=True)
class ProbeAnswer:
    """The verdict a claim would get, and the runs it would end on this node."""

    verdict: ProbeVerdict
    fenced_runs: tuple[FencedRun, ...]
    instance_id: str


@attrs.frozen(kw_only=True)
class ClaimAnswer:
    """The verdict on a claim; a changed `instance_id` means a stage that forgot."""

    verdict: ClaimVerdict
    instance_id: str


@attrs.frozen
class StageReady:
    """The stage runs and is what it says."""

    status: StageStatus


@attrs.frozen(kw_only=True)
class LoadFailed:
    """The load was refused or its stage ended before it was ready."""

    stage: StageKey
    refusal: LoadRefused


@attrs.frozen
class StageStopped:
    """The stage does not run here (any more); also the answer for an unknown one."""

    stage: StageKey


@attrs.frozen(kw_only=True)
class StopFailed:
    """The stop, or the cancelling of a preparation, was refused."""

    stage: StageKey
    refusal: StopRefused


@attrs.frozen(kw_only=True)
class PreparationStatus:
    """How far a preparation is; `error` says why one failed or was cancelled."""

    stage: StageKey
    state: PreparationState
    error: str = ""


@attrs.frozen(kw_only=True)
class PrepareFailed:
    """The preparation was refused."""

    stage: StageKey
    refusal: PrepareRefused


Reply = (
    ProbeAnswer
    | ClaimAnswer
    | StageReady
    | LoadFailed
    | StageStopped
    | StopFailed
    | PreparationStatus
    | PrepareFailed
)
