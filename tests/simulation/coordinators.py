"""What every coordinator in a simulation shares: a name, a home, requests in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator.messages import Origin


if TYPE_CHECKING:
    from simulation.ghost import GhostProcess
    from simulation.node import Node
    from simulation.occurrences import ReplyDelivery
    from simulation.world import World
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.core.coordinator.messages import Reply, Request
    from skippyd.ids import RunId


@attrs.define(eq=False, kw_only=True)
class Coordinator:
    """A sender of requests that lives in the daemon of its home node."""

    world: World
    name: str
    home: Node
    incarnation: int = 1
    in_flight: dict[int, tuple[Node, Request]] = attrs.field(factory=dict)
    _next_number: int = 0

    def send(
        self, node: Node, request: Request, origin: Origin = Origin.NETWORK
    ) -> None:
        """Put a request on its way."""
        self._next_number = number = self._next_number + 1
        self.in_flight[number] = (node, request)
        self.world.send_request(self, node, number, request, origin)

    def take_reply(self, delivery: ReplyDelivery) -> None:
        """Take a reply in; a second one to the same request is lost on it."""
        if not self.home.is_running(delivery):
            return
        asked = self.in_flight.pop(delivery.number, None)
        if asked is not None:
            self.replied(*asked, delivery.reply)

    def replied(self, node: Node, request: Request, reply: Reply) -> None:
        """Act on a reply."""

    def failed(self, number: int) -> None:
        """The network says that a request got lost."""
        self.in_flight.pop(number, None)

    def wake(self) -> None:
        """Act on a deadline."""

    def home_crashed(self) -> None:
        """Forget everything: the process is gone."""
        self.incarnation += 1
        self.in_flight.clear()

    def home_restarted(self) -> None:
        """Begin anew."""

    def stage_lost(self, node: Node, run_id: RunId, *, is_fenced: bool) -> None:
        """Hear that a stage is gone."""

    def peer_changed(self, node: Node, *, is_available: bool) -> None:
        """Hear that a node went or came."""

    def check_may_end(self, claim: CoordinatorClaim, process: GhostProcess) -> None:
        """Check that a claim of this coordinator may end a serving stage (M1)."""

    def check_may_stop(self, process: GhostProcess) -> None:
        """Check that a stop of this coordinator may end a stage (I5)."""
