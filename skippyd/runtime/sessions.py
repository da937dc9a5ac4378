"""Which session lives in which sequence of the KV cache, and what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.runtime.failures import BadBatchError, KvFullError


if TYPE_CHECKING:
    from skippyd.core.wire.sampling import SamplingBlock
    from skippyd.runtime.llama.context import StageContext
    from skippyd.runtime.llama.sampler import SamplerChain
    from skippyd.runtime.ready_row import ReadyRow


@attrs.define(kw_only=True)
class Session:
    """One logical sequence on one stage.

    Args:
        sequence: Its sequence id in the cache.
        length: Positions it holds.
        tokens: The tokens at those positions as the sidebands told them.
        sampling: How the final stage draws; None is greedy.
        sampler: The chain built from it, on first use.
        row: Its next row, once that was made ready.
        is_open: Whether it is still in its table.
        changes: How often it was cut, or how it draws was set anew.
    """

    sequence: int
    length: int = 0
    tokens: list[int] = attrs.Factory(list)
    sampling: SamplingBlock | None = None
    sampler: SamplerChain | None = None
    row: ReadyRow | None = None
    is_open: bool = True
    changes: int = 0

    def cut(self, keep: int) -> None:
        """Forget positions from `keep` on."""
        self.changes += 1
        self.length = min(self.length, keep)
        del self.tokens[keep:]
        if self.sampler is not None:
            self.sampler.rewind()

    def drop_sampler(self) -> None:
        """Free the chain."""
        self.changes += 1
        if self.sampler is not None:
            self.sampler.close()
            self.sampler = None


class SessionTable:
    """Sessions by id; belongs to the engine thread.

    Args:
        limit: Sequences the cache was made for.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = list(range(limit - 1, -1, -1))
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> Session | None:
        """A live session."""
        return self._sessions.get(session_id)

    def require(self, session_id: int) -> Session:
        """A live session, or the complaint that there is none."""
        session = self._sessions.get(session_id)
        if session is None:
            raise BadBatchError(f"unknown session {session_id}; prefill it first")
        return session

    def open(self, session_id: int) -> Session:
        """A session, new when it is not yet there; lowest free sequence first.

        Raises:
            KvFullError: Every sequence is taken.
        """
        session = self._sessions.get(session_id)
        if session is None:
            if not self._free:
                raise KvFullError(
                    f"all {self.limit} sequences are taken; try again when a request "
                    "has ended, or raise lane_count"
                )
            session = Session(sequence=self._free.pop())
            self._sessions[session_id] = session
        return session

    def close(self, session_id: int) -> Session | None:
        """Take a session out and free its sequence number."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_open, session.row = False, None
            session.drop_sampler()
            self._free.append(session.sequence)
            self._free.sort(reverse=True)
        return session


def cut_session(context: StageContext, session: Session, keep: int) -> None:
    """Forget a session's positions from `keep` on, in the cache too."""
    context.trim(session.sequence, keep)
    session.cut(keep)
