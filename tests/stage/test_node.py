"""What a stage knows of its chain, with and without a topology."""

from __future__ import annotations

import threading

import attrs
import pytest

from skippyd.net.tcp import Address
from skippyd.stage.node import FlowControl, StageNode, StageTimings
from support.scripted_runtime import ScriptedRuntime
from support.stage_room import config_of, topology_of


PORTS = [11, 12, 13, 14]


def node_of(index: int, *, told: bool = True, count: int = 4) -> StageNode:
    ports = PORTS[:count]
    return StageNode(
        config=config_of(index, ports),
        runtime=ScriptedRuntime(index=index, is_final=index == count - 1),
        topology=topology_of(ports) if told else None,
        timings=StageTimings(reply=10.0),
    )


def test_a_topology_tells_both_ends() -> None:
    middle = node_of(1)
    assert (middle.is_first, middle.is_final) == (False, False)
    assert middle.final_index == 3
    assert middle.final_address == Address("127.0.0.1", 14)
    assert middle.first_address == Address("127.0.0.1", 11)
    assert middle.name_of(3) == "stage-3"
    assert middle.name_of(9) == "stage 9"


def test_without_one_only_neighbours_are_known() -> None:
    first, second, third = (node_of(index, told=False) for index in range(3))
    assert first.final_address is None
    assert second.first_address == Address("127.0.0.1", 11)
    assert third.first_address is None
    assert first.name_of(1) == "stage-1"
    assert first.name_of(3) == "stage 3"
    assert node_of(3, told=False).final_index == 3


def test_stages_further_upstream_wait_longer_for_the_same_answer() -> None:
    waits = [node_of(index).reply_patience_s for index in range(4)]
    assert waits == sorted(waits, reverse=True)
    assert waits[2] == waits[3] == 10.0
    assert len(set(waits[:3])) == 3


@pytest.mark.parametrize(
    ("flow", "credit"),
    [
        (FlowControl(), 3),
        (FlowControl(max_inflight=1), 0),
        (FlowControl(reply_credit_limit=0), 0),
        (FlowControl(reply_credit_limit=9), 9),
    ],
)
def test_credit_is_one_less_than_frames_unless_it_is_given(
    flow: FlowControl, credit: int
) -> None:
    assert flow.credit == credit


def test_counters_lose_nothing_between_threads() -> None:
    node = node_of(0)

    def count() -> None:
        for _ in range(2000):
            node.count_message()
            node.board.leave(node.board.sit())

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (node.messages, node.open_lanes) == (8000, 0)
    assert attrs.has(StageNode)
