"""Two stages as a host serves them: stage 0 in this process, stage 1 in its own.

The process that serves OpenAI drives the chain in its lanes' own threads; so does this.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING

import attrs
import numpy as np

from skippyd.model.slicing import slice_model
from skippyd.runtime.stage_runtime import load_stage_runtime
from skippyd.stage.driver import ChainDriver, LaneTransport
from skippyd.stage.lane import StageLane
from skippyd.stage.node import StageNode


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skippyd.model.gguf_model import GgufModel
    from skippyd.proving.chain import LocalChain
    from skippyd.runtime.stage_runtime import LlamaStageRuntime

CONNECT_SECONDS = 10.0


@attrs.frozen(kw_only=True)
class SplitDecode:
    """What a pair decoded, and how long it took.

    Args:
        tokens: The tokens.
        seconds: Of each.
        gaps_us: Of each, the microseconds in which no stage computed.
    """

    tokens: list[int]
    seconds: list[float]
    gaps_us: list[float]


@attrs.frozen
class SplitPair:
    """Stage 0 here, and the chain whose later stages it uses.

    Args:
        chain: Running; its own stage 0 is not used.
        runtime: Stage 0's layers, in this process.
        transport: The lane into the chain.
    """

    chain: LocalChain
    runtime: LlamaStageRuntime
    transport: LaneTransport

    def decode(self, prompt: Sequence[int], count: int) -> SplitDecode:
        """Decode `count` tokens greedily after a prompt."""
        driver = ChainDriver(
            transport=self.transport,
            request_id=secrets.randbits(63) or 1,
            session_id=secrets.randbits(63) or 1,
            chunk=self.chain.plan.chunk,
        )
        driver.prefill(prompt[:-1])
        driver.configure(None)
        fed, seconds = list(prompt), []
        for _ in range(count):
            begun = time.perf_counter()
            fed.append(driver.decode(fed[-1]))
            seconds.append(time.perf_counter() - begun)
        driver.stop()
        computed_ns = np.array(self.runtime.statistics().decode_ns[-count:])
        for stage in self.chain.stages[1:]:
            times = stage.status()["decode_ns"]
            assert isinstance(times, list)
            computed_ns = computed_ns + np.array(times[-count:])
        gaps_us = np.array(seconds) * 1e6 - computed_ns / 1e3
        return SplitDecode(
            tokens=fed[len(prompt) :],
            seconds=seconds,
            gaps_us=[float(gap) for gap in gaps_us],
        )


@contextlib.contextmanager
def split_pair(chain: LocalChain, model: GgufModel) -> Iterator[SplitPair]:
    """Load stage 0 of a running chain into this process and join it to the rest."""
    plan = chain.plan
    ports = [address.port for address in chain.addresses]
    runtime = load_stage_runtime(
        slice_model(model, plan.bounds[0], plan.bounds[1]), plan.settings()
    )
    with contextlib.ExitStack() as stack:
        stack.callback(runtime.close)
        node = StageNode(
            config=plan.configs(ports, chain.run_key)[0],
            runtime=runtime,
            topology=plan.topology(ports),
        )
        transport = LaneTransport(lambda reply: StageLane(node=node, reply=reply))
        stack.callback(transport.lane.close)
        transport.lane.open(patience_s=CONNECT_SECONDS)
        yield SplitPair(chain, runtime, transport)
