"""How the parts of a node meet: values that travel, and protocols of the parts.

The control server hands requests to a `StageSide`; a rollout speaks to other nodes, and
to its own, through `Nodes`; operators see both through the admin socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from skippyd.core.coordinator.messages import Origin, Reply, Request, StageStatus
from skippyd.errors import SkippyError
from skippyd.ids import NodeId, RunId


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import trio

GENERATION = 8
FEATURES = (
    "stage-control",
    "stage-generation-8",
    "status-list",
    "local-gguf-content-id-v1",
)
"""The bundle a peer must have whole (skippy-facts 2.1)."""

STATUS_EVERY_SECONDS = 2.0
MISSED_FOR_SILENCE = 5


class NodeUnreachableError(SkippyError):
    """A node cannot be asked now; the message names it and says why."""


@attrs.frozen(kw_only=True)
class StageEndpoint:
    """Where one stage of a run listens.

    Args:
        stage_id: The stage.
        stage_index: Its place.
        node_id: Its node.
        layer_start: Its first layer.
        layer_end: One past its last layer.
        host: Address other stages reach it at.
        port: Port; 0 while it is not known yet.
    """

    stage_id: str
    stage_index: int
    node_id: NodeId
    layer_start: int
    layer_end: int
    host: str
    port: int = 0


@attrs.frozen(kw_only=True)
class StageRunSettings:
    """What a load needs besides the rules' own fields; travels with load and prepare.

    Args:
        model_sha256: Content hash of the model (contract, "Identity of a model").
        model_id: The name it is served under.
        ctx_size: KV cells.
        lane_count: Requests at once.
        cache_type_k: KV cache type of keys.
        cache_type_v: KV cache type of values.
        flash_attn_type: auto, disabled or enabled.
        run_key: Hex of the run's 32-byte secret; empty in a prepare.
        stages: All stages in order; ports of those already loaded are set (loads go
            from last to first), so a stage knows its downstream, and stage 0 all.
        serves_openai: Whether this stage is stage 0 and serves OpenAI.
    """

    model_sha256: str
    model_id: str
    ctx_size: int
    lane_count: int
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn_type: str = "auto"
    run_key: str = attrs.field(default="", repr=False)
    stages: tuple[StageEndpoint, ...] = ()
    serves_openai: bool = False


@attrs.frozen(kw_only=True)
class StageReport:
    """One stage of a node as others and operators see it.

    Args:
        status: What the rules know about it.
        since_unix_ms: When its state began.
        reason: Why it is in this state; the cause of death with last log lines.
        pid: Its process, None when there is none.
        resident_bytes: Memory it holds.
        loaded_bytes: Tensor bytes loaded so far.
        total_bytes: Tensor bytes it will hold.
        openai_base_url: Where stage 0 serves OpenAI, when it does and is healthy.
        health: ok, loading or degraded, with the reason after a colon; stage 0 only.
        restarts: How often it was restarted in this run.
    """

    status: StageStatus
    since_unix_ms: int
    reason: str = ""
    pid: int | None = None
    resident_bytes: int = 0
    loaded_bytes: int = 0
    total_bytes: int = 0
    openai_base_url: str | None = None
    health: str | None = None
    restarts: int = 0


@attrs.frozen(kw_only=True)
class ModelEntry:
    """One model file a node has.

    Args:
        name: File name without its ending.
        path: Where it lies on that node.
        bytes: Size of all its parts.
        sha256: Content hash; None while it is being computed.
    """

    name: str
    path: str
    bytes: int
    sha256: str | None


@attrs.frozen(kw_only=True)
class NodeReport:
    """What a node says about itself: at once on change and every two seconds.

    Args:
        memory_bytes: Memory detected.
        max_memory_bytes: Configured cap, if any.
        headroom_bytes: Kept free.
        stage_host: Address its stages listen on.
        latency_port: Port on `stage_host` that echoes, for measuring the way between
            stages; 0 when there is none.
        features: Generation-8 bundle.
        sequence: Grows with each report.
        stopped_runs: Runs whose stage here the operator ended, the newest last.
    """

    node_id: NodeId
    name: str
    version: str
    generation: int
    features: tuple[str, ...]
    instance_id: str
    memory_bytes: int
    max_memory_bytes: int | None
    headroom_bytes: int
    stage_host: str
    models: tuple[ModelEntry, ...]
    stages: tuple[StageReport, ...]
    is_draining: bool = False
    safe_mode: bool = False
    sequence: int = 0
    latency_port: int = 0
    stopped_runs: tuple[RunId, ...] = ()


@attrs.frozen(kw_only=True)
class Route:
    """Where a published run is served; what a candidate needs to take it over.

    Args:
        model_id: The served model.
        run_id: The run.
        term: Its term.
        coordinator_id: Who published it.
        openai_base_url: Stage 0's address.
        candidates: Who takes over when the coordinator is lost, in order.
        model_sha256: Content hash of the model.
        node_ids: The nodes of its stages, in order.
        wanted_nodes: The nodes that the operator named, none for any.
        ctx_size: KV cells of each stage.
        lane_count: Requests at once.
        lease_until_unix_ms: When the lease of its claim ends.
        is_ended: The operator ended this model: nobody is to bring it back.
        reason: Why it ended.
    """

    model_id: str
    run_id: RunId
    term: int
    coordinator_id: NodeId
    openai_base_url: str
    candidates: tuple[NodeId, ...] = ()
    model_sha256: str = ""
    node_ids: tuple[NodeId, ...] = ()
    wanted_nodes: tuple[NodeId, ...] = ()
    ctx_size: int = 0
    lane_count: int = 0
    lease_until_unix_ms: int = 0
    is_ended: bool = False
    reason: str = ""


@attrs.frozen(kw_only=True)
class PeerInfo:
    """Another node as this one sees it.

    Args:
        is_available: Connected and heard within the silence bound.
        rtt_ms: Round trip of the control connection, None when unknown.
        interface: Network interface of the path really used.
        local_address: Own address of that path.
        report: Its last report.
        last_heard_unix_ms: When, None when never.
        reason: Why it is not available.
    """

    node_id: NodeId
    name: str
    address: str
    is_available: bool
    rtt_ms: float | None
    interface: str | None
    local_address: str | None
    report: NodeReport | None
    last_heard_unix_ms: int | None
    reason: str = ""


@attrs.frozen
class NodeChanged:
    """A node became available or not, or said something new."""

    node_id: NodeId
    is_available: bool


class StageSide(Protocol):
    """This node's stages and fences, whoever asks."""

    async def request(
        self,
        request: Request,
        *,
        origin: Origin,
        settings: StageRunSettings | None = None,
    ) -> Reply:
        """Do what a request asks; the fence is durable before the reply returns."""
        ...

    def report(self) -> NodeReport:
        """This node now; cheap, no I/O."""
        ...

    def changed(self) -> trio.Event:
        """An event that is set when the report changes; a new one each time."""
        ...


class Nodes(Protocol):
    """All nodes this one knows, itself included; the way a rollout speaks to them."""

    @property
    def own_id(self) -> NodeId:
        """This node."""
        ...

    def peers(self) -> tuple[PeerInfo, ...]:
        """Every other known node."""
        ...

    def reports(self) -> Mapping[NodeId, NodeReport]:
        """Reports of this node and of every available one."""
        ...

    async def request(
        self,
        node_id: NodeId,
        request: Request,
        settings: StageRunSettings | None = None,
        *,
        timeout_s: float,
    ) -> Reply:
        """Ask a node, or this one.

        Raises:
            NodeUnreachableError: It cannot be asked or did not answer in time.
        """
        ...

    async def measure_latency_ms(
        self, node_id: NodeId, targets: Sequence[NodeId]
    ) -> Mapping[NodeId, float]:
        """Let a node measure the way to others, between their stages' addresses."""
        ...

    async def announce_route(
        self, node_id: NodeId, route: Route | None, model_id: str
    ) -> None:
        """Tell a node where a model is served now, or that it is not."""
        ...

    def subscribe(self) -> trio.MemoryReceiveChannel[NodeChanged]:
        """Changes from now on; a slow reader misses none that still matters."""
        ...
