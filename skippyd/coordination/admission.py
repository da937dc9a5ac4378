"""The admission descriptor of a stage, from the model that was really opened.

Coordinator and stage work it out alike and apart from each other; equal texts are equal
descriptors (contract, "Identity of a model in claims").
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.admission import (
    PACKAGE_ID_PREFIX,
    PLAN_ID_PREFIX,
    AdmissionDescriptor,
    AdmissionProfile,
    Sidecar,
    SidecarKind,
    compare_descriptors,
)
from skippyd.model.slicing import slice_model


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.coordination.ports import StageRunSettings
    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.build import BuildFacts

SLICE_RULES_VERSION = 1
"""Raised with every change of `model/slice_rules` that changes what a stage computes."""

PROFILE_ID = "cpu"
BACKEND = "skippy"
LOCAL_GGUF_PREFIX = "local-gguf://sha256/"
TEXT_MAX_CHARACTERS = 1 << 20


def package_ref(model_sha256: str) -> str:
    """How a GGUF file is named in claims (contract)."""
    return f"{LOCAL_GGUF_PREFIX}{model_sha256}"


def plan_id(settings: StageRunSettings) -> str:
    """Name a plan by stages, ranges, context, lanes and cache types (contract).

    Ports and the key of the run are no part of it: they come later.
    """
    document = {
        "stages": [
            {
                "stage_id": stage.stage_id,
                "stage_index": stage.stage_index,
                "node_id": stage.node_id,
                "layer_start": stage.layer_start,
                "layer_end": stage.layer_end,
            }
            for stage in settings.stages
        ],
        "ctx_size": settings.ctx_size,
        "lane_count": settings.lane_count,
        "cache_type_k": settings.cache_type_k,
        "cache_type_v": settings.cache_type_v,
    }
    return PLAN_ID_PREFIX + _digest(document)


def stage_descriptor(
    model: GgufModel,
    layer_start: int,
    layer_end: int,
    settings: StageRunSettings,
    build: BuildFacts,
) -> AdmissionDescriptor:
    """Describe one stage of an opened model; reads its header only.

    Args:
        model: The model; that its digest is `settings.model_sha256` is the caller's
            knowledge.
        layer_start: The stage's first layer.
        layer_end: One past its last.
        settings: What the whole run is made of.
        build: What would compute here.

    Raises:
        RefusedError: The range or the architecture is not offered.
        ModelError: The file was replaced since it was opened.
    """
    part = slice_model(model, layer_start, layer_end)
    tensors = sorted(
        (t.name, list(t.shape), t.type.name, t.is_synthetic)
        for t in part.resident_tensors
    )
    profile = AdmissionProfile(
        profile_id=PROFILE_ID,
        graph_identity=_digest([model.architecture, SLICE_RULES_VERSION]),
        profile_identity=_digest(
            [
                build.llama_cpp_build,
                settings.cache_type_k,
                settings.cache_type_v,
                settings.flash_attn_type,
            ]
        ),
        slice_identity=_digest([layer_start, layer_end, tensors]),
        source_snapshot_identity=_digest(settings.model_sha256),
        graph_configuration_id=_digest([settings.ctx_size, settings.lane_count]),
        backend_id=_digest([PROFILE_ID, build.cpu_features]),
    )
    return AdmissionDescriptor(
        package_id=f"{PACKAGE_ID_PREFIX}{settings.model_sha256}",
        plan_id=plan_id(settings),
        layer_start=layer_start,
        layer_end=layer_end,
        resident_tensor_ids=tuple(str(tensor[0]) for tensor in tensors),
        profiles=(profile,),
    )


def descriptor_text(descriptor: AdmissionDescriptor) -> str:
    """Write a descriptor canonically: sorted keys, no spaces."""
    document = attrs.asdict(
        descriptor,
        value_serializer=lambda _owner, _field, value: (
            value.value if isinstance(value, SidecarKind) else value
        ),
    )
    return _canonical(document)


def descriptor_difference(planned_text: str, realized: AdmissionDescriptor) -> str:
    """Say in which field a realised stage is not the planned one; empty when it is."""
    try:
        planned = _parsed(planned_text)
    except (ValueError, KeyError, TypeError) as error:
        return f"the planned admission descriptor cannot be read: {error!r}"
    mismatch = compare_descriptors(planned, realized)
    return "" if mismatch is None else str(mismatch)


def _parsed(text: str) -> AdmissionDescriptor:
    if len(text) > TEXT_MAX_CHARACTERS:
        raise ValueError(f"longer than {TEXT_MAX_CHARACTERS} characters")
    document = json.loads(text)
    profiles = tuple(AdmissionProfile(**fields) for fields in document.pop("profiles"))
    sidecars = tuple(
        Sidecar(**{**fields, "kind": SidecarKind(fields["kind"])})
        for fields in document.pop("sidecars")
    )
    tensor_ids: Sequence[str] = document.pop("resident_tensor_ids")
    return AdmissionDescriptor(
        resident_tensor_ids=tuple(tensor_ids),
        profiles=profiles,
        sidecars=sidecars,
        **document,
    )


def _digest(value: object) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
