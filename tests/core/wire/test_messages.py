"""Rules between a message's fields: state, order, forwarding."""

from __future__ import annotations

import attrs
import pytest

from skippyd.core.wire.kinds import MessageKind, required_flags
from skippyd.core.wire.messages import (
    StageMessage,
    check_state,
    forwarded,
    is_older,
    order_key,
)
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.errors import LocalProtocolError, RemoteProtocolError
from skippyd.ids import RequestId, SessionId
from support.wire_vectors import load_vectors, message_of


def message(kind: MessageKind, **changes: object) -> StageMessage:
    fresh = StageMessage(kind=kind, request_id=RequestId(1), session_id=SessionId(2))
    for name, value in changes.items():
        setattr(fresh, name, value)
    return fresh


def test_a_fresh_state_header_has_its_defaults() -> None:
    """skippy-facts 1.3."""
    fresh = message(MessageKind.PREFILL_FINAL_EMBD)
    assert (fresh.seq_id, fresh.flags, fresh.phase) == (0, 1, 1)
    assert (fresh.checkpoint_generation, fresh.prompt_token_count) == (0, 0)
    assert (fresh.decode_step, fresh.current_token) == (-1, -1)
    assert fresh.source_stage_index == -1


@pytest.mark.parametrize("kind", MessageKind)
def test_a_fresh_message_matches_its_kind(kind: MessageKind) -> None:
    fresh = message(kind)
    fresh.flags |= 8 | 16 | 32 | 64  # flags that no kind demands or bars
    check_state(fresh)
    assert fresh.flags & 3 == required_flags(kind)


@pytest.mark.parametrize("number", [7, 13, 14, 19, 22])
def test_some_kinds_are_accepted_with_any_state(number: int) -> None:
    check_state(message(MessageKind(number), phase=77, flags=3))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (MessageKind.DECODE_EMBD, {"phase": 1}),
        (MessageKind.DECODE_EMBD, {"phase": 0}),
        (MessageKind.DECODE_EMBD, {"flags": 1}),
        (MessageKind.DECODE_EMBD, {"flags": 2}),
        (MessageKind.PREFILL_FINAL_EMBD, {"flags": 0}),
        (MessageKind.PREFILL_FINAL_EMBD, {"flags": 3}),
        (MessageKind.DECODE_LIGHT_CTX, {"flags": 0}),
    ],
)
def test_a_state_of_another_kind_is_refused(
    kind: MessageKind, changes: dict[str, int]
) -> None:
    with pytest.raises(
        RemoteProtocolError,
        match=f"^binary stage state does not match message kind: {kind.name}",
    ):
        check_state(message(kind, **changes))


@pytest.mark.parametrize(
    "earlier",
    [
        {"checkpoint_generation": 0, "prompt_token_count": 99, "decode_step": 99},
        {"checkpoint_generation": 1, "prompt_token_count": 4, "decode_step": 99},
        {"checkpoint_generation": 1, "prompt_token_count": 5, "decode_step": 5},
    ],
)
def test_older_is_lexicographic_within_one_flow(earlier: dict[str, int]) -> None:
    now = message(
        MessageKind.DECODE_EMBD,
        checkpoint_generation=1,
        prompt_token_count=5,
        decode_step=6,
    )
    then = message(MessageKind.DECODE_EMBD, **earlier)
    assert is_older(order_key(then), order_key(now))
    assert not is_older(order_key(now), order_key(then))
    assert not is_older(order_key(now), order_key(now))
    then.session_id = SessionId(3)
    assert not is_older(order_key(then), order_key(now))


def test_forwarded_work_changes_index_and_activation_and_drops_chat_metadata() -> None:
    golden = {vector.name: message_of(vector) for vector in load_vectors("message")}
    work = golden["prefill_forwarded"]
    work.chat_metadata = "{}"
    work.sampling = SamplingBlock()
    got = forwarded(work, source_stage_index=4, activation=b"12345678" * 2)
    assert got == attrs.evolve(
        work, source_stage_index=4, activation=b"12345678" * 2, chat_metadata=None
    )


def test_work_without_an_activation_is_not_forwarded() -> None:
    with pytest.raises(
        LocalProtocolError,
        match=r"^stage has downstream but produced an empty activation payload",
    ):
        forwarded(
            message(MessageKind.DECODE_EMBD, token_count=1),
            source_stage_index=1,
            activation=b"",
        )


@pytest.mark.parametrize(
    "kind",
    [
        MessageKind.STOP,
        MessageKind.TRIM_SESSION,
        MessageKind.RETIRE_VERIFY_WINDOW,
        MessageKind.CONFIGURE_GENERATION,
    ],
)
def test_forwarded_control_announces_no_rows(kind: MessageKind) -> None:
    control = message(kind, token_count=3, sampling=SamplingBlock())
    got = forwarded(control, source_stage_index=1, activation=b"")
    assert got == control


def test_a_forwarded_cache_query_names_its_source() -> None:
    query = message(MessageKind.PROBE_PREFILL, token_count=1, tokens=(5,))
    got = forwarded(query, source_stage_index=1, activation=b"")
    assert got == attrs.evolve(query, source_stage_index=1)


def test_only_configure_generation_relays_chat_metadata() -> None:
    for kind, kept in (
        (MessageKind.CONFIGURE_GENERATION, "{}"),
        (MessageKind.STOP, None),
    ):
        control = message(kind, chat_metadata="{}")
        got = forwarded(control, source_stage_index=1, activation=b"")
        assert got.chat_metadata == kept


def test_control_is_not_forwarded_with_an_activation() -> None:
    with pytest.raises(LocalProtocolError, match="STOP carries no activation"):
        forwarded(message(MessageKind.STOP), source_stage_index=1, activation=b"1234")
