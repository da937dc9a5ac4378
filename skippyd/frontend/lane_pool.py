"""The persistent lanes of stage 0 and the health of the chain behind them.

A keeper connects all lanes before anything is served, sends a canary token through the
whole chain, and then watches the idle lanes: a stage that dies is noticed while nobody
asks, and the light turns red at once. It goes green again only by another canary.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.errors import FailureCode, StageFailureError
from skippyd.frontend.backend import ChainHealth, NoFreeLaneError
from skippyd.stage.driver import ChainDriver, LaneTransport
from skippyd.stage.lane import StageLane
from skippyd.stage.waiting import wait_readable


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.stage.node import StageNode

logger = logging.getLogger("skippyd.chain")

WATCH_SECONDS = 0.1
RETRY_SECONDS = 0.5
CONNECT_PATIENCE_SECONDS = 0.0  # the keeper itself tries again
CLOSE_SECONDS = 15.0  # a lane in a long batch ends with it
CANARY_TOKEN = 0
LOADING = ChainHealth("loading", None, "no token has gone through the chain yet")
OK = ChainHealth("ok", None, "")

LANE_ONLY_CODES = frozenset(
    {
        FailureCode.KV_FULL,
        FailureCode.BAD_BATCH,
        FailureCode.CANCELLED,
        FailureCode.SAMPLING,
    }
)
"""Failures of one request; they say nothing about the chain."""


def wire_id() -> int:
    """A fresh id for a request or session: random, 64 bits, never 0."""
    return secrets.randbits(64) or 1


@attrs.define(eq=False)
class PooledLane:
    """A lane and the transport that drives it."""

    transport: LaneTransport

    @property
    def lane(self) -> StageLane:
        """The lane."""
        return self.transport.lane

    def driver(self) -> ChainDriver:
        """A driver for a new session on this lane."""
        return ChainDriver(
            transport=self.transport,
            request_id=wire_id(),
            session_id=wire_id(),
            chunk=self.lane.node.config.prefill_chunk_size,
        )


@attrs.define(eq=False)
class LanePool:
    """Lanes from stage 0 into the chain.

    Every lane is closed once, by the keeper: what a request took comes back through
    `give_back` or `retire`, and the keeper does not end before all have come back.

    Args:
        node: Stage 0.
        size: Lanes, each serving one request at a time.
    """

    node: StageNode
    size: int
    health: ChainHealth = LOADING
    _idle: list[PooledLane] = attrs.Factory(list)
    _leased: set[PooledLane] = attrs.Factory(set)
    _retired: list[PooledLane] = attrs.Factory(list)
    _wake: trio.Event = attrs.Factory(trio.Event)
    _came_back: trio.Event = attrs.Factory(trio.Event)
    _is_closing: bool = False

    def lease(self) -> PooledLane:
        """Take the lane used last.

        Raises:
            NoFreeLaneError: All are busy.
        """
        if not self._idle or self._is_closing:
            every = (
                "its one lane is" if self.size == 1 else f"all {self.size} lanes are"
            )
            raise NoFreeLaneError(
                f"{every} busy; try again in a second, or raise lane_count"
            )
        pooled = self._idle.pop()
        pooled.lane.signal.renew()
        self._leased.add(pooled)
        return pooled

    def give_back(self, pooled: PooledLane) -> None:
        """Return a lane whose request ended in good order."""
        self._leased.discard(pooled)
        self._idle.append(pooled)
        self._came_back.set()

    def retire(self, pooled: PooledLane, failure: StageFailureError) -> None:
        """Drop a lane that failed; the keeper closes and replaces it."""
        self._leased.discard(pooled)
        self._retired.append(pooled)
        if failure.code not in LANE_ONLY_CODES:
            self._degrade(failure)
        self._wake.set()
        self._came_back.set()

    @property
    def leased_count(self) -> int:
        """Lanes that serve a request now."""
        return len(self._leased)

    @property
    def idle_count(self) -> int:
        """Lanes that wait for a request."""
        return len(self._idle)

    async def keep(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Bring the chain up, watch it, bring it up again; until cancelled."""
        task_status.started()
        try:
            while True:
                if await self._bring_up():
                    await self._watch()
                else:
                    await trio.sleep(RETRY_SECONDS)
        finally:
            with trio.CancelScope(shield=True):
                await self._close_all()

    async def _bring_up(self) -> bool:
        """Fill the pool and send a canary; False when something is missing."""
        await self._close_retired()
        try:
            while len(self._idle) + len(self._leased) < self.size:
                self._idle.append(await self._connect())
            if self.health is not OK:
                if not self._idle:
                    return False  # requests of before still hold every lane
                await self._send_canary()
        except StageFailureError as failure:
            self._degrade(failure)
            self._retired.extend(self._idle)
            self._idle.clear()
            return False
        if self.health is not OK:
            logger.info("a canary token went through the whole chain: serving")
        self.health = OK
        return True

    async def _connect(self) -> PooledLane:
        transport = LaneTransport(lambda reply: StageLane(node=self.node, reply=reply))
        pooled = PooledLane(transport)
        try:
            await in_lane_thread(pooled, _open)
        except BaseException:
            self._retired.append(pooled)
            raise
        return pooled

    async def _send_canary(self) -> None:
        pooled = self.lease()
        try:
            await in_lane_thread(pooled, _canary)
        except StageFailureError as failure:
            self.retire(pooled, failure)
            raise
        except BaseException:
            self._leased.discard(pooled)
            self._retired.append(pooled)
            raise
        self.give_back(pooled)

    async def _watch(self) -> None:
        """Return when a lane has to be replaced or the chain brought up again."""
        while True:
            with trio.move_on_after(WATCH_SECONDS):
                await self._wake.wait()
            if self._wake.is_set():
                self._wake = trio.Event()
                return
            for pooled in list(self._idle):
                failure = _news(pooled)
                if failure is not None:
                    self._idle.remove(pooled)
                    self.retire(pooled, failure)

    def _degrade(self, failure: StageFailureError) -> None:
        if self.health.status == "ok" or self.health.reason != failure.message:
            logger.warning("chain is not serving: %s", failure.message)
        loading = self.health.status == "loading"
        self.health = ChainHealth(
            "loading" if loading else "degraded", failure.stage_index, failure.message
        )

    async def _close_retired(self) -> None:
        # Closing releases sessions, which may wait for a running batch.
        while self._retired:
            await trio.to_thread.run_sync(self._retired.pop().lane.close)

    async def _close_all(self) -> None:
        self._is_closing = True
        for pooled in self._leased:
            pooled.lane.interrupt()
        with trio.move_on_after(CLOSE_SECONDS):
            while self._leased:
                self._came_back = trio.Event()
                await self._came_back.wait()
        if self._leased:
            logger.error(
                "%d lanes did not end within %g s; their sessions end with the process",
                len(self._leased),
                CLOSE_SECONDS,
            )
        self._retired.extend(self._idle)
        self._idle.clear()
        await self._close_retired()


async def in_lane_thread(pooled: PooledLane, run: Callable[[PooledLane], None]) -> None:
    """Run a lane's work in a thread; a cancellation interrupts the lane and waits.

    Raises:
        Exception: What `run` raised, as it is.
    """
    failure: Exception | None = None
    is_done = False

    async def interrupt_on_cancel() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if not is_done:
                pooled.lane.interrupt()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt_on_cancel)
        try:
            await trio.to_thread.run_sync(
                run, pooled, limiter=trio.CapacityLimiter(1), abandon_on_cancel=False
            )
        except Exception as error:  # noqa: BLE001 - carried out by hand, ungrouped
            failure = error
        is_done = True
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _open(pooled: PooledLane) -> None:
    pooled.lane.open(patience_s=CONNECT_PATIENCE_SECONDS)


def _canary(pooled: PooledLane) -> None:
    driver = pooled.driver()
    driver.configure(None)
    driver.decode(CANARY_TOKEN)
    driver.stop()


def _news(pooled: PooledLane) -> StageFailureError | None:
    """What an idle lane's links say: nothing, or that a stage failed."""
    links = pooled.lane.watched()
    try:
        if links and wait_readable(links, 0):
            pooled.lane.on_readable()
    except StageFailureError as failure:
        return failure
    return None
