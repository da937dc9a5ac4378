"""How a stage's memory is cut into the parts of a bar, shared by all pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from skippyd.core.topology.plan import StageAssignment


@attrs.frozen(kw_only=True)
class MemoryBar:
    """Lengths of the parts, in the caller's unit.

    Missing memory reaches beyond what the node has.
    """

    weights: int
    kv: int
    free: int
    missing: int


def memory_bar(stage: StageAssignment, *, length: int, largest_bytes: int) -> MemoryBar:
    """Cut a bar so that `length` stands for `largest_bytes`.

    Edges are rounded, not parts, so that bars of equal nodes end alike.
    """

    def at(size_bytes: int) -> int:
        return (size_bytes * length * 2 + largest_bytes) // (2 * largest_bytes)

    parameters = stage.parameter_bytes
    usable, needed = stage.usable_bytes, stage.needed_bytes
    inside = at(min(usable, needed))
    weights = min(at(parameters), inside)
    return MemoryBar(
        weights=weights,
        kv=inside - weights,
        free=max(0, at(usable) - inside),
        missing=max(0, at(needed) - inside),
    )


def full_length_bytes(stages: tuple[StageAssignment, ...]) -> int:
    """What the longest bar stands for."""
    return max(max(stage.usable_bytes, stage.needed_bytes) for stage in stages)


def percent_used(stage: StageAssignment) -> int:
    """Share of the usable memory that is taken, rounded up; 100 and more is full."""
    return -(-100 * stage.needed_bytes // max(1, stage.usable_bytes))
