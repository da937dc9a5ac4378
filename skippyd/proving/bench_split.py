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


@attrs.define(eq=False)
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
    _driver: ChainDriver | None = None
    _seconds: list[float] = attrs.Factory(list)

    def begin(self, prompt: Sequence[int]) -> None:
        """Begin a request and compute these tokens."""
        self._driver = ChainDriver(
            transport=self.transport,
            request_id=secrets.randbits(63) or 1,
            session_id=secrets.randbits(63) or 1,
            chunk=self.chain.plan.chunk,
        )
        self._seconds.clear()
        self._driver.prefill(prompt)
        self._driver.configure(None)

    def decode(self, token: int) -> int:
        """Compute one token and have the next one drawn greedily."""
        assert self._driver is not None, "decode comes after begin"
        begun = time.perf_counter()
        drawn = self._driver.decode(token)
        self._seconds.append(time.perf_counter() - begun)
        return drawn

    def end(self) -> list[float]:
        """End the request.

        Returns:
            Of each of its tokens, the microseconds in which no stage computed.
        """
        assert self._driver is not None, "end comes after begin"
        self._driver.stop()
        count = len(self._seconds)
        computed_ns = np.array(self.runtime.statistics().decode_ns[-count:])
        for stage in self.chain.stages[1:]:
            times = stage.status()["decode_ns"]
            assert isinstance(times, list)
            computed_ns = computed_ns + np.array(times[-count:])
        gaps_us = np.array(self._seconds) * 1e6 - computed_ns / 1e3
        return [float(gap) for gap in gaps_us]


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
