"""Sessions get the lowest free sequence, and give it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.errors import FailureCode
from skippyd.runtime.failures import (
    AbortedError,
    BadBatchError,
    EngineError,
    KvFullError,
    SamplingError,
)
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.sampler import SamplerChain
from skippyd.runtime.sessions import Session, SessionTable, cut_session
from skippyd.runtime.settings import EngineSettings
from support.engine_chain import ContextChain


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel


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


def test_a_closed_session_knows_it_and_a_new_one_is_another() -> None:
    """Who holds on to a session sees that it is no longer the table's."""
    table = SessionTable(1)
    session = table.open(5)
    assert table.open(5).is_open
    assert table.close(5) is session
    assert table.close(5) is None
    again = table.open(5)
    assert again is not session
    assert [session.is_open, again.is_open] == [False, True]


@pytest.mark.native
def test_cutting_a_session_cuts_the_cache_and_the_draws_too(tiny: GgufModel) -> None:
    settings = EngineSettings(ctx_size=256, lane_count=2)
    with ContextChain.of_slices(tiny, (), settings) as chain:
        (context,) = chain.contexts
        tokens = [4, 5, 6, 7, 8]
        for sequence in (0, 1):
            part = BatchPart(
                sequence=sequence, position=0, tokens=tokens, wants_logits=True
            )
            context.decode([part])
        sampler = SamplerChain(None, context)
        drawn = sampler.draw(4, tokens)
        assert sampler.due(6) == drawn
        session = Session(sequence=1, length=5, tokens=[*tokens], sampler=sampler)
        cut_session(context, session, 3)
        assert (session.length, session.tokens) == (3, [4, 5, 6])
        assert [context.length(sequence) for sequence in (0, 1)] == [5, 3]
        assert sampler.due(6) is None, "what it accepted no longer holds"
        cut_session(context, session, 9)
        assert (session.length, context.length(1)) == (3, 3)
        session.drop_sampler()


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
