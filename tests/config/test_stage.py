from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.config.complaints import InvalidConfigError
from skippyd.config.endpoints import Endpoint
from skippyd.config.stage import (
    CacheType,
    FlashAttention,
    LoadMode,
    PeerConfig,
    StageConfig,
    load_stage_config,
    stage_config,
    stage_document,
)
from skippyd.errors import ConfigError
from skippyd.ids import ModelId, RunId, StageId, TopologyId
from support.stage_json import REQUIRED


PEER = {"stage_id": "stage-2", "stage_index": 2, "endpoint": "127.0.0.1:19002"}


def complaints_about(**changes: object) -> dict[str, str]:
    with pytest.raises(InvalidConfigError) as caught:
        stage_config({**REQUIRED, **changes}, source="stage.json")
    return {complaint.path: complaint.text for complaint in caught.value.complaints}


def test_required_fields_alone_are_enough_and_give_the_published_defaults() -> None:
    """Skippy-facts 2.6 and the contract's additions."""
    config = stage_config(dict(REQUIRED), source="s")
    assert config == StageConfig(
        run_id=RunId("run-1"),
        topology_id=TopologyId("topology-1"),
        model_id=ModelId("org/model:Q4_1"),
        stage_id=StageId("stage-1"),
        stage_index=1,
        layer_start=10,
        layer_end=20,
        load_mode=LoadMode.RUNTIME_SLICE,
        bind_addr=Endpoint("127.0.0.1", 19001),
        advertise_endpoint=None,
        model_path=None,
        source_model_sha256=None,
        ctx_size=512,
        lane_count=4,
        lane_poll_us=0,
        cache_type_k=CacheType.F16,
        cache_type_v=CacheType.F16,
        flash_attn_type=FlashAttention.AUTO,
        kv_unified=True,
        swa_full=True,
        n_threads=None,
        n_batch=None,
        n_ubatch=None,
        prefill_chunk_size=64,
        activation_width=None,
        native_mtp_enabled=True,
        filter_tensors_on_load=False,
        repack=None,
        check_tensors=None,
        upstream=None,
        downstream=None,
        transport_auth=None,
    )
    assert config.layer_count == 10


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_each_required_field_is_missed_by_name(name: str) -> None:
    document = {key: value for key, value in REQUIRED.items() if key != name}
    with pytest.raises(InvalidConfigError) as caught:
        stage_config(document, source="stage.json")
    assert str(caught.value) == f"stage.json: {name}: is required and missing"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv_cache", {"mode": "auto"}),
        ("n_gpu_layers", 1),
        ("n_gpu_layers", False),
        ("split_mode", "none"),
        ("glm_dsa_policy", "v1"),
        ("materialized_pinned", True),
        ("selected_device", {"backend_device": "CUDA0"}),
        ("package_ref", "hf://org/repo"),
        ("manifest_sha256", "0" * 64),
        ("source_model_path", "/m"),
        ("source_model_bytes", 1),
        ("materialized_path", "/m"),
        ("checkpoint_quantization", "Q4_K_M"),
        ("checkpoint_imatrix", "x"),
        ("projector_path", "/m"),
        ("projector_use_gpu", True),
        ("media_marker", "<img>"),
        ("image_min_tokens", 1),
        ("image_max_tokens", 1),
        ("batch_max_tokens", 1),
        ("generation_signal_window", 1),
        ("mmap", True),
        ("mlock", True),
        ("op_offload", True),
        ("no_host_buffer", True),
        ("direct_io", True),
        ("main_gpu", 0),
        ("kv_offload", True),
        ("cache_idle_slots", True),
    ],
)
def test_known_fields_that_are_not_served_are_refused_by_name(
    name: str, value: object
) -> None:
    assert (
        "is not supported yet; leave it out or write"
        in (complaints_about(**{name: value})[name])
    )


def test_known_fields_at_their_neutral_value_change_nothing() -> None:
    neutral = {
        "n_gpu_layers": 0,
        "split_mode": "auto",
        "glm_dsa_policy": "auto",
        "materialized_pinned": False,
        "kv_cache": None,
        "mmap": None,
        "mlock": False,
        "projector_path": None,
    }
    assert stage_config({**REQUIRED, **neutral}, source="s") == stage_config(
        dict(REQUIRED), source="s"
    )


@pytest.mark.parametrize("mode", ["layer-package", "artifact-slice"])
def test_other_load_modes_are_not_supported_yet(mode: str) -> None:
    assert complaints_about(load_mode=mode) == {
        "load_mode": f"{mode} is not supported yet; write runtime-slice"
    }


def test_a_misspelt_key_is_refused_with_the_nearest_right_one() -> None:
    assert complaints_about(layer_strat=1) == {
        "layer_strat": "unknown key; did you mean layer_start?"
    }


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = complaints_about(
        ctx_size="512", n_gpu_layers=9, nonsense=1, downstream={**PEER, "endpoint": 1}
    )
    assert set(found) == {
        "ctx_size",
        "n_gpu_layers",
        "nonsense",
        "downstream.endpoint",
    }


@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        (
            {"layer_end": 10},
            "layer_start",
            "layer_start must be less than layer_end (10 and 10)",
        ),
        (
            {"layer_start": 0},
            "layer_start",
            "stage 1 starts at layer 0; stage 0 and only stage 0 starts at layer 0",
        ),
        (
            {"stage_index": 0},
            "layer_start",
            "stage 0 starts at layer 10; stage 0 and only stage 0 starts at layer 0",
        ),
        ({"lane_count": 0}, "lane_count", "lane_count must be greater than zero"),
        ({"lane_count": -1}, "lane_count", "-1 is outside 1 to 256"),
        ({"lane_count": 257}, "lane_count", "257 is outside 1 to 256"),
        ({"ctx_size": 0}, "ctx_size", "0 is outside 1 to 2147483647"),
        ({"ctx_size": 2**31}, "ctx_size", "2147483648 is outside 1 to 2147483647"),
        ({"n_threads": 0}, "n_threads", "0 is outside 1 to 512"),
        ({"lane_poll_us": -1}, "lane_poll_us", "-1 is outside 0 to 1000000"),
        ({"prefill_chunk_size": 0}, "prefill_chunk_size", "0 is outside 1 to"),
        ({"activation_width": 0}, "activation_width", "0 is outside 1 to 1048576"),
        ({"layer_end": 5000}, "layer_end", "5000 is outside 1 to 4096"),
        ({"stage_index": 1024}, "stage_index", "1024 is outside 0 to 1023"),
        ({"run_id": ""}, "run_id", "the text '' is not an identifier"),
        ({"stage_id": "a\nb"}, "stage_id", "the text 'a\\nb' is not an identifier"),
        ({"model_id": "x" * 257}, "model_id", "the text 'xxx"),
        ({"topology_id": "\x7f"}, "topology_id", "the text '\\x7f' is not an ident"),
        ({"model_path": ""}, "model_path", "is empty; name a GGUF file or write null"),
        (
            {"source_model_sha256": "AB" * 32},
            "source_model_sha256",
            "the text 'ABABABAB",
        ),
        (
            {"upstream": PEER},
            "upstream.stage_index",
            "2 is not next to this stage's index 1; write 0",
        ),
        (
            {"downstream": {**PEER, "stage_index": 3}},
            "downstream.stage_index",
            "3 is not next to this stage's index 1; write 2",
        ),
        (
            {"downstream": {**PEER, "endpoint": "h:0"}},
            "downstream.endpoint",
            "port 0 cannot be dialled",
        ),
        (
            {"downstream": {**PEER, "stage_id": ""}},
            "downstream.stage_id",
            "the text '' is not an identifier",
        ),
        (
            {"stage_index": 0, "layer_start": 0, "upstream": PEER},
            "upstream.stage_index",
            "stage 0 has no upstream stage; write null for upstream",
        ),
        ({"transport_auth": ""}, "transport_auth", "holds 0 bytes; write 1 to 64"),
        ({"transport_auth": "00" * 65}, "transport_auth", "holds 65 bytes"),
        (
            {"n_batch": 64, "n_ubatch": 65},
            "n_ubatch",
            "65 is more than n_batch 64",
        ),
        ({"n_batch": 63}, "prefill_chunk_size", "64 is more than n_batch 63"),
        (
            {"cache_type_v": "q8_0", "flash_attn_type": "disabled"},
            "cache_type_v",
            "q8_0 needs flash attention",
        ),
        ({"cache_type_k": "q6_k"}, "cache_type_k", "expected one of f32, f16, bf16"),
        ({"schema": "skippy.stage/2"}, "schema", "expected 'skippy.stage/1', found"),
    ],
)
def test_each_rule_names_its_field_and_the_way_out(
    changes: dict[str, object], path: str, text: str
) -> None:
    found = complaints_about(**changes)
    assert set(found) == {path}
    assert found[path].startswith(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"lane_count": 256},
        {"n_batch": 64, "n_ubatch": 64},
        {"cache_type_v": "q8_0", "flash_attn_type": "auto"},
        {"cache_type_k": "q8_0", "flash_attn_type": "disabled"},
        {"cache_type_v": "bf16", "flash_attn_type": "disabled"},
        {"transport_auth": "00" * 64},
        {"downstream": PEER},
        {"upstream": {**PEER, "stage_index": 0}},
        {"schema": "skippy.stage/1"},
    ],
)
def test_values_on_the_edge_of_a_rule_are_allowed(changes: dict[str, object]) -> None:
    config = stage_config({**REQUIRED, **changes}, source="s")
    assert config.stage_id == "stage-1"


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_a_document_that_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(InvalidConfigError, match="s: expected an object, found"):
        stage_config(document, source="s")


def test_a_file_is_read_and_named_in_complaints(tmp_path: Path) -> None:
    path = tmp_path / "stage.json"
    path.write_text(json.dumps({**REQUIRED, "downstream": PEER}))
    config = load_stage_config(path)
    assert config.downstream == PeerConfig(
        stage_id=StageId("stage-2"),
        stage_index=2,
        endpoint=Endpoint("127.0.0.1", 19002),
    )
    path.write_text(json.dumps({**REQUIRED, "ctx_size": True}))
    with pytest.raises(ConfigError) as caught:
        load_stage_config(path)
    assert str(caught.value) == (
        f"{path}: ctx_size: expected a whole number, found true"
    )


def test_a_configuration_built_in_a_program_is_checked_as_well() -> None:
    config = stage_config(dict(REQUIRED), source="s")
    with pytest.raises(InvalidConfigError, match="lane_count must be greater"):
        attrs.evolve(config, lane_count=0)


def test_the_run_key_is_not_shown() -> None:
    config = stage_config({**REQUIRED, "transport_auth": "c0ffee"}, source="s")
    assert config.transport_auth == b"\xc0\xff\xee"
    assert "transport_auth" not in repr(config)


def test_peers_reach_the_advertised_endpoint_before_the_bound_one() -> None:
    config = stage_config(dict(REQUIRED), source="s")
    assert config.reachable_endpoint == config.bind_addr
    advertised = attrs.evolve(config, advertise_endpoint=Endpoint("10.0.0.1", 5))
    assert advertised.reachable_endpoint == Endpoint("10.0.0.1", 5)


def test_serving_needs_a_model_file(tmp_path: Path) -> None:
    config = stage_config(dict(REQUIRED), source="s")
    with pytest.raises(ConfigError, match="model_path is null: name the GGUF file"):
        config.require_model_path()
    directory = attrs.evolve(config, model_path=str(tmp_path))
    with pytest.raises(ConfigError, match="checkpoints are not supported yet"):
        directory.require_model_path()
    file = attrs.evolve(config, model_path="models/a.gguf")
    assert file.require_model_path() == Path("models/a.gguf")


@pytest.mark.parametrize("cache_type", list(CacheType))
def test_block_types_are_the_quantized_ones(cache_type: CacheType) -> None:
    plain = cache_type in {CacheType.F32, CacheType.F16, CacheType.BF16}
    assert cache_type.is_quantized is not plain


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "ctx_size": st.integers(1, 2**31 - 1),
            "lane_count": st.integers(1, 256),
            "cache_type_k": st.sampled_from([t.value for t in CacheType]),
            "flash_attn_type": st.sampled_from(["auto", "enabled", "disabled"]),
            "kv_unified": st.booleans(),
            "n_threads": st.none() | st.integers(1, 512),
            "downstream": st.none() | st.just(PEER),
            "transport_auth": st.none()
            | st.binary(min_size=1, max_size=64).map(bytes.hex),
            "advertise_endpoint": st.none() | st.just("[::1]:5"),
        },
    )
)
def test_what_is_written_reads_back(changes: dict[str, object]) -> None:
    config = stage_config({**REQUIRED, **changes}, source="s")
    text = json.dumps(stage_document(config))
    assert stage_config(json.loads(text), source="s") == config
