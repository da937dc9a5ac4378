"""Sessions get the lowest free sequence, and give it back."""

from __future__ import annotations

import pytest

from skippyd.errors import FailureCode
from skippyd.runtime.failures import (
    AbortedError,
    BadBatchError,
    EngineError,
    KvFullError,
    SamplingError,
)
from skippyd.runtime.sessions import Session, SessionTable


def test_the_lowest_free_sequence_is_taken_first() -> None:
    table = SessionTable(3)
    assert [table.open(id_).sequence for id_ in (50, 60, 70)] == [0, 1, 2]
    table.close(60)
    table.close(50)
    assert table.open(80).sequence == 0
    assert table.open(90).sequence == 1
    assert len(table) == 3


def test_opening_an_open_session_finds_it() -> None:
    table = SessionTable(1)
    session = table.open(5)
    assert table.open(5) is session
    assert table.find(5) is session
    assert table.require(5) is session


def test_one_session_too_many_is_refused_with_the_remedy() -> None:
    table = SessionTable(1)
    table.open(5)
    with pytest.raises(KvFullError, match=r"all 1 sequences are taken.*lane_count"):
        table.open(6)
    assert table.close(5) is not None
    assert table.open(6).sequence == 0


def test_an_unknown_session_is_named() -> None:
    with pytest.raises(BadBatchError, match="unknown session 7; prefill it first"):
        SessionTable(1).require(7)
    assert SessionTable(1).find(7) is None
    assert SessionTable(1).close(7) is None


def test_cutting_forgets_positions_and_their_tokens() -> None:
    session = Session(sequence=0, length=5, tokens=[1, 2, 3, 4, 5])
    session.cut(3)
    assert (session.length, session.tokens) == (3, [1, 2, 3])
    session.cut(9)
    assert (session.length, session.tokens) == (3, [1, 2, 3])


def test_each_failure_has_its_code_on_the_wire() -> None:
    """Contract, "Wire": 3 KV full, 4 bad batch, 7 cancelled, 9 sampling, 10 internal."""
    codes = {
        KvFullError: FailureCode(3),
        BadBatchError: FailureCode(4),
        AbortedError: FailureCode(7),
        SamplingError: FailureCode(9),
        EngineError: FailureCode(10),
    }
    assert {kind: kind("x").code for kind in codes} == codes
