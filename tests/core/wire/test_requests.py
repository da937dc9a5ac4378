"""What stage 0 sends: fresh headers that every stage accepts."""

from __future__ import annotations

import pytest

from skippyd.core.wire import requests
from skippyd.core.wire.encode import encode_message
from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.messages import StageMessage, check_state
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.ids import RequestId, SessionId
from support.wire_vectors import load_vectors, message_of


REQUEST = RequestId(0x0102030405060708)
SESSION = SessionId(0xFFFFFFFFFFFFFFFE)
GOLDEN = {vector.name: message_of(vector) for vector in load_vectors("message")}


def prompt_requests() -> list[StageMessage]:
    """What computes the rows of a prompt."""
    return [
        requests.prefill(
            request_id=REQUEST,
            session_id=SESSION,
            pos_start=0,
            tokens=(1, 300, 32000),
            prompt_token_count=5,
        ),
        requests.prefill_final(
            request_id=REQUEST,
            session_id=SESSION,
            pos_start=4,
            tokens=(9,),
            prompt_token_count=5,
        ),
    ]


def decode_requests() -> list[StageMessage]:
    """What computes rows behind a prompt."""
    steps = [
        build(
            request_id=REQUEST,
            session_id=SESSION,
            pos_start=-1,
            token=3,
            prompt_token_count=5,
            decode_step=0,
        )
        for build in (requests.decode, requests.decode_readout, requests.decode_light)
    ]
    replays = [
        build(
            request_id=REQUEST,
            session_id=SESSION,
            pos_start=5,
            tokens=tokens,
            prompt_token_count=5,
        )
        for build, tokens in (
            (requests.decode_replay, (11,)),
            (requests.decode_replay_final, (11, 12)),
        )
    ]
    return steps + replays


def restore_requests() -> list[StageMessage]:
    """What asks for a prefix that a stage may still hold."""
    return [
        *(
            build(request_id=REQUEST, session_id=SESSION, tokens=(1, 2))
            for build in (
                requests.probe_prefill,
                requests.restore_prefill,
                requests.try_restore_prefill,
            )
        ),
        requests.try_restore_prefill_decode(
            request_id=REQUEST, session_id=SESSION, prefix=(1, 2), token=3
        ),
    ]


def window_requests() -> list[StageMessage]:
    """What checks several proposed tokens at once."""
    return [
        requests.verify_window(
            request_id=REQUEST,
            session_id=SESSION,
            window_id=6,
            pos_start=20,
            tokens=(4, 5, 6),
            prompt_token_count=12,
            decode_step=8,
        ),
        requests.retire_verify_window(
            request_id=REQUEST,
            session_id=SESSION,
            window_id=6,
            pos_start=20,
            token_count=3,
        ),
    ]


def control_requests() -> list[StageMessage]:
    """What computes nothing."""
    return [
        requests.configure_generation(
            request_id=REQUEST,
            session_id=SESSION,
            prompt_token_count=9,
            sampling=SamplingBlock(),
            chat_metadata="{}",
        ),
        requests.trim_session(
            request_id=REQUEST, session_id=SESSION, keep_token_count=40
        ),
        requests.stop(request_id=REQUEST, session_id=SESSION),
        requests.prediction_return_open(request_id=REQUEST, session_id=SESSION),
    ]


EVERY_REQUEST = (
    *prompt_requests(),
    *decode_requests(),
    *restore_requests(),
    *window_requests(),
    *control_requests(),
)
BY_KIND = {message.kind: message for message in EVERY_REQUEST}


def test_everything_but_state_transfer_can_be_asked() -> None:
    assert set(MessageKind) - set(BY_KIND) == {
        MessageKind.STATE_IMPORT,
        MessageKind.STATE_EXPORT,
    }


@pytest.mark.parametrize("message", BY_KIND.values(), ids=lambda m: m.kind.name)
def test_a_fresh_request_is_consistent_and_can_be_sent(message: StageMessage) -> None:
    check_state(message)
    assert len(encode_message(message)) == 1
    assert message.source_stage_index == -1


@pytest.mark.parametrize(
    "name",
    [
        "prefill_from_driver",
        "prefill_final",
        "decode_light",
        "stop",
        "trim_session",
        "prediction_return_open",
        "verify_window",
        "retire_verify_window",
    ],
)
def test_a_request_is_the_golden_message(name: str) -> None:
    golden = GOLDEN[name]
    assert BY_KIND[golden.kind] == golden


def test_a_restore_with_decode_computes_one_row_behind_its_prefix() -> None:
    message = BY_KIND[MessageKind.TRY_RESTORE_PREFILL_DECODE]
    assert message.tokens == (1, 2, 3)
    assert (message.pos_start, message.token_count, message.current_token) == (2, 1, 3)
