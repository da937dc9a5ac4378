"""One stage of this node from its load to its end, as operators and peers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.admission import descriptor_text
from skippyd.coordination.ports import StageReport
from skippyd.core.coordinator.messages import StageState, StageStatus
from skippyd.stage.activity import StageActivity
from skippyd.units import MIB, format_bytes


if TYPE_CHECKING:
    from collections.abc import Mapping

    from skippyd.coordination.ports import StageRunSettings
    from skippyd.coordination.stage_parts import StagePart
    from skippyd.coordination.stage_processes import StageChild
    from skippyd.core.coordinator.messages import LoadStage, Origin

START_BYTES_PER_SECOND = 128 * MIB
START_SECONDS_MIN = 900.0
START_SECONDS_MAX = 4 * 3600.0


@attrs.define(eq=False, kw_only=True)
class StageRun:
    """A load and the process that it became.

    Args:
        load: What was asked for.
        settings: What its process needs besides.
        origin: Who asked.
        host: The address it listens on.
        since_unix_ms: When its state began.
        restarts: How often it was started again in its run.
        port: Its port, 0 until it is bound; kept for a restart.
        openai_port: Stage 0's OpenAI port, likewise.
        is_ending: Whether its end was asked for.
        was_ready: Whether it ever served.
        counters: What its process counts, from the last time it was asked.
        activity: What its lanes and sessions were at then.
        asked_ms: When it was asked first since it last answered, on the boot clock.
        heard_ms: When it last answered, on the boot clock.
        settled: Set when its process serves or is gone.
        is_overdue: Whether it was ended because it took too long to start.
    """

    load: LoadStage
    settings: StageRunSettings
    origin: Origin
    host: str
    since_unix_ms: int
    state: StageState = StageState.STARTING
    reason: str = ""
    restarts: int = 0
    port: int = 0
    openai_port: int = 0
    part: StagePart | None = None
    child: StageChild | None = None
    share: float = 0.0
    resident_bytes: int = 0
    openai_base_url: str | None = None
    health: str | None = None
    counters: Mapping[str, int] = attrs.Factory(dict)
    activity: StageActivity = attrs.Factory(StageActivity)
    asked_ms: int | None = None
    heard_ms: int = 0
    settled: trio.Event = attrs.Factory(trio.Event)
    is_overdue: bool = False
    is_ending: bool = False
    is_fenced: bool = False
    was_ready: bool = False

    @property
    def total_bytes(self) -> int:
        """Tensor bytes that it will hold."""
        return 0 if self.part is None else self.part.tensor_bytes

    @property
    def loaded_bytes(self) -> int:
        """Tensor bytes loaded so far."""
        return int(self.share * self.total_bytes)

    @property
    def start_limit_s(self) -> float:
        """How long its process may take to serve (skippy-facts 2.5)."""
        source_bytes = 0 if self.part is None else self.part.source_bytes
        by_size_s = source_bytes / START_BYTES_PER_SECOND
        return min(max(by_size_s, START_SECONDS_MIN), START_SECONDS_MAX)

    @property
    def progress(self) -> str:
        """How far the loading is, in layers and bytes."""
        if self.child is None:
            return "opening its model"
        layers = self.load.layer_end - self.load.layer_start
        return (
            f"loading layers: {int(self.share * layers)} of {layers}, "
            f"{format_bytes(self.loaded_bytes)} of {format_bytes(self.total_bytes)}"
        )

    def move(self, state: StageState, reason: str, now_unix_ms: int) -> bool:
        """Enter a state; say whether that is news."""
        if self.state is state and self.reason == reason:
            return False
        if self.state is not state:
            self.since_unix_ms = now_unix_ms
        self.state, self.reason = state, reason
        return True

    def status(self) -> StageStatus:
        """What the rules and a coordinator compare; the admission is our own."""
        load = self.load
        admission = "" if self.part is None else descriptor_text(self.part.descriptor)
        return StageStatus(
            key=load.key,
            stage=load.stage,
            state=self.state,
            coordinator_term=load.coordinator_term,
            coordinator_id=load.coordinator_id,
            shutdown_generation=load.shutdown_generation,
            stage_index=load.stage_index,
            layer_start=load.layer_start,
            layer_end=load.layer_end,
            backend=load.backend,
            source_model_sha256=self.settings.model_sha256,
            source_model_bytes=None if self.part is None else self.part.source_bytes,
            source_model_path=None,
            bind_addr=self._bind_addr,
            admission=admission,
        )

    def report(self) -> StageReport:
        """What others and operators see."""
        is_starting = self.state is StageState.STARTING
        return StageReport(
            status=self.status(),
            since_unix_ms=self.since_unix_ms,
            reason=self.progress if is_starting and not self.reason else self.reason,
            pid=None if self.child is None else self.child.pid,
            resident_bytes=self.resident_bytes if self.child is not None else 0,
            loaded_bytes=self.loaded_bytes,
            total_bytes=self.total_bytes,
            openai_base_url=self.openai_base_url,
            health=self.health,
            restarts=self.restarts,
        )

    @property
    def _bind_addr(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
