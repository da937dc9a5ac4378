"""Everything that can happen at one moment of a schedule.

An occurrence lies in the heap until its time and then happens to its node or
coordinator. Local ones (timers, processes) belong to one incarnation of the daemon
and come to nothing after a crash; what is on the network arrives at whoever is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from simulation.wording import event_words, reply_words, request_words


if TYPE_CHECKING:
    from simulation.campaigners import Campaigner
    from simulation.coordinators import Coordinator
    from simulation.ghost import GhostProcess
    from simulation.node import Node
    from simulation.rogues import Rogue
    from skippyd.core.coordinator.campaign_effects import CampaignEvent
    from skippyd.core.coordinator.messages import LoadStage, Origin, Reply, Request
    from skippyd.core.coordinator.run import Run
    from skippyd.ids import RunId


class Occurrence(Protocol):
    """One entry of the heap."""

    def happen(self) -> None:
        """Do it."""


@attrs.define(eq=False, repr=False)
class Delivery:
    """A request arrives at a node."""

    node: Node
    sender: Coordinator
    number: int
    request: Request
    origin: Origin

    def happen(self) -> None:
        """Arrive."""
        self.node.deliver(self)

    def __repr__(self) -> str:
        return (
            f"{self.sender.name} -> {self.node.node_id}: {request_words(self.request)}"
        )


@attrs.define(eq=False, repr=False)
class ReplyDelivery:
    """A reply arrives at the coordinator that asked."""

    coordinator: Coordinator
    number: int
    node: Node
    reply: Reply

    def happen(self) -> None:
        """Arrive."""
        self.coordinator.take_reply(self)

    def __repr__(self) -> str:
        return (
            f"{self.node.node_id} -> {self.coordinator.name}: {reply_words(self.reply)}"
        )


@attrs.define(eq=False)
class _Local:
    """Something inside one daemon; gone when the daemon is."""

    node: Node
    incarnation: int

    def is_due(self) -> bool:
        """Say whether the daemon that wanted this still runs, and runs now."""
        node = self.node
        return node.incarnation == self.incarnation and node.is_running(self)

    def happen(self) -> None:
        """Do nothing; every kind of its own knows better."""


@attrs.define(eq=False, repr=False)
class ProcessStarted(_Local):
    """A stage's process is ready to serve."""

    process: GhostProcess

    def happen(self) -> None:
        """Report it."""
        if self.is_due():
            self.node.process_started(self)

    def __repr__(self) -> str:
        return f"{self.node.node_id}: process is up: {self.process.load.stage.run_id}"


@attrs.define(eq=False, repr=False)
class ProcessReaped(_Local):
    """A stage's process is gone."""

    process: GhostProcess

    def happen(self) -> None:
        """Report it."""
        if self.is_due():
            self.node.process_reaped(self)

    def __repr__(self) -> str:
        return f"{self.node.node_id}: reaped: {self.process.load.stage.run_id}"


@attrs.define(eq=False, repr=False)
class PreparationDone(_Local):
    """A preparation is complete."""

    load: LoadStage

    def happen(self) -> None:
        """Report it."""
        if self.is_due():
            self.node.preparation_done(self)

    def __repr__(self) -> str:
        return f"{self.node.node_id}: prepared: {self.load.stage.run_id}"


@attrs.define(eq=False, repr=False)
class NodeWake(_Local):
    """A deadline of the stage control."""

    def happen(self) -> None:
        """Tell it that time passed."""
        if self.is_due():
            self.node.wake(self)

    def __repr__(self) -> str:
        return f"{self.node.node_id}: time passed"


@attrs.define(eq=False, repr=False)
class Deferred:
    """What reached a paused node happens when it goes on."""

    node: Node
    occurrence: Occurrence

    def happen(self) -> None:
        """Let it happen now."""
        self.occurrence.happen()

    def __repr__(self) -> str:
        return f"late: {self.occurrence!r}"


@attrs.define(eq=False, repr=False)
class Restart:
    """A daemon comes back after a crash."""

    node: Node

    def happen(self) -> None:
        """Start it."""
        self.node.start()
        self.node.world.node_restarted(self.node)

    def __repr__(self) -> str:
        return f"{self.node.node_id}: starts again"


@attrs.define(eq=False, repr=False)
class CoordinatorWake:
    """A deadline of a coordinator, or an answer of its own shell."""

    coordinator: Coordinator
    incarnation: int
    node: Node

    def happen(self) -> None:
        """Tell it that time passed."""
        if self.coordinator.incarnation == self.incarnation and self.node.is_running(
            self
        ):
            self.coordinator.wake()

    def __repr__(self) -> str:
        return f"{self.coordinator.name}: time passed"


@attrs.define(eq=False, repr=False)
class RogueWake:
    """The next wrong thing; a rogue is a machine of its own that nothing stops."""

    rogue: Rogue

    def happen(self) -> None:
        """Do it."""
        self.rogue.wake()

    def __repr__(self) -> str:
        return "rogue: does something wrong"


@attrs.define(eq=False, repr=False)
class RequestLost:
    """The network tells a coordinator that a request or its answer got lost."""

    coordinator: Coordinator
    incarnation: int
    number: int

    def happen(self) -> None:
        """Tell it."""
        coordinator = self.coordinator
        if coordinator.incarnation == self.incarnation and coordinator.home.is_running(
            self
        ):
            coordinator.failed(self.number)

    def __repr__(self) -> str:
        return f"{self.coordinator.name}: request {self.number} is lost"


@attrs.define(eq=False, repr=False)
class CampaignNews:
    """The shell of a coordinator reports something to its campaign."""

    coordinator: Campaigner
    incarnation: int
    node: Node
    event: CampaignEvent

    def happen(self) -> None:
        """Report it."""
        if self.coordinator.incarnation == self.incarnation and self.node.is_running(
            self
        ):
            self.coordinator.tell(self.event)

    def __repr__(self) -> str:
        return f"{self.coordinator.name}: {event_words(self.event)}"


@attrs.define(eq=False, repr=False)
class Token:
    """A token of one run; a canary proves the chain. The next token is this one again."""

    coordinator: Campaigner
    run: Run
    is_canary: bool
    run_id: RunId = attrs.field(init=False)
    incarnation: int = attrs.field(init=False)
    hops: tuple[TokenHop, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.run_id = self.run.run_id
        self.incarnation = self.coordinator.incarnation
        node_of = self.coordinator.world.node_of
        self.hops = tuple(
            TokenHop(self, index, node_of(stage.node_id))
            for index, stage in enumerate(self.run.plan.stages)
        )


@attrs.define(eq=False, repr=False)
class TokenHop:
    """A token reaches one stage of its chain."""

    token: Token
    index: int
    node: Node

    def happen(self) -> None:
        """Be answered and go on, or end there."""
        coordinator = self.token.coordinator
        if coordinator.incarnation == self.token.incarnation:
            coordinator.world.token_arrived(self)

    def __repr__(self) -> str:
        token = self.token
        what = "canary" if token.is_canary else "token"
        return f"{self.node.node_id}: {what} of {token.run_id} at stage {self.index}"
