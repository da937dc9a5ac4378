"""From a configuration to an engine's settings, and what contradicts the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from skippyd.config.endpoints import Endpoint
from skippyd.errors import ConfigError, ModelError, RefusedError
from skippyd.stage.loading import (
    CAPTURE_VARIABLE,
    capture_choice,
    default_threads,
    engine_settings,
    load_runtime,
    physical_cores,
)
from support.gguf_bytes import TinyLlama
from support.stage_room import config_of, topology_of


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.config.stage import StageConfig


@pytest.fixture
def config(tmp_path: Path) -> StageConfig:
    """One stage with all three layers of a tiny model."""
    model = TinyLlama().write(tmp_path / "m.gguf")
    return attrs.evolve(config_of(0, [1]), layer_end=3, model_path=str(model))


def test_nulls_are_filled_in(config: StageConfig) -> None:
    settings = engine_settings(config)
    assert settings.n_ubatch == settings.n_batch == config.prefill_chunk_size
    assert settings.n_threads == physical_cores()
    assert settings.repack
    assert not settings.check_tensors


def test_what_is_written_is_obeyed(config: StageConfig) -> None:
    written = attrs.evolve(
        config, n_threads=3, n_batch=32, n_ubatch=16, repack=False, check_tensors=True
    )
    settings = engine_settings(written)
    assert (settings.n_threads, settings.n_batch, settings.n_ubatch) == (3, 32, 16)
    assert (settings.repack, settings.check_tensors) == (False, True)


def test_stages_of_one_host_share_its_cores() -> None:
    config, topology = config_of(1, [1, 2, 3]), topology_of([1, 2, 3])
    assert default_threads(config, topology) == max(1, physical_cores() // 3)
    first, *others = topology.stages
    away = attrs.evolve(first, endpoint=Endpoint("192.0.2.1", 1))
    spread = attrs.evolve(topology, stages=(away, *others))
    assert default_threads(config, spread) == max(1, physical_cores() // 2)
    assert default_threads(config, None) == physical_cores()


def test_a_capture_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE_VARIABLE, "python")
    assert capture_choice() == "python"
    monkeypatch.setenv(CAPTURE_VARIABLE, "rust")
    with pytest.raises(ConfigError, match="write auto, native or python"):
        capture_choice()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"layer_end": 2}, ConfigError, "no downstream stage; name the stage"),
        ({"layer_end": 4}, RefusedError, "the model has 3 layers"),
        ({"activation_width": 7}, ConfigError, "the model's is 8; leave it out"),
        ({"source_model_sha256": "0" * 64}, ConfigError, "another file than the one"),
        ({"model_path": "/nowhere/m.gguf"}, ModelError, "/nowhere/m.gguf"),
        ({"model_path": "/"}, ConfigError, "is a directory"),
        ({"model_path": None}, ConfigError, "name the GGUF file to serve"),
    ],
)
def test_a_contradiction_is_told_before_llama_cpp_sees_anything(
    config: StageConfig,
    changes: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        load_runtime(attrs.evolve(config, **changes))


def test_the_last_layer_with_a_downstream_is_a_contradiction(
    config: StageConfig,
) -> None:
    longer = config_of(0, [1, 2])
    wrong = attrs.evolve(config, downstream=longer.downstream)
    with pytest.raises(ConfigError, match="a downstream stage; the stage with the"):
        load_runtime(wrong)
