"""What may be opened at a stage, and how long the other end may take; see `test_tls`."""

from __future__ import annotations

import socket
import time

import pytest

from skippyd.core.wire.auth import connection_token
from skippyd.stage.node import StageNode
from skippyd.stage.opening import expected_tokens, wait_until
from skippyd.stage.waiting import PlainWaiter
from support.scripted_runtime import ScriptedRuntime
from support.stage_room import RUN_KEY, config_of, topology_of


PORTS = [1, 2, 3]


def node(index: int, *, is_told: bool = True) -> StageNode:
    return StageNode(
        config=config_of(index, PORTS, run_key=RUN_KEY),
        runtime=ScriptedRuntime(index=index, is_final=index == 2),
        topology=topology_of(PORTS) if is_told else None,
    )


@pytest.mark.parametrize(
    ("index", "purposes"),
    [
        (0, {"lane:-1>0", "return:2>0"}),
        (1, {"lane:0>1"}),
        (2, {"lane:1>2", "return:0>2"}),
    ],
)
def test_each_stage_expects_its_neighbour_and_the_ends_each_other(
    index: int, purposes: set[str]
) -> None:
    tokens = expected_tokens(node(index), RUN_KEY)
    assert set(tokens) == purposes
    assert all(
        token == connection_token(RUN_KEY, purpose) for purpose, token in tokens.items()
    )


def test_stage_0_without_topology_takes_any_final_stage() -> None:
    tokens = expected_tokens(node(0, is_told=False), RUN_KEY)
    assert {"return:1>0", "return:2>0", "return:63>0"} < set(tokens)
    assert "return:64>0" not in tokens


def test_waiting_ends_with_bytes_or_in_time() -> None:
    near, far = socket.socketpair()
    with near, far:
        with pytest.raises(TimeoutError, match="did not go on in time"):
            wait_until(PlainWaiter(), near, time.monotonic() + 0.01)
        far.send(b"!")
        wait_until(PlainWaiter(), near, time.monotonic() + 5.0)
