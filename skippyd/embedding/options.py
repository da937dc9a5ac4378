"""What a host chooses, as frozen values; the command line builds the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.config.endpoints import Endpoint
from skippyd.stage.node import FlowControl, StageTimings


if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from skippyd.config.stage import StageConfig
    from skippyd.config.topology import StageTopology
    from skippyd.embedding.runtime import SkippyRuntimeHandle
    from skippyd.runtime.stage_runtime import LogitsSink

DEFAULT_OPENAI_ENDPOINT = Endpoint("127.0.0.1", 9337)


@attrs.frozen(kw_only=True)
class EmbeddedOpenAiArgs:
    """How stage 0 serves OpenAI clients.

    Args:
        bind_addr: Where to listen; port 0 takes a free one.
        model_id: The name clients ask for; None is the config's.
        generation_concurrency: Requests at once; None is the config's lane_count.
        config: The stage, for `start_embedded_openai` alone.
        topology: The chain it belongs to, likewise; compared when given.
        runtime: A loaded runtime to use instead of loading one.
    """

    bind_addr: Endpoint = DEFAULT_OPENAI_ENDPOINT
    model_id: str | None = None
    generation_concurrency: int | None = None
    config: StageConfig | None = None
    topology: StageTopology | None = None
    runtime: SkippyRuntimeHandle | None = None


@attrs.frozen
class BinaryStageOptions:
    """How one stage serves its place in a chain.

    Args:
        config: The stage.
        topology: The whole chain.
        timings: Deadlines.
        flow: Prefill flow control.
        openai: The OpenAI server of stage 0, when it shall have one.
        runtime: A loaded runtime to use instead of loading one; stays the host's.
        progress: Called from another thread with the share loaded.
        logits_sink: Gets (position, logits) of each predicted row (final stage).
        listener: A listening socket to use instead of binding the config's address.
    """

    config: StageConfig
    topology: StageTopology | None = attrs.field(default=None, kw_only=True)
    timings: StageTimings = attrs.field(factory=StageTimings, kw_only=True)
    flow: FlowControl = attrs.field(factory=FlowControl, kw_only=True)
    openai: EmbeddedOpenAiArgs | None = attrs.field(default=None, kw_only=True)
    runtime: SkippyRuntimeHandle | None = attrs.field(default=None, kw_only=True)
    progress: Callable[[float], None] | None = attrs.field(default=None, kw_only=True)
    logits_sink: LogitsSink | None = attrs.field(default=None, kw_only=True)
    listener: socket.socket | None = attrs.field(default=None, kw_only=True)


@attrs.frozen(kw_only=True)
class StageHttpOptions:
    """The diagnostic HTTP server of one stage.

    Args:
        config: The stage.
        topology: The whole chain.
        bind_addr: Where to listen; None is the config's bind_addr.
        runtime: A loaded runtime to use instead of loading one.
    """

    config: StageConfig
    topology: StageTopology | None = None
    bind_addr: Endpoint | None = None
    runtime: SkippyRuntimeHandle | None = None
