"""The admission descriptor: what it is made of, and that nothing of it is forgotten."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.admission import (
    descriptor_difference,
    descriptor_text,
    package_ref,
    plan_id,
    stage_descriptor,
)
from skippyd.coordination.ports import StageEndpoint, StageRunSettings
from skippyd.core.wire.admission import descriptor_defect
from skippyd.ids import NodeId
from skippyd.model.gguf_model import open_model
from support.random_models import RandomModel, write_random_model
from support.stage_nodes import SOME_BUILD


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.core.wire.admission import AdmissionDescriptor
    from skippyd.model.gguf_model import GgufModel

SETTINGS = StageRunSettings(
    model_sha256="ab" * 32,
    model_id="org/model",
    ctx_size=512,
    lane_count=4,
    stages=tuple(
        StageEndpoint(
            stage_id=f"stage-{index}",
            stage_index=index,
            node_id=NodeId(f"node-{index}"),
            layer_start=3 * index,
            layer_end=3 * index + 3,
            host="127.0.0.1",
        )
        for index in range(2)
    ),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> GgufModel:
    """Six small layers."""
    path = tmp_path_factory.mktemp("models") / "m.gguf"
    return open_model(write_random_model(path, RandomModel()))


def described(model: GgufModel, **settings: object) -> AdmissionDescriptor:
    changed = attrs.evolve(SETTINGS, **settings)  # type: ignore[arg-type]
    return stage_descriptor(model, 0, 3, changed, SOME_BUILD)


def test_a_plan_is_named_by_its_canonical_json() -> None:
    """Contract: sorted keys, no spaces; the text is typed out here."""
    text = (
        '{"cache_type_k":"f16","cache_type_v":"f16","ctx_size":512,"lane_count":4,'
        '"stages":[{"layer_end":3,"layer_start":0,"node_id":"node-0","stage_id":'
        '"stage-0","stage_index":0},{"layer_end":6,"layer_start":3,"node_id":"node-1",'
        '"stage_id":"stage-1","stage_index":1}]}'
    )

    digest = hashlib.sha256(text.encode()).hexdigest()

    assert plan_id(SETTINGS) == f"skippy-plan:v1:{digest}"


def test_ports_and_keys_of_a_run_do_not_change_its_plan() -> None:
    stages = tuple(attrs.evolve(stage, port=19_000) for stage in SETTINGS.stages)
    later = attrs.evolve(SETTINGS, stages=stages, run_key="5a" * 32)

    assert plan_id(later) == plan_id(SETTINGS)
    assert plan_id(attrs.evolve(SETTINGS, ctx_size=513)) != plan_id(SETTINGS)
    assert plan_id(attrs.evolve(SETTINGS, lane_count=3)) != plan_id(SETTINGS)


def test_a_package_is_named_by_its_content() -> None:
    assert package_ref("ab" * 32) == f"local-gguf://sha256/{'ab' * 32}"


def test_a_descriptor_is_well_formed_and_lists_exactly_its_tensors(
    model: GgufModel,
) -> None:
    descriptor = described(model)

    assert (
        descriptor_defect(descriptor, stage_index=0, layer_start=0, layer_end=3) is None
    )
    assert descriptor.package_id == f"sha256:{'ab' * 32}"
    assert "token_embd.weight" in descriptor.resident_tensor_ids
    assert "blk.2.attn_q.weight" in descriptor.resident_tensor_ids
    assert "blk.3.attn_q.weight" not in descriptor.resident_tensor_ids
    (profile,) = descriptor.profiles
    assert profile.profile_id == "cpu"


def test_the_text_is_canonical(model: GgufModel) -> None:
    text = descriptor_text(described(model))

    document = json.loads(text)
    assert text == json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert document["version"] == 1


def test_equal_stages_have_equal_texts(model: GgufModel) -> None:
    again = open_model(model.path)

    assert descriptor_text(described(again)) == descriptor_text(described(model))
    assert (
        descriptor_difference(descriptor_text(described(model)), described(again)) == ""
    )


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"model_sha256": "cd" * 32}, "package id mismatch"),
        ({"ctx_size": 1024}, "plan id mismatch"),
        ({"lane_count": 2}, "plan id mismatch"),
        ({"cache_type_k": "q8_0"}, "plan id mismatch"),
        ({"flash_attn_type": "enabled"}, "profile_identity"),
    ],
)
def test_each_setting_that_moves_a_result_is_in_it(
    model: GgufModel, settings: dict[str, object], field: str
) -> None:
    planned = descriptor_text(described(model))

    assert field in descriptor_difference(planned, described(model, **settings))


def test_build_and_features_of_the_machine_are_in_it(model: GgufModel) -> None:
    planned = descriptor_text(described(model))
    other_build = attrs.evolve(SOME_BUILD, llama_cpp_build="other")
    other_machine = attrs.evolve(SOME_BUILD, cpu_features="AVX512")

    by_build = stage_descriptor(model, 0, 3, SETTINGS, other_build)
    by_machine = stage_descriptor(model, 0, 3, SETTINGS, other_machine)

    assert "profile_identity" in descriptor_difference(planned, by_build)
    assert "backend_id" in descriptor_difference(planned, by_machine)


def test_another_range_or_another_model_is_another_stage(
    model: GgufModel, tmp_path: Path
) -> None:
    planned = descriptor_text(described(model))
    other = open_model(
        write_random_model(tmp_path / "o.gguf", RandomModel(dtype="f16"))
    )

    by_range = stage_descriptor(model, 3, 6, SETTINGS, SOME_BUILD)
    by_type = stage_descriptor(other, 0, 3, SETTINGS, SOME_BUILD)

    assert "layer range mismatch" in descriptor_difference(planned, by_range)
    assert "slice_identity" in descriptor_difference(planned, by_type)


@pytest.mark.parametrize("text", ["", "[]", "{}", "x" * (1 << 21), '{"profiles": 1}'])
def test_a_planned_text_that_is_none_is_a_difference(
    model: GgufModel, text: str
) -> None:
    assert "cannot be read" in descriptor_difference(text, described(model))
