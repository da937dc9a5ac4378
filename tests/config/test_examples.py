from __future__ import annotations

import json

import pytest

from skippyd.config.examples import example_stage_text, example_topology_text
from skippyd.config.stage import stage_config
from skippyd.config.topology import check_stage_in_topology, stage_topology
from skippyd.errors import ConfigError


def test_the_example_stage_holds_the_published_values() -> None:
    """Skippy-facts 2.6, `example-config`, and the contract's schema key."""
    assert json.loads(example_stage_text()) == {
        "schema": "skippy.stage/1",
        "run_id": "run-local",
        "topology_id": "single-stage-fixture",
        "model_id": "jc-builds/SmolLM2-135M-Instruct-Q4_K_M-GGUF:Q4_K_M",
        "model_path": None,
        "checkpoint_quantization": None,
        "projector_path": None,
        "stage_id": "stage-0",
        "stage_index": 0,
        "layer_start": 0,
        "layer_end": 1,
        "ctx_size": 512,
        "lane_count": 4,
        "n_gpu_layers": 0,
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "load_mode": "runtime-slice",
        "bind_addr": "127.0.0.1:19000",
        "upstream": None,
        "downstream": None,
    }


def test_the_examples_are_valid_and_fit_together() -> None:
    config = stage_config(json.loads(example_stage_text()), source="stage")
    chain = stage_topology(json.loads(example_topology_text()), source="topology")
    check_stage_in_topology(config, chain)
    assert chain.final_stage.endpoint == config.bind_addr


def test_the_example_cannot_be_served_before_a_model_is_named() -> None:
    config = stage_config(json.loads(example_stage_text()), source="stage")
    with pytest.raises(ConfigError, match="model_path is null"):
        config.require_model_path()
