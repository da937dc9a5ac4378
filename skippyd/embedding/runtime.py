"""A loaded stage runtime as a host owns it."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Self

import attrs
import trio

from skippyd.config.topology import check_stage_in_topology
from skippyd.stage.loading import load_runtime


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.config.stage import StageConfig
    from skippyd.config.topology import StageTopology
    from skippyd.runtime.interface import RuntimeStatistics
    from skippyd.runtime.stage_runtime import LlamaStageRuntime, LogitsSink


@attrs.frozen(kw_only=True)
class EmbeddedRuntimeStatus:
    """A snapshot of a loaded runtime.

    Args:
        stage_id: The stage.
        layer_start: Its first layer.
        layer_end: One past its last layer.
        resident_tensors: Names of the tensors it holds, as the whole model names
            them, sorted.
        statistics: Its counters.
        captured_at_unix_ms: When this snapshot was taken.
    """

    stage_id: str
    layer_start: int
    layer_end: int
    resident_tensors: tuple[str, ...]
    statistics: RuntimeStatistics
    captured_at_unix_ms: int


class SkippyRuntimeHandle:
    """A loaded stage runtime that the host owns.

    Args:
        config: What was loaded.
        topology: The chain, when known.
        runtime: The runtime; owned from here on.
    """

    def __init__(
        self,
        config: StageConfig,
        topology: StageTopology | None,
        runtime: LlamaStageRuntime,
    ) -> None:
        self.config = config
        self.topology = topology
        self.runtime = runtime
        self._is_shut_down = False

    @classmethod
    async def load(
        cls,
        config: StageConfig,
        topology: StageTopology | None = None,
        *,
        progress: Callable[[float], None] | None = None,
        logits_sink: LogitsSink | None = None,
    ) -> Self:
        """Load a stage's layers; the trio thread stays free meanwhile.

        Args:
            config: The stage.
            topology: The chain it belongs to; compared when given.
            progress: Called from another thread with the share loaded, 0.0 to 1.0.
            logits_sink: Gets (position, logits) of each predicted row.

        Raises:
            ConfigError: The configuration contradicts the topology or the model.
            ModelError: The model file is broken, or llama.cpp refused it.
            RefusedError: The architecture or the cut is not offered.
        """
        if topology is not None:
            check_stage_in_topology(config, topology)
        runtime = await trio.to_thread.run_sync(
            functools.partial(
                load_runtime,
                config,
                topology,
                progress=progress,
                logits_sink=logits_sink,
            )
        )
        return cls(config, topology, runtime)

    def status(self) -> EmbeddedRuntimeStatus:
        """What is loaded; never waits for a running batch."""
        tensors = self.runtime.model_slice.resident_tensors
        return EmbeddedRuntimeStatus(
            stage_id=self.config.stage_id,
            layer_start=self.config.layer_start,
            layer_end=self.config.layer_end,
            resident_tensors=tuple(sorted(tensor.name for tensor in tensors)),
            statistics=self.runtime.statistics(),
            captured_at_unix_ms=time.time_ns() // 1_000_000,
        )

    def session_statistics(self) -> RuntimeStatistics:
        """Sessions, steps and times; never waits for a running batch."""
        return self.runtime.statistics()

    async def shutdown(self) -> None:
        """End the running batch and free the model; harmless when repeated."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self.runtime.close)
