"""Stops that did not arrive."""

from __future__ import annotations

from skippyd.core.coordinator.campaign_effects import Send
from skippyd.core.coordinator.owed import MAX_OWED_PER_NODE, OwedStops
from skippyd.ids import NodeId
from support.claims import claim, load_of, stop_of


B, C = NodeId("b"), NodeId("c")


def test_an_owed_stop_is_sent_once_when_its_node_is_back() -> None:
    owed, stop = OwedStops(), stop_of(load_of(claim()))
    owed.owe(B, stop)
    owed.owe(B, stop)

    assert owed.pay(C) == ()
    assert owed.pay(B) == (Send(B, stop),)
    assert owed.pay(B) == ()


def test_the_newest_stops_are_kept() -> None:
    owed = OwedStops()
    stops = [stop_of(load_of(claim(1 + n))) for n in range(MAX_OWED_PER_NODE + 1)]
    for stop in stops:
        owed.owe(B, stop)

    assert owed.pay(B) == tuple(Send(B, stop) for stop in stops[1:])
