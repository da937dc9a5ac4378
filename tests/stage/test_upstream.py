"""One upstream connection: what ends it, who is told, and what is given back."""

from __future__ import annotations

import socket
from functools import partial

import attrs
import pytest

from skippyd.core.wire import requests
from skippyd.core.wire.auth import lane_purpose, return_purpose
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.net.tcp import plain_socket, send_buffers
from skippyd.stage.upstream import UpstreamConnection
from support.stage_room import (
    BRISK,
    RUN_KEY,
    becomes,
    blocking,
    dialled,
    driver_on,
    running_room,
    wire_bytes,
)


pytestmark = pytest.mark.watchdog(20)

IDS = {"request_id": RequestId(1), "session_id": SessionId(2)}
PREFILL = wire_bytes(
    requests.prefill(
        request_id=RequestId(1),
        session_id=SessionId(2),
        pos_start=0,
        tokens=(1, 2, 3),
        prompt_token_count=4,
    )
)
OPEN = requests.prediction_return_open(request_id=RequestId(1), session_id=SessionId(2))


async def last_words(link: object) -> StageFailureError:
    """The failure that a stage sends before it closes."""
    with pytest.raises(StageFailureError) as caught:
        await blocking(partial(link.wait_reply, 5.0, "a message"))  # type: ignore[attr-defined]
    return caught.value


async def test_an_upstream_that_leaves_gives_its_sessions_back_without_a_stop() -> None:
    async with running_room() as room:
        transport = await room.lane()
        driver = driver_on(transport)
        await blocking(partial(driver.prefill, [1, 2, 3]))
        await blocking(partial(driver.configure, None))
        assert room.held == [1, 1, 1]
        await room.close(transport)
        await becomes(lambda: room.held == [0, 0, 0], "sessions are free")
        others = room.nodes[1:]
        await becomes(lambda: [n.open_lanes for n in others] == [0, 0], "lanes too")


async def test_a_message_that_is_cut_off_ends_the_lane_and_frees_it() -> None:
    async with running_room(1) as room:
        async with dialled(room.nodes[0]) as link:
            send_buffers(link.connection, [PREFILL, PREFILL[:80]])
            await becomes(lambda: room.held == [1], "the first message is done")
            plain_socket(link.connection).shutdown(socket.SHUT_WR)
            await blocking(partial(link.wait_reply, 5.0, "prefill"))
            failure = await last_words(link)
        assert failure.code is FailureCode.PROTOCOL
        assert "ends inside" in failure.message or "bytes of" in failure.message
        await becomes(lambda: room.held == [0], "the session is free")
        await becomes(lambda: room.nodes[0].open_lanes == 0, "the lane too")


async def test_a_message_that_is_never_finished_ends_at_the_frame_deadline() -> None:
    hasty = attrs.evolve(BRISK, frame=0.05)
    async with running_room(1, timings=hasty) as room:
        async with dialled(room.nodes[0]) as link:
            send_buffers(link.connection, [PREFILL[:80]])
            failure = await last_words(link)
        assert "did not finish it within 0.05 s" in failure.message
        assert failure.code is FailureCode.PROTOCOL


async def test_between_messages_an_upstream_may_be_silent_for_longer() -> None:
    hasty = attrs.evolve(BRISK, frame=0.05)
    async with (
        running_room(1, timings=hasty) as room,
        dialled(room.nodes[0]) as link,
    ):
        with pytest.raises(StageFailureError, match="did not answer"):
            await blocking(partial(link.wait_reply, 0.2, "nothing"))
        send_buffers(link.connection, [PREFILL])
        reply = await blocking(partial(link.wait_reply, 5.0, "prefill"))
        assert reply.tokens == ()


async def test_another_state_version_is_refused_by_name() -> None:
    wrong = bytearray(PREFILL)
    wrong[20:24] = (13).to_bytes(4, "little")
    async with running_room(1) as room, dialled(room.nodes[0]) as link:
        send_buffers(link.connection, [bytes(wrong)])
        failure = await last_words(link)
        assert failure.code is FailureCode.PROTOCOL
        assert "unsupported stage state version" in failure.message


async def test_an_unknown_kind_is_refused() -> None:
    wrong = bytearray(PREFILL)
    wrong[0:4] = (10).to_bytes(4, "little")
    async with running_room(1) as room, dialled(room.nodes[0]) as link:
        send_buffers(link.connection, [bytes(wrong)])
        assert "unknown stage message kind" in (await last_words(link)).message


async def test_a_defect_of_ours_ends_one_connection_and_is_told() -> None:
    async with running_room(1) as room:
        room.runtimes[0].failures.append(ZeroDivisionError("oops"))
        async with dialled(room.nodes[0]) as link:
            send_buffers(link.connection, [PREFILL])
            await blocking(partial(link.wait_reply, 5.0, "prefill"))
            failure = await last_words(link)
        assert failure.code is FailureCode.INTERNAL
        assert "oops" in failure.message
        assert "stage-0" in failure.message
        async with dialled(room.nodes[0]) as link:
            send_buffers(link.connection, [PREFILL])
            await blocking(partial(link.wait_reply, 5.0, "prefill"))


@pytest.mark.parametrize("run_key", [None, RUN_KEY], ids=["open", "keyed"])
async def test_a_middle_stage_carries_no_predictions(run_key: bytes | None) -> None:
    purpose = None if run_key is None else lane_purpose(0, 1)
    async with (
        running_room(run_key=run_key) as room,
        dialled(room.nodes[1], purpose=purpose) as link,
    ):
        link.send(OPEN)
        failure = await last_words(link)
        assert failure.stage_index == 1
        assert "PREDICTION_RETURN_OPEN" in failure.message
        kinds = {FailureCode.KIND_NOT_SERVED, FailureCode.PROTOCOL}
        assert failure.code in kinds


async def test_stage_0_takes_no_return_that_nobody_waits_for() -> None:
    async with running_room() as room, dialled(room.nodes[0]) as link:
        link.send(OPEN)
        failure = await last_words(link)
        assert failure.code is FailureCode.KIND_NOT_SERVED
        assert "no lane waits for it" in failure.message


async def test_a_return_carries_nothing_else() -> None:
    async with running_room() as room, dialled(room.nodes[2]) as link:
        link.send(OPEN)
        await becomes(lambda: len(room.nodes[2].sinks) == 1, "bound")
        send_buffers(link.connection, [PREFILL[:68] + b"\0" * 4 + PREFILL[72:]])
        failure = await last_words(link)
        assert "on a prediction return" in failure.message
        await becomes(lambda: len(room.nodes[2].sinks) == 0, "unbound")


@pytest.mark.parametrize(
    ("purpose", "message"),
    [(lane_purpose(1, 2), wire_bytes(OPEN)), (return_purpose(0, 2), PREFILL)],
)
async def test_a_token_is_good_for_one_purpose_only(
    purpose: str, message: bytes
) -> None:
    async with (
        running_room(run_key=RUN_KEY) as room,
        dialled(room.nodes[2], purpose=purpose) as link,
    ):
        send_buffers(link.connection, [message])
        failure = await last_words(link)
        assert f"whose token is for {purpose}" in failure.message


async def test_an_interrupted_connection_ends_without_a_word() -> None:
    async with running_room(1) as room:
        ours, theirs = socket.socketpair()
        with theirs:
            upstream = UpstreamConnection(room.nodes[0], ours, peer="a test")
            upstream.interrupt()
            await blocking(upstream.run)
            assert theirs.recv(100) == b""
        assert room.nodes[0].open_lanes == 0
