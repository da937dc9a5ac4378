"""What the admin handlers need from a node; the daemon implements it.

Whatever cannot be done is raised as a `SkippyError`: its text and its exit code reach
the operator. `uid` is the user that asked, for records that outlive the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol


if TYPE_CHECKING:
    import trio

    from skippyd.admin import schema, wishes


class NodeReads(Protocol):
    """What may be looked at; none of it changes anything or waits for another node."""

    async def status(self) -> schema.Status:
        """Daemon, safe mode, run and chain."""
        ...

    def changed(self) -> trio.Event:
        """An event that is set when the status changes; a new one each time."""
        ...

    async def claims(self) -> schema.Claims:
        """Accepted claims."""
        ...

    async def leases(self) -> schema.Leases:
        """Their leases."""
        ...

    async def lanes(self) -> schema.Lanes:
        """Lanes of this node's stages."""
        ...

    async def sessions(self) -> schema.Sessions:
        """Sessions of this node's stages."""
        ...

    async def nodes(self) -> schema.Nodes:
        """This node first, then its peers."""
        ...

    async def telemetry(self, wish: wishes.After) -> schema.Telemetry:
        """Figures of the last minute, and the spans asked for."""
        ...

    async def logs(self, wish: wishes.After) -> schema.Logs:
        """Lines of the daemon's log."""
        ...

    async def events(self, wish: wishes.WatchEvents) -> schema.Events:
        """Events after the asked one; waits until there is one."""
        ...

    async def fence(self) -> schema.Fence:
        """The fence store."""
        ...

    async def safe_mode(self) -> schema.SafeModeReport:
        """Safe mode, requested and in force."""
        ...

    async def doctor(self) -> schema.Doctor:
        """Look at everything that often goes wrong; may ask other nodes."""
        ...


class NodeWrites(Protocol):
    """What may be changed."""

    async def deploy(self, wish: wishes.Deploy) -> schema.Deployment:
        """Begin a deployment; it goes on when the operator has gone."""
        ...

    async def load_local(self, wish: wishes.LoadLocal) -> schema.Done:
        """Serve a whole model here, without a coordinator."""
        ...

    async def withdraw(self, wish: wishes.Withdraw) -> schema.Deployment:
        """Begin to withdraw a model; its events tell the rest."""
        ...

    async def drain(self, wish: wishes.Drain) -> schema.Done:
        """Take no new stages, or take them again."""
        ...

    async def stop(self, wish: wishes.Stop) -> schema.Done:
        """End stages of this node."""
        ...

    async def invite(self) -> schema.Invitation:
        """Make a token for one other machine."""
        ...

    async def join(self, wish: wishes.Join) -> schema.Joined:
        """Use such a token."""
        ...

    async def init_fence(self, wish: wishes.InitFence, *, uid: int) -> schema.Done:
        """End a quarantine."""
        ...

    async def safe_mode_on(
        self, wish: wishes.SafeModeOn, *, uid: int
    ) -> schema.SafeModeReport:
        """Request safe mode, durable before this returns."""
        ...

    async def safe_mode_off(
        self, wish: wishes.SafeModeOff, *, uid: int
    ) -> schema.SafeModeReport:
        """Take the request back, durable before this returns."""
        ...


class NodeView(NodeReads, NodeWrites, Protocol):
    """Both."""
