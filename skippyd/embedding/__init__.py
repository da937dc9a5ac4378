"""The public Python API: what a host imports to run stages inside its own program.

Options are frozen values; the command line builds the same ones. `start_*` are meant
for `nursery.start`: they give a handle when ready and then serve until its `shutdown`
or until cancelled.

    async with trio.open_nursery() as nursery:
        handle = await nursery.start(start_binary_stage, BinaryStageOptions(config))
        ...
        await handle.shutdown()

Several stages may run in one program, but a crash in llama.cpp then ends all of them:
the daemon gives each stage a process of its own. Read `servers.py` first.
"""

from __future__ import annotations

from skippyd.config.endpoints import Endpoint as Endpoint
from skippyd.config.stage import StageConfig as StageConfig
from skippyd.config.topology import StageTopology as StageTopology
from skippyd.embedding.options import BinaryStageOptions as BinaryStageOptions
from skippyd.embedding.options import EmbeddedOpenAiArgs as EmbeddedOpenAiArgs
from skippyd.embedding.options import StageHttpOptions as StageHttpOptions
from skippyd.embedding.runtime import EmbeddedRuntimeStatus as EmbeddedRuntimeStatus
from skippyd.embedding.runtime import SkippyRuntimeHandle as SkippyRuntimeHandle
from skippyd.embedding.servers import EmbeddedServerHandle as EmbeddedServerHandle
from skippyd.embedding.servers import EmbeddedServerStatus as EmbeddedServerStatus
from skippyd.embedding.servers import start_binary_stage as start_binary_stage
from skippyd.embedding.servers import start_embedded_openai as start_embedded_openai
from skippyd.embedding.servers import start_stage_http as start_stage_http
from skippyd.runtime.interface import RuntimeStatistics as RuntimeStatistics
from skippyd.stage.node import FlowControl as FlowControl
from skippyd.stage.node import StageTimings as StageTimings


__all__ = [
    "BinaryStageOptions",
    "EmbeddedOpenAiArgs",
    "EmbeddedRuntimeStatus",
    "EmbeddedServerHandle",
    "EmbeddedServerStatus",
    "Endpoint",
    "FlowControl",
    "RuntimeStatistics",
    "SkippyRuntimeHandle",
    "StageConfig",
    "StageHttpOptions",
    "StageTimings",
    "StageTopology",
    "start_binary_stage",
    "start_embedded_openai",
    "start_stage_http",
]
