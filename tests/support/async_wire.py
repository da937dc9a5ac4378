"""What nodes in memory stand on: a wire that can be cut, a disk that can be full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.rollout_wishes import CoordinatorFileError, Wish
from skippyd.ids import NodeId, Term


if TYPE_CHECKING:
    from random import Random  # noqa: TID251 - seeded by whoever gives it

NO_TERM = Term(0)


@attrs.define(eq=False)
class MemoryInMemory:
    """A coordinator's durable memory on a disk that can be full."""

    term: Term = NO_TERM
    kept: dict[str, Wish] = attrs.Factory(dict)
    is_full: bool = False

    @property
    def highest_term(self) -> Term:
        """See `CoordinatorMemory`."""
        return self.term

    def wishes(self) -> tuple[Wish, ...]:
        """See `CoordinatorMemory`."""
        return tuple(self.kept.values())

    async def remember_term(self, term: Term) -> None:
        """See `CoordinatorMemory`."""
        await self._write()
        self.term = max(self.term, term)

    async def remember_wish(self, wish: Wish) -> None:
        """See `CoordinatorMemory`."""
        await self._write()
        self.kept[wish.model_id] = wish

    async def forget_wish(self, model_id: str) -> None:
        """See `CoordinatorMemory`."""
        await self._write()
        self.kept.pop(model_id, None)

    async def _write(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_full:
            raise CoordinatorFileError("the disk is full")


@attrs.define(eq=False)
class Wire:
    """The network: who reaches whom, how late, and what gets lost."""

    rng: Random | None = None
    loss: float = 0.0
    delay_s: float = 0.001
    cuts: set[tuple[NodeId, NodeId]] = attrs.Factory(set)
    control_cuts: set[tuple[NodeId, NodeId]] = attrs.Factory(set)

    def is_control_cut(self, source: NodeId, target: NodeId) -> bool:
        """Whether no request and no report goes from one node to the other."""
        return (source, target) in self.control_cuts or self.is_cut(source, target)

    def is_cut(self, source: NodeId, target: NodeId) -> bool:
        """Whether nothing goes from one node to the other."""
        return (source, target) in self.cuts

    async def carry(self, source: NodeId, target: NodeId) -> bool:
        """Let one message travel; say whether it arrives."""
        delay_s = self.delay_s
        if self.rng is not None:
            delay_s *= 1 + 9 * self.rng.random()
        await trio.sleep(delay_s)
        is_lost = self.rng is not None and self.rng.random() < self.loss
        return not is_lost and not self.is_control_cut(source, target)
