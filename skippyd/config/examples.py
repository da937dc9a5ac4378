"""Example documents, as `skippyd example-config` prints them and `etc/` keeps them."""

from __future__ import annotations

import json


_EXAMPLE_STAGE: dict[str, object] = {
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

_EXAMPLE_TOPOLOGY: dict[str, object] = {
    "schema": "skippy.topology/1",
    "topology_id": "single-stage-fixture",
    "model_id": "jc-builds/SmolLM2-135M-Instruct-Q4_K_M-GGUF:Q4_K_M",
    "stages": [
        {
            "stage_id": "stage-0",
            "stage_index": 0,
            "host": None,
            "endpoint": "127.0.0.1:19000",
            "layer_start": 0,
            "layer_end": 1,
            "load_mode": "runtime-slice",
        }
    ],
}


def example_stage_text() -> str:
    """A stage configuration that is valid, and serves once `model_path` is set."""
    return json.dumps(_EXAMPLE_STAGE, indent=2) + "\n"


def example_topology_text() -> str:
    """The one-stage topology that the example stage belongs to."""
    return json.dumps(_EXAMPLE_TOPOLOGY, indent=2) + "\n"
