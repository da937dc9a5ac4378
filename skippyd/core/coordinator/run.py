"""A plan as a coordinator sends it out, and one run of it at one term."""

from __future__ import annotations

import functools
import hashlib

import attrs

from skippyd.core.coordinator.claim import ClaimEpoch, ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.instant import MAX_LEASE_MS, MS_PER_S, Instant
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    LoadStage,
    StageKey,
    StopStage,
)
from skippyd.ids import CoordinatorId, NodeId, RunId, StageId, Term, TopologyId, UnixMs


PREPARE_TIMEOUT_MS = 30 * 60 * MS_PER_S
LOAD_TIMEOUT_MS = 15 * 60 * MS_PER_S
"""Defaults of skippy-facts 3.5; the shell scales both by the bytes of the model."""

MARK_LETTERS = 8
"""Hexadecimal digits of a coordinator's mark in its run ids."""


@attrs.frozen(kw_only=True)
class PlannedStage:
    """One stage of a plan; `admission` is its descriptor's canonical text."""

    node_id: NodeId
    stage_id: StageId
    stage_index: int
    layer_start: int
    layer_end: int
    admission: str
    backend: str = "skippy"
    source_model_sha256: str | None = None
    source_model_bytes: int | None = None


@attrs.frozen(kw_only=True)
class CampaignPlan:
    """What a coordinator wants to run where; stage 0 is its own.

    `may_replace`: the operator wants another coordinator's run of this model, or a
    local one, to be ended for this.
    """

    key: ClaimKey
    stages: tuple[PlannedStage, ...]
    participant_set_hash: str
    topology_hash: str
    prepare_timeout_ms: int = PREPARE_TIMEOUT_MS
    load_timeout_ms: int = LOAD_TIMEOUT_MS
    may_replace: bool = False

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """The planned nodes in the order of their stages."""
        return tuple(stage.node_id for stage in self.stages)

    def defect(self, coordinator: NodeId) -> str | None:
        """Say why a coordinator cannot run it, or None when it can."""
        if not self.stages or self.stages[0].node_id != coordinator:
            return "the plan's first stage is not on this node: another one coordinates"
        if len(set(self.node_ids)) != len(self.stages):
            return "the plan gives one node several stages"
        return None


@attrs.frozen(kw_only=True)
class Run:
    """One attempt to run a plan: its identity is new for every term."""

    plan: CampaignPlan
    coordinator_id: CoordinatorId
    term: Term
    shutdown_generation: int

    @functools.cached_property
    def run_id(self) -> RunId:
        """The id of the run; replans carry their generation (skippy-facts 3.4).

        Rivals that learnt of the same term pick the same next one: the coordinator's
        mark keeps their runs apart, so that no stop of one meets the other.
        """
        mark = hashlib.sha256(self.coordinator_id.encode()).hexdigest()[:MARK_LETTERS]
        suffix = f"-g{self.shutdown_generation}" if self.shutdown_generation > 1 else ""
        return RunId(f"mesh-split-{self.term}-{mark}{suffix}")

    @property
    def topology_id(self) -> TopologyId:
        """The id of the split that is run."""
        return TopologyId(f"topology-{self.run_id}")

    def claim(self, now: Instant) -> CoordinatorClaim:
        """Return the claim of this run with a lease of full length from now."""
        return CoordinatorClaim(
            epoch=ClaimEpoch(
                key=self.plan.key,
                topology_id=self.topology_id,
                run_id=self.run_id,
                coordinator_id=self.coordinator_id,
                participant_set_hash=self.plan.participant_set_hash,
                topology_hash=self.plan.topology_hash,
            ),
            term=self.term,
            lease_until_unix_ms=UnixMs(now.unix_ms + MAX_LEASE_MS),
        )

    def is_claimed_by(self, claim: CoordinatorClaim) -> bool:
        """Say whether a claim, whatever its lease, is the claim of this run."""
        return (claim.term, claim.epoch.run_id) == (self.term, self.run_id)

    def load(self, stage: PlannedStage) -> LoadStage:
        """Return the load of one of its stages."""
        return LoadStage(
            key=self.plan.key,
            stage=self._stage_key(stage),
            coordinator_term=self.term,
            coordinator_id=self.coordinator_id,
            participant_set_hash=self.plan.participant_set_hash,
            topology_hash=self.plan.topology_hash,
            shutdown_generation=self.shutdown_generation,
            stage_index=stage.stage_index,
            layer_start=stage.layer_start,
            layer_end=stage.layer_end,
            backend=stage.backend,
            source_model_sha256=stage.source_model_sha256,
            source_model_bytes=stage.source_model_bytes,
            admission=stage.admission,
        )

    def stop(self, stage: PlannedStage) -> StopStage:
        """Return the stop of one of its stages."""
        return StopStage(
            key=self.plan.key,
            stage=self._stage_key(stage),
            coordinator_term=self.term,
            shutdown_generation=self.shutdown_generation,
        )

    def cancel(self, stage: PlannedStage) -> CancelPrepareStage:
        """Return the cancelling of one of its preparations."""
        return CancelPrepareStage(
            key=self.plan.key,
            stage=self._stage_key(stage),
            coordinator_term=self.term,
            shutdown_generation=self.shutdown_generation,
        )

    def _stage_key(self, stage: PlannedStage) -> StageKey:
        return StageKey(
            topology_id=self.topology_id, run_id=self.run_id, stage_id=stage.stage_id
        )
