"""Reaching another stage: patience, and whose fault it is when that fails."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.wire.encode import encode_ready
from skippyd.errors import FailureCode, StageFailureError
from skippyd.net.tcp import Address, plain_socket
from skippyd.stage.dialling import connect_to_stage
from skippyd.stage.node import StageNode
from skippyd.stage.waiting import LaneSignal
from support.fake_stage import FakeStage
from support.scripted_runtime import ScriptedRuntime
from support.stage_cli import free_port
from support.stage_room import BRISK, config_of


if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

pytestmark = pytest.mark.watchdog(20)


@pytest.fixture
def port() -> int:
    """A port nobody listens on."""
    return free_port()


@pytest.fixture
def signal() -> Iterator[LaneSignal]:
    """A lane's signal."""
    signal = LaneSignal(0, cancel_s=0.01)
    yield signal
    signal.close()


def reach(
    port: int, signal: LaneSignal, *, patience_s: float = 0.0, ready_s: float = 2.0
) -> socket.socket:
    """Dial stage 1 from stage 0."""
    node = StageNode(
        config=config_of(0, [1, port]),
        runtime=ScriptedRuntime(index=0, is_final=False),
        timings=attrs.evolve(BRISK, ready=ready_s),
    )
    return plain_socket(
        connect_to_stage(
            node,
            Address("127.0.0.1", port),
            1,
            "lane:0>1",
            patience_s=patience_s,
            waiter=signal,
        )
    )


def failure_of(port: int, signal: LaneSignal, **how: float) -> StageFailureError:
    with pytest.raises(StageFailureError) as caught:
        reach(port, signal, **how)
    assert caught.value.stage_index == 1 or caught.value.code is FailureCode.CANCELLED
    return caught.value


def test_a_stage_that_is_ready_is_reached(port: int, signal: LaneSignal) -> None:
    with FakeStage(port), reach(port, signal) as connection:
        assert connection.getpeername()[1] == port


def test_a_stage_that_is_not_there_is_named_with_the_remedy(
    port: int, signal: LaneSignal
) -> None:
    failure = failure_of(port, signal)
    assert failure.code is FailureCode.STAGE_LOST
    assert f"stage-1 at 127.0.0.1:{port} is not there" in failure.message
    assert "Connection refused; start it, or correct" in failure.message


@pytest.mark.slow
def test_a_stage_that_comes_in_time_is_waited_for(
    port: int, signal: LaneSignal
) -> None:
    stage = FakeStage(port)
    coming = threading.Timer(0.2, stage.__enter__)
    coming.start()
    with reach(port, signal, patience_s=10.0):
        assert stage.accepted == 1
    coming.join()
    stage.__exit__(None, None, None)


def test_a_stage_of_another_protocol_is_not_tried_again(
    port: int, signal: LaneSignal
) -> None:
    with FakeStage(port, b"SSH-2.0-x\r\n") as stage:
        failure = failure_of(port, signal, patience_s=10.0)
        assert stage.accepted == 1
    assert failure.code is FailureCode.PROTOCOL
    assert "stage ready magic mismatch" in failure.message


def test_a_stage_that_never_becomes_ready_is_given_up(
    port: int, signal: LaneSignal
) -> None:
    with FakeStage(port, b""):
        failure = failure_of(port, signal, ready_s=0.1)
    assert failure.code is FailureCode.STAGE_LOST
    assert "accepts but did not become ready within 0.1 s" in failure.message


@pytest.mark.parametrize("listens", [True, False])
def test_a_lane_that_has_to_end_stops_dialling(
    port: int, signal: LaneSignal, listens: bool
) -> None:
    threading.Timer(0.05, signal.interrupt).start()
    began = time.monotonic()
    if listens:
        with FakeStage(port, encode_ready()[:2]):
            failure = failure_of(port, signal, patience_s=30.0, ready_s=30.0)
    else:
        failure = failure_of(port, signal, patience_s=30.0)
    assert failure.code is FailureCode.CANCELLED
    assert time.monotonic() - began < 3
