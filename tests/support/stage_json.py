"""The least that a stage configuration has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Mapping

REQUIRED: Mapping[str, object] = {
    "run_id": "run-1",
    "topology_id": "topology-1",
    "model_id": "org/model:Q4_1",
    "stage_id": "stage-1",
    "stage_index": 1,
    "layer_start": 10,
    "layer_end": 20,
    "load_mode": "runtime-slice",
    "bind_addr": "127.0.0.1:19001",
}
