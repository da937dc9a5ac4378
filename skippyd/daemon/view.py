"""What operators see and change of a running node: implements `admin.NodeView`."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.admin import schema
from skippyd.admin.doctor import NodeFacts, local_checks
from skippyd.admin.doctor_peers import peer_checks
from skippyd.admin.telemetry_page import telemetry_page
from skippyd.coordination.joining import join_node
from skippyd.coordination.ports import NodeUnreachableError
from skippyd.core.coordinator.messages import Origin, StopStage
from skippyd.daemon.deployments import Deployments
from skippyd.daemon.lists_view import (
    claims_document,
    fence_document,
    lanes_document,
    leases_document,
    nodes_document,
    sessions_document,
)
from skippyd.daemon.local_loads import LocalLoads
from skippyd.daemon.safe_mode import now_unix_s
from skippyd.daemon.status_view import safe_mode_document, status_document
from skippyd.errors import RefusedError, SkippyError, UsageError
from skippyd.ids import CoordinatorId


if TYPE_CHECKING:
    from skippyd.admin import wishes
    from skippyd.coordination.stage_run import StageRun
    from skippyd.daemon.node import Node

logger = logging.getLogger("skippyd.daemon")

US_PER_MS = 1000
MOST_LOG_LINES = 2_000
RESTART_NOTE = "takes effect when skippyd is restarted"


@attrs.define(eq=False)
class DaemonView:
    """The node behind the admin socket; see `admin.node_view` for each method.

    Args:
        node: The node.
        nursery: Where what outlives a request runs.
    """

    node: Node
    nursery: trio.Nursery
    _deployments: Deployments = attrs.field(init=False)
    _handing_over: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self._deployments = Deployments(self.node, self.nursery)

    def summary(self) -> str:
        """One line for the service manager."""
        status = status_document(self.node)
        parts = [status.daemon.state, *status.daemon.reasons]
        if status.run is not None:
            parts.insert(1, f"{status.run.model_id} as {status.run.run_id}")
        if status.safe_mode.effective:
            parts.insert(0, "SAFE MODE")
        return ", ".join(parts)

    # What may be looked at.

    async def status(self) -> schema.Status:
        """Daemon, safe mode, run and chain."""
        return status_document(self.node)

    def changed(self) -> trio.Event:
        """An event that is set when the status changes; a new one each time."""
        return self.node.stages.changed()

    async def claims(self) -> schema.Claims:
        """Accepted claims."""
        return claims_document(self.node.stages.fence)

    async def leases(self) -> schema.Leases:
        """Their leases."""
        return leases_document(self.node.stages.fence)

    async def lanes(self) -> schema.Lanes:
        """Lanes of this node's stages."""
        return lanes_document(self.node)

    async def sessions(self) -> schema.Sessions:
        """Sessions of this node's stages."""
        return sessions_document(self.node)

    async def nodes(self) -> schema.Nodes:
        """This node first, then its peers."""
        return nodes_document(self.node)

    async def telemetry(self, wish: wishes.After) -> schema.Telemetry:
        """Figures of the last minute, and the spans asked for."""
        return telemetry_page(
            self.node.telemetry,
            wish,
            now_unix_ns=time.time_ns(),
            safe_mode=self.node.safe_mode.is_effective,
        )

    async def logs(self, wish: wishes.After) -> schema.Logs:
        """Lines of the daemon's log."""
        limit = max(0, min(wish.limit, MOST_LOG_LINES))
        lines, missed = self.node.log_ring.after(wish.after, limit)
        rows = tuple(schema.LogRow(**attrs.asdict(line)) for line in lines)
        # Who asks from the start asks for the newest, and misses nothing.
        return schema.Logs(missed=missed if wish.after else 0, items=rows)

    async def events(self, wish: wishes.WatchEvents) -> schema.Events:
        """Events after the asked one; waits until there is one."""
        return await self._deployments.events(wish)

    async def fence(self) -> schema.Fence:
        """The fence store."""
        return fence_document(self.node)

    async def safe_mode(self) -> schema.SafeModeReport:
        """Safe mode, requested and in force."""
        switch = self.node.safe_mode
        return schema.SafeModeReport(
            safe_mode=safe_mode_document(switch),
            origin=switch.origin,
            by_uid=None if switch.request is None else switch.request.by_uid,
        )

    async def doctor(self) -> schema.Doctor:
        """Look at everything that often goes wrong; asks other nodes."""
        config = self.node.config.stages
        try:
            await self.node.stages.check_store()
            is_fence_well = True
        except SkippyError:
            is_fence_well = False
        ports = (config.first_port, config.last_port) if config.last_port else None
        facts = NodeFacts(
            state_directory=self.node.state.path,
            identity_key=self.node.state.identity_key,
            stage_host=config.host,
            stage_ports=ports,
            allows_plaintext=config.allow_plaintext,
            is_fence_well=is_fence_well,
            model_count=len(self.node.inventory.entries()),
            model_problems=self.node.inventory.problems(),
        )
        local = await trio.to_thread.run_sync(local_checks, facts)
        others = peer_checks(nodes_document(self.node), await self._stage_paths_us())
        return schema.Doctor(items=(*local, *others))

    # What may be changed.

    async def deploy(self, wish: wishes.Deploy) -> schema.Deployment:
        """Begin a deployment; it goes on when the operator has gone."""
        return await self._deployments.deploy(wish)

    async def load_local(self, wish: wishes.LoadLocal) -> schema.Done:
        """Serve a whole model here, without a coordinator."""
        return await LocalLoads(self.node, self.nursery).load(wish)

    async def withdraw(self, wish: wishes.Withdraw) -> schema.Deployment:
        """Begin to withdraw a model; its events tell the rest."""
        return await self._deployments.withdraw(wish)

    async def drain(self, wish: wishes.Drain) -> schema.Done:
        """Take no new stages and give the running ones up, or take them again."""
        stages = self.node.stages
        self._handing_over.cancel()
        if wish.is_undone:
            stages.end_drain()
            await self.node.rollouts.resume()
            return schema.Done(message="this node takes stages again")
        stages.begin_drain()
        self._handing_over = trio.CancelScope()
        self.nursery.start_soon(self._hand_over, self._handing_over)
        local = [
            run.load.stage.stage_id
            for run in stages.stage_runs()
            if not run.load.coordinator_term
        ]
        kept = f"; `skippyctl stop` ends {', '.join(local)}" if local else ""
        return schema.Done(
            message="this node takes no new stages; its own deployments go to the next "
            "candidate, other coordinators move theirs away as soon as they can; "
            f"skippyctl status shows what is left, drain --undo takes stages again{kept}"
        )

    async def stop(self, wish: wishes.Stop) -> schema.Done:
        """End stages of this node."""
        runs = [
            run
            for run in self.node.stages.stage_runs()
            if wish.stage_id in {None, run.load.stage.stage_id}
        ]
        if not runs:
            what = "no stage" if wish.stage_id is None else f"no {wish.stage_id}"
            raise RefusedError(f"{what} runs on this node")
        for run in runs:
            if run.load.coordinator_id == CoordinatorId(self.node.identity.node_id):
                # Else it would be planned anew, and onto this very node.
                given_up = await self.node.rollouts.give_up(run.settings.model_id)
                if given_up:
                    self._deployments.stopped(run.settings.model_id)
            await self.node.stages.request(_stop_of(run), origin=Origin.ADMIN)
        names = ", ".join(run.load.stage.stage_id for run in runs)
        back = "; what was deployed comes back here when it is deployed again"
        has_deployed = any(run.load.coordinator_term for run in runs)
        return schema.Done(message=f"stopped: {names}{back if has_deployed else ''}")

    async def invite(self) -> schema.Invitation:
        """Make a token for one other machine."""
        invitation = self.node.joining.invite()
        return schema.Invitation(
            token=invitation.token(),
            node_id=invitation.node_id,
            address=invitation.address,
            expires_unix_ms=invitation.expires_unix_ms,
        )

    async def join(self, wish: wishes.Join) -> schema.Joined:
        """Use such a token."""
        node = self.node
        peer = await join_node(
            wish.token,
            identity=node.identity,
            peers=node.peers,
            name=node.name,
            address=node.address,
        )
        return schema.Joined(node_id=peer.node_id, name=peer.name, address=peer.address)

    async def init_fence(self, wish: wishes.InitFence, *, uid: int) -> schema.Done:
        """End a quarantine."""
        if self.node.stages.quarantine_reason is None:
            return schema.Done(message="this node votes already; nothing was changed")
        logger.warning("event=fence_init uid=%d reason=%r", uid, wish.reason)
        await self.node.stages.lift_quarantine()
        return schema.Done(message="the quarantine is over: this node votes")

    async def safe_mode_on(
        self, wish: wishes.SafeModeOn, *, uid: int
    ) -> schema.SafeModeReport:
        """Request safe mode, durable before this returns."""
        switch = self.node.safe_mode
        await trio.to_thread.run_sync(
            lambda: switch.turn_on(wish.reason, by_uid=uid, now_unix_s=now_unix_s())
        )
        logger.warning("event=safe_mode_on uid=%d reason=%r", uid, wish.reason)
        return await self._changed_safe_mode(is_restarting=wish.restart)

    async def safe_mode_off(
        self, wish: wishes.SafeModeOff, *, uid: int
    ) -> schema.SafeModeReport:
        """Take the request back, durable before this returns."""
        switch = self.node.safe_mode
        if switch.is_in_environment:
            raise UsageError(
                "the environment asks for safe mode: remove the systemd drop-in or the "
                "variable, then restart skippyd"
            )
        await trio.to_thread.run_sync(switch.turn_off)
        logger.warning("event=safe_mode_off uid=%d", uid)
        return await self._changed_safe_mode(is_restarting=wish.restart)

    async def _changed_safe_mode(self, *, is_restarting: bool) -> schema.SafeModeReport:
        report = await self.safe_mode()
        if is_restarting:
            self.node.is_restarting = True
            self.nursery.start_soon(self._end_soon)
        return report

    async def _end_soon(self) -> None:
        # The operator's answer leaves first.
        await trio.sleep(0.2)
        self.node.stopping.set()

    async def _hand_over(self, scope: trio.CancelScope) -> None:
        with scope:
            await self.node.rollouts.stop()

    async def _stage_paths_us(self) -> dict[str, int | None]:
        registry = self.node.registry
        targets = [p.node_id for p in registry.peers() if p.is_available]
        try:
            found = await registry.measure_latency_ms(registry.own_id, targets)
        except NodeUnreachableError:
            found = {}
        return {
            target: round(found[target] * US_PER_MS) if target in found else None
            for target in targets
        }


def _stop_of(run: StageRun) -> StopStage:
    load = run.load
    return StopStage(
        key=load.key,
        stage=load.stage,
        coordinator_term=load.coordinator_term,
        shutdown_generation=load.shutdown_generation,
    )
