"""A chain of stage processes on loopback, with everything a comparison has to fix.

All listening sockets are made here and handed down, so every port is known before the
first stage starts, nobody else can take one, and the stages load side by side.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

from skippyd.config.endpoints import Endpoint
from skippyd.config.stage import LoadMode, PeerConfig, StageConfig, stage_document
from skippyd.config.topology import StageTopology, TopologyStage, topology_document
from skippyd.core.wire.auth import lane_purpose
from skippyd.core.wire.limits import RUN_KEY_BYTES
from skippyd.errors import RefusedError, UsageError
from skippyd.ids import ModelId, RunId, StageId, TopologyId
from skippyd.net.tcp import Address
from skippyd.proving.stage_process import (
    READY_SECONDS,
    STAGE_COMMAND,
    StageProcess,
    StageProcessError,
    wait_all_ready,
)
from skippyd.stage.dialling import open_connection
from skippyd.stage.driver import ChainDriver, LinkTransport
from skippyd.stage.links import ReplyLink
from skippyd.stage.loading import engine_settings
from skippyd.stage.node import StageTimings


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skippyd.runtime.settings import EngineSettings

LOOPBACK = "127.0.0.1"
DRIVER_INDEX = -1
BACKLOG = 64

ShareOfStage = tuple[int, float]


@attrs.frozen(kw_only=True)
class ChainPlan:
    """What chain to run.

    Args:
        model_path: The whole model.
        model_id: The name it is served under.
        bounds: Layer bounds, such as (0, 10, 20, 30) for three stages.
        threads_per_stage: Compute threads of each stage.
        ctx_size: KV cells.
        chunk: Prefill chunk in tokens.
        lane_count: Requests at once.
        openai_bind_addr: Where stage 0 serves OpenAI; None when it does not.
        lane_poll_us: How long lanes spin before they sleep.
        stage_arguments: Further arguments of every stage.
    """

    model_path: Path
    model_id: str
    bounds: tuple[int, ...]
    threads_per_stage: int = 1
    ctx_size: int = 2048
    chunk: int = 64
    lane_count: int = 4
    openai_bind_addr: str | None = None
    lane_poll_us: int = 0
    stage_arguments: tuple[str, ...] = ()

    @property
    def stage_count(self) -> int:
        """Stages of the chain."""
        return len(self.bounds) - 1

    def configs(self, ports: Sequence[int], run_key: bytes) -> list[StageConfig]:
        """The stages' configurations."""
        return [self._config(index, ports, run_key) for index in range(len(ports))]

    def settings(self) -> EngineSettings:
        """What every stage's engine is told, and the reference has to be."""
        ports = [1] * self.stage_count
        return engine_settings(self.configs(ports, bytes(RUN_KEY_BYTES))[0])

    def topology(self, ports: Sequence[int]) -> StageTopology:
        """The whole chain."""
        return StageTopology(
            topology_id=TopologyId("topology-local"),
            model_id=ModelId(self.model_id),
            stages=tuple(
                TopologyStage(
                    stage_id=_stage_id(index),
                    stage_index=index,
                    endpoint=Endpoint(LOOPBACK, port),
                    layer_start=self.bounds[index],
                    layer_end=self.bounds[index + 1],
                    load_mode=LoadMode.RUNTIME_SLICE,
                )
                for index, port in enumerate(ports)
            ),
        )

    def _config(self, index: int, ports: Sequence[int], run_key: bytes) -> StageConfig:
        return StageConfig(
            run_id=RunId("run-local"),
            topology_id=TopologyId("topology-local"),
            model_id=ModelId(self.model_id),
            stage_id=_stage_id(index),
            stage_index=index,
            layer_start=self.bounds[index],
            layer_end=self.bounds[index + 1],
            load_mode=LoadMode.RUNTIME_SLICE,
            bind_addr=Endpoint(LOOPBACK, ports[index]),
            model_path=str(self.model_path.absolute()),
            ctx_size=self.ctx_size,
            lane_count=self.lane_count,
            lane_poll_us=self.lane_poll_us,
            n_threads=self.threads_per_stage,
            prefill_chunk_size=self.chunk,
            upstream=_peer(index - 1, ports),
            downstream=_peer(index + 1, ports),
            transport_auth=run_key,
        )


@attrs.define(eq=False, kw_only=True)
class LocalChain:
    """Running stage processes, in the order of the chain.

    Args:
        plan: What they run.
        stages: The processes.
        addresses: Where they listen.
        run_key: The secret of this run.
    """

    plan: ChainPlan
    stages: list[StageProcess]
    addresses: list[Address]
    run_key: bytes
    openai_base_url: str | None = None
    _folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def start(
        cls,
        plan: ChainPlan,
        *,
        command: Sequence[str] = STAGE_COMMAND,
        logits_fd: int | None = None,
        on_progress: Callable[[int, float], None] = lambda _index, _share: None,
    ) -> Self:
        """Start all stages and wait until each is ready; none is left on failure.

        Args:
            plan: What to run.
            command: The stage program; tests put another one here.
            logits_fd: Pipe for the final stage's logits.
            on_progress: Called with (stage index, share loaded).

        Raises:
            StageProcessError: A stage did not start; its own words are in it.
        """
        chain = cls.launch(
            plan, command=command, logits_fd=logits_fd, on_progress=on_progress
        )
        try:
            chain.wait_ready()
        except BaseException:
            chain.stop()
            raise
        return chain

    @classmethod
    def launch(
        cls,
        plan: ChainPlan,
        *,
        command: Sequence[str] = STAGE_COMMAND,
        logits_fd: int | None = None,
        on_progress: Callable[[int, float], None] = lambda _index, _share: None,
    ) -> Self:
        """Start all stages and let them load; `wait_ready` has to follow.

        Call it on the main thread: stages end when the thread that started them does.
        """
        folder = tempfile.TemporaryDirectory(prefix="skippyd-")
        run_key = secrets.token_bytes(RUN_KEY_BYTES)
        with contextlib.ExitStack() as undo:
            undo.callback(folder.cleanup)
            listeners = [undo.enter_context(_listen()) for _ in plan.bounds[1:]]
            ports = [listener.getsockname()[1] for listener in listeners]
            _write_documents(Path(folder.name), plan, ports, run_key)
            chain = cls(
                plan=plan,
                stages=[],
                addresses=[Address(LOOPBACK, port) for port in ports],
                run_key=run_key,
                folder=folder,
            )
            undo.callback(chain.stop)
            for index, listener in enumerate(listeners):
                is_final = index == plan.stage_count - 1
                chain._spawn(
                    index,
                    listener,
                    command,
                    logits_fd if is_final else None,
                    on_progress,
                )
            # From here on only a stage holds its port: a dead one refuses callers.
            for listener in listeners:
                listener.close()
            undo.pop_all()
        return chain

    def wait_ready(self, timeout_s: float = READY_SECONDS) -> None:
        """Wait until every stage is ready.

        Raises:
            StageProcessError: A stage did not start; its own words are in it.
        """
        events = wait_all_ready(self.stages, timeout_s)
        url = events[0].get("openai_base_url")
        self.openai_base_url = url if isinstance(url, str) else None
        # They have read their documents, and in there is the key of this run.
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def driver(self, *, reply_timeout_s: float = 60.0) -> ChainDriver:
        """A driver on a connection of its own to stage 0.

        The caller closes it with `close_driver`.
        """
        connection = open_connection(
            self.addresses[0],
            purpose=lane_purpose(DRIVER_INDEX, 0),
            run_key=self.run_key,
            source_host=None,
            timings=StageTimings(),
            io_timeout_s=reply_timeout_s,
        )
        link = ReplyLink(connection, 0, peer_name="stage-0")
        return ChainDriver(
            transport=LinkTransport(link, reply_timeout_s),
            request_id=secrets.randbits(63) or 1,
            session_id=secrets.randbits(63) or 1,
            chunk=self.plan.chunk,
        )

    def stop(self) -> None:
        """End every stage, stage 0 first, and reap it; harmless when repeated."""
        for stage in self.stages:
            with contextlib.suppress(OSError):
                stage.lifecycle.sendall(b"stop\n")
        for stage in self.stages:
            stage.stop()
        self.stages.clear()
        self._folder.cleanup()

    def death(self) -> StageProcessError | None:
        """How a stage ended, the first in the chain that did; None while all live."""
        return next((end for s in self.stages if (end := s.death())), None)

    def _spawn(
        self,
        index: int,
        listener: socket.socket,
        command: Sequence[str],
        logits_fd: int | None,
        on_progress: Callable[[int, float], None],
    ) -> None:
        folder = Path(self._folder.name)
        arguments = [
            *("--config", str(folder / f"{_stage_id(index)}.json")),
            *("--topology", str(folder / "topology.json")),
            *("--listen-fd", str(listener.fileno())),
            *self.plan.stage_arguments,
        ]
        if index == 0 and self.plan.openai_bind_addr is not None:
            arguments += ["--openai-bind-addr", self.plan.openai_bind_addr]
        pass_fds = [listener.fileno()]
        if logits_fd is not None:
            arguments += ["--logits-fd", str(logits_fd)]
            pass_fds.append(logits_fd)
        self.stages.append(
            StageProcess.start(
                _stage_id(index),
                arguments,
                command=command,
                pass_fds=pass_fds,
                on_progress=lambda share: on_progress(index, share),
            )
        )


def close_driver(driver: ChainDriver) -> None:
    """End a driver's connection; the chain releases its session."""
    transport = driver.transport
    if isinstance(transport, LinkTransport):
        transport.link.close()


def bounds_of_cuts(cuts: Sequence[int], layer_count: int) -> tuple[int, ...]:
    """Layer bounds of a chain cut at these layers.

    Raises:
        RefusedError: A cut is out of range.
        UsageError: The cuts do not ascend.
    """
    for cut in cuts:
        if not 0 < cut < layer_count:
            raise RefusedError(
                f"cut {cut} is not offered: a model of {layer_count} layers can be "
                f"cut at 1 to {layer_count - 1}"
            )
    for before, cut in itertools.pairwise(cuts):
        if cut <= before:
            raise UsageError(f"cut {cut} comes after {before}: write cuts in order")
    return (0, *cuts, layer_count)


def even_bounds(stages: int, layer_count: int) -> tuple[int, ...]:
    """Layer bounds of `stages` ranges as equal as can be.

    Raises:
        RefusedError: There are more stages than layers.
        UsageError: There are none.
    """
    if stages < 1:
        raise UsageError(f"{stages} stages: 1 is the least")
    if stages > layer_count:
        raise RefusedError(
            f"{stages} stages are not offered: a model of {layer_count} layers makes "
            f"1 to {layer_count}"
        )
    return tuple(layer_count * index // stages for index in range(stages + 1))


def _stage_id(index: int) -> StageId:
    return StageId(f"stage-{index}")


def _peer(index: int, ports: Sequence[int]) -> PeerConfig | None:
    if not 0 <= index < len(ports):
        return None
    return PeerConfig(
        stage_id=_stage_id(index),
        stage_index=index,
        endpoint=Endpoint(LOOPBACK, ports[index]),
    )


def _listen() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((LOOPBACK, 0))
    listener.listen(BACKLOG)
    return listener


def _write_documents(
    folder: Path, plan: ChainPlan, ports: Sequence[int], run_key: bytes
) -> None:
    documents = {
        f"{config.stage_id}.json": stage_document(config)
        for config in plan.configs(ports, run_key)
    }
    documents["topology.json"] = topology_document(plan.topology(ports))
    for name, document in documents.items():
        path = folder / name
        # The run key is a secret: nobody else may read it.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file)
