"""Where each model is served, as this node knows: own routes and announced ones.

A route is known by its term (and, of equal terms, its coordinator): an older one never
replaces a newer one, and only its own coordinator takes a route away. Nothing is durable, a coordinator says its routes
again to every node that comes back.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.node_words import label
from skippyd.coordination.rollout_reports import stage_of_run


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from skippyd.coordination.ports import NodeReport, Nodes, Route
    from skippyd.ids import NodeId, RunId

MAX_ROUTES = 256
NOTHING_PUBLISHED = "no model is published; `skippyctl deploy MODEL` starts one"


@attrs.define(eq=False)
class RouteTable:
    """The routes that this node follows.

    Args:
        own_id: This node.
        lost_reason_of: Says why a node is not available now; None when it is.
    """

    own_id: NodeId
    lost_reason_of: Callable[[NodeId], str | None] = lambda _node_id: None
    _routes: dict[str, Route] = attrs.field(factory=dict, init=False)
    _newest: dict[str, tuple[int, NodeId]] = attrs.field(factory=dict, init=False)
    _reasons: dict[str, str] = attrs.field(factory=dict, init=False)
    _using: dict[RunId, int] = attrs.field(factory=dict, init=False)
    _confirmed: set[RunId] = attrs.field(factory=set, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _on_end: Callable[[str], None] = attrs.field(
        default=lambda _model_id: None, init=False
    )

    def on_end(self, tell: Callable[[str], None]) -> None:
        """Have somebody told when an operator ends a model on another node."""
        self._on_end = tell

    def published(self) -> tuple[Route, ...]:
        """Every published route, sorted by model."""
        return tuple(route for _, route in sorted(self._routes.items()))

    def route_of(self, model_id: str) -> Route | None:
        """Return where a model is served, or None."""
        return self._routes.get(model_id)

    def closed_reason(self, model_id: str | None = None) -> str:
        """Say why a model, or anything at all, is not served now."""
        if model_id is not None:
            return self._reasons.get(model_id, f"{model_id} is not published")
        return "; ".join(sorted(set(self._reasons.values()))) or NOTHING_PUBLISHED

    def waiting_reason(self, model_id: str) -> str | None:
        """Say why a model that is wanted is not served now; None when nobody wants it."""
        return None if model_id in self._routes else self._reasons.get(model_id)

    def lost_reason(self, node_id: NodeId) -> str | None:
        """Say why a first stage's node cannot be reached now; None when it can."""
        return None if node_id == self.own_id else self.lost_reason_of(node_id)

    def changed(self) -> trio.Event:
        """An event that is set when a route changes; a new one each time."""
        return self._changed

    def publish(self, route: Route) -> None:
        """Take a route of this node's own coordinator in."""
        self.hear(self.own_id, route, route.model_id)

    def withdraw(self, model_id: str, run_id: RunId, reason: str) -> bool:
        """Take an own route away; say whether it was there."""
        route = self._routes.get(model_id)
        if route is None or route.run_id != run_id:
            return False
        self._remove(model_id, reason)
        return True

    def note(self, model_id: str, reason: str) -> None:
        """Remember what is done about a model, for clients while it is not served."""
        if model_id in self._reasons or len(self._reasons) < MAX_ROUTES:
            self._reasons[model_id] = reason

    def forget(self, model_id: str) -> None:
        """Say nothing more about a model that nobody wants here any more."""
        self._reasons.pop(model_id, None)

    def hear(self, sender: NodeId, route: Route | None, model_id: str) -> None:
        """Take in what a node says about a model; what does not hold changes nothing.

        Args:
            sender: Who said it, by its identity and not by its word.
            route: Where the model is served; None or an ended one when it is not.
            model_id: The model.
        """
        if route is None:
            self._hear_nothing(sender, model_id)
            return
        if route.coordinator_id != sender or route.model_id != model_id:
            return
        # Rivals on two sides of a partition may have come to the same term.
        place = (route.term, route.coordinator_id)
        if place < self._newest.get(model_id, place) or not self._has_room(model_id):
            return
        self._newest[model_id] = place
        if route.is_ended:
            self._hear_end(route)
        elif self._routes.get(model_id) != route:
            self._routes[model_id] = route
            self._reasons.pop(model_id, None)
            self._touch()

    def reconcile(self, reports: Mapping[NodeId, NodeReport]) -> None:
        """Drop routes whose run their own coordinator's node does not have any more.

        A route may be heard before the report that shows its run. A node that drains
        leaves its run to the next candidate, which needs the route for that.
        """
        routes = self.published()
        self._confirmed &= {route.run_id for route in routes}
        for route in routes:
            report = reports.get(route.coordinator_id)
            if route.coordinator_id == self.own_id or report is None:
                continue
            if stage_of_run(report, route.run_id) is not None:
                self._confirmed.add(route.run_id)
            elif route.run_id in self._confirmed and not report.is_draining:
                self._remove(route.model_id, f"{route.run_id} ended on its first node")

    @contextlib.contextmanager
    def using(self, run_id: RunId) -> Iterator[None]:
        """Count a request that uses a run, so that a withdrawal can wait for it."""
        self._using[run_id] = self._using.get(run_id, 0) + 1
        try:
            yield
        finally:
            self._using[run_id] -= 1
            if not self._using[run_id]:
                del self._using[run_id]

    def use_count(self, run_id: RunId) -> int:
        """Requests of this node's front door that use a run now."""
        return self._using.get(run_id, 0)

    def _hear_nothing(self, sender: NodeId, model_id: str) -> None:
        known = self._routes.get(model_id)
        if known is not None and known.coordinator_id == sender:
            self._remove(
                model_id, f"its coordinator {label(sender, '')} withdrew {model_id}"
            )

    def _hear_end(self, route: Route) -> None:
        self._routes.pop(route.model_id, None)
        self.forget(route.model_id)
        self._touch()
        self._on_end(route.model_id)

    def _has_room(self, model_id: str) -> bool:
        return model_id in self._newest or len(self._newest) < MAX_ROUTES

    def _remove(self, model_id: str, reason: str) -> None:
        del self._routes[model_id]
        self.note(model_id, reason)
        self._touch()

    def _touch(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def loss_of_peers(nodes: Nodes) -> Callable[[NodeId], str | None]:
    """Say of a node why it is not available now, as the control connections know."""

    def reason_of(node_id: NodeId) -> str | None:
        for peer in nodes.peers():
            if peer.node_id == node_id:
                unknown = f"node {label(node_id, peer.name)} is not available"
                return None if peer.is_available else peer.reason or unknown
        return f"node {label(node_id, '')} is no peer of this node"

    return reason_of
