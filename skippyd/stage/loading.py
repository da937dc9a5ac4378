"""From a stage's configuration to its loaded runtime, checked against the model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from skippyd.errors import ConfigError
from skippyd.model.facts import model_facts
from skippyd.model.gguf_model import open_model
from skippyd.model.identity import model_sha256
from skippyd.model.slicing import slice_model
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.stage_runtime import load_stage_runtime


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.config.stage import StageConfig
    from skippyd.config.topology import StageTopology
    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.settings import CaptureChoice
    from skippyd.runtime.stage_runtime import LlamaStageRuntime, LogitsSink

CPU_FOLDER = Path("/sys/devices/system/cpu")
CAPTURE_VARIABLE = "SKIPPY_CAPTURE"


def load_runtime(
    config: StageConfig,
    topology: StageTopology | None = None,
    *,
    progress: Callable[[float], None] | None = None,
    logits_sink: LogitsSink | None = None,
) -> LlamaStageRuntime:
    """Open the model, cut out this stage's layers and load them; blocks.

    Raises:
        ConfigError: The configuration contradicts the model.
        ModelError: The file is broken, or llama.cpp refused it.
        RefusedError: The architecture or the cut is not offered.
    """
    path = config.require_model_path()
    model = open_model(path)
    _check_against_model(config, model)
    model_slice = slice_model(model, config.layer_start, config.layer_end)
    return load_stage_runtime(
        model_slice,
        engine_settings(config, topology),
        progress=progress,
        logits_sink=logits_sink,
    )


def engine_settings(
    config: StageConfig, topology: StageTopology | None = None
) -> EngineSettings:
    """What the configuration means for the engine, with its nulls filled in."""
    n_ubatch = config.n_ubatch or config.prefill_chunk_size
    return EngineSettings(
        ctx_size=config.ctx_size,
        n_batch=config.n_batch or max(n_ubatch, config.prefill_chunk_size),
        n_ubatch=n_ubatch,
        lane_count=config.lane_count,
        n_threads=config.n_threads or default_threads(config, topology),
        flash_attn_type=config.flash_attn_type.value,
        cache_type_k=config.cache_type_k.value,
        cache_type_v=config.cache_type_v.value,
        kv_unified=config.kv_unified,
        swa_full=config.swa_full,
        repack=config.repack is not False,
        check_tensors=config.check_tensors is True,
        capture=capture_choice(),
    )


def capture_choice() -> CaptureChoice:
    """Which capture the environment asks for.

    Raises:
        ConfigError: It asks for something else.
    """
    choice = os.environ.get(CAPTURE_VARIABLE, "auto")
    match choice:
        case "auto" | "native" | "python":
            return choice
        case _:
            raise ConfigError(
                f"{CAPTURE_VARIABLE}={choice!r}: write auto, native or python"
            )


def default_threads(config: StageConfig, topology: StageTopology | None) -> int:
    """Physical cores divided by the stages of this host, at least 1."""
    stages_here = 1
    if topology is not None:
        own = topology.stage(config.stage_id)
        host = own.endpoint.host if own is not None else config.bind_addr.host
        stages_here = sum(stage.endpoint.host == host for stage in topology.stages)
    return max(1, physical_cores() // max(1, stages_here))


def physical_cores() -> int:
    """Cores this process may use, hyper-threads of one core counted once."""
    usable = os.sched_getaffinity(0)
    cores = {_core_of(cpu) for cpu in usable}
    return max(1, len(cores))


def _core_of(cpu: int) -> str:
    siblings = CPU_FOLDER / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        return siblings.read_text()
    except OSError:
        return str(cpu)


def _check_against_model(config: StageConfig, model: GgufModel) -> None:
    facts = model_facts(model)
    is_last_range = config.layer_end == facts.layer_count
    if config.layer_end <= facts.layer_count and is_last_range is not (
        config.downstream is None
    ):
        raise ConfigError(
            f"{config.stage_id}: layers {config.layer_start}..{config.layer_end} of "
            f"{facts.layer_count} with "
            + (
                "a downstream stage; the stage with the last layer has none"
                if is_last_range
                else "no downstream stage; name the stage that holds the next layers"
            )
        )
    if config.activation_width not in {None, facts.width}:
        raise ConfigError(
            f"{config.stage_id}: activation_width is {config.activation_width}, the "
            f"model's is {facts.width}; leave it out"
        )
    if config.source_model_sha256 is not None:
        found = model_sha256(model)
        if found != config.source_model_sha256:
            raise ConfigError(
                f"{config.stage_id}: {config.model_path} has SHA-256 {found}, "
                f"source_model_sha256 is {config.source_model_sha256}; it is another "
                "file than the one planned"
            )
