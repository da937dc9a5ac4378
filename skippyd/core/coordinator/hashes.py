"""Hashes that name a plan: of its participants, its topology, and its plan id.

A hash is taken over a domain tag and then every field with its length in front (u32
little-endian), integers as fixed little-endian words: no two lists of fields give
the same bytes (contract, "Identity of a model in claims").
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import attrs

from skippyd.ids import NodeId, StageId


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skippyd.core.coordinator.participants import Participant


PARTICIPANTS_TAG = b"skippy-participants-1"
TOPOLOGY_TAG = b"skippy-topology-1"
PLAN_ID_PREFIX = "skippy-plan:v1:"

_U32_BYTES = 4
_U64_BYTES = 8


@attrs.frozen(kw_only=True)
class PlannedLayers:
    """One stage of a planned topology; the layer range is half-open."""

    stage_id: StageId
    stage_index: int
    node_id: NodeId
    layer_start: int
    layer_end: int
    parameter_bytes: int


def participant_set_hash(participants: Iterable[Participant]) -> str:
    """Hash the planned participants: each node once, in the order of node ids."""
    by_id = {node.node_id: node for node in participants}
    digest = hashlib.sha256(PARTICIPANTS_TAG)
    for _, node in sorted(by_id.items()):
        for field in (
            node.node_id.encode(),
            _u64(node.vram_bytes),
            _u64(node.cached_slice_bytes),
            _u64(node.missing_artifact_bytes),
            _u32(node.rtt_ms),
            bytes([node.is_artifact_transfer_supported]),
            _u32(node.availability_score),
        ):
            digest.update(_u32(len(field)) + field)
    return digest.hexdigest()


def topology_hash(stages: Sequence[PlannedLayers]) -> str:
    """Hash the stages in their order, with owners and layer ranges."""
    digest = hashlib.sha256(TOPOLOGY_TAG)
    for stage in stages:
        for field in (
            stage.stage_id.encode(),
            _u32(stage.stage_index),
            stage.node_id.encode(),
            _u32(stage.layer_start),
            _u32(stage.layer_end),
            _u64(stage.parameter_bytes),
        ):
            digest.update(_u32(len(field)) + field)
    return digest.hexdigest()


def plan_id(
    stages: Sequence[PlannedLayers],
    *,
    context_length: int,
    lanes: int,
    cache_type_k: str,
    cache_type_v: str,
) -> str:
    """Name a plan by the SHA-256 of its canonical JSON: sorted keys, no spaces."""
    document = {
        "cache_type_k": cache_type_k,
        "cache_type_v": cache_type_v,
        "context_length": context_length,
        "lanes": lanes,
        "stages": [
            {
                "stage_id": stage.stage_id,
                "stage_index": stage.stage_index,
                "node_id": stage.node_id,
                "layer_start": stage.layer_start,
                "layer_end": stage.layer_end,
            }
            for stage in stages
        ],
    }
    canonical = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return PLAN_ID_PREFIX + hashlib.sha256(canonical.encode()).hexdigest()


def _u32(value: int) -> bytes:
    return value.to_bytes(_U32_BYTES, "little")


def _u64(value: int) -> bytes:
    return value.to_bytes(_U64_BYTES, "little")
