"""The fairest layer ranges on fixed nodes: leximin of the sorted margins.

Theory. Leximin compares the margins sorted ascending, the smallest first. Adding
the same margin to two lists keeps their order, so every part of a best
arrangement is itself best for its nodes and layers: parts can be solved apart.

A block is a run of nodes with a run of layers. With t the largest margin that
all its nodes can keep, `open_cuts` finds every cut that some arrangement with
margins of t or more uses. A cut with one choice left splits the block in two,
each with a larger t of its own. Where no cut is settled (many equal layers and
nodes), `leximin_cuts` runs over the few open ones from the last node backwards.
Of equal answers the one with more layers on earlier stages is kept.

Each split costs one bisection over t. A range within a block of c nodes and n
layers is about n / c long, so the open pairs number about n times the width of
the open cuts, n squared at worst.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

import attrs

from skippyd.core.topology.fitting import furthest, widest_margin


if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen(kw_only=True)
class Block:
    """Nodes node_start..node_end, which hold layers layer_start..layer_end."""

    node_start: int
    node_end: int
    layer_start: int
    layer_end: int


def balanced_cuts(usable: Sequence[int], prefix: Sequence[int]) -> tuple[int, ...]:
    """Where the ranges end, with a 0 in front: one more number than nodes.

    Args:
        usable: Bytes of the nodes, descending; each takes at least one layer.
        prefix: Running total of the layers' bytes, at least as many layers as
            nodes. The layers need not fit: margins may be negative.
    """
    cuts = [0] * (len(usable) + 1)
    whole = Block(
        node_start=0, node_end=len(usable), layer_start=0, layer_end=len(prefix) - 1
    )
    blocks = [whole]
    while blocks:
        block = blocks.pop()
        cuts[block.node_end] = block.layer_end
        if block.node_end - block.node_start == 1:
            continue
        room = _room(block, usable, prefix)
        choices = open_cuts(room, prefix, block)
        parts = _split(block, choices)
        blocks.extend(parts)
        if not parts:
            inner = leximin_cuts(room, prefix, choices)
            cuts[block.node_start : block.node_end + 1] = inner
    return tuple(cuts)


def _room(block: Block, usable: Sequence[int], prefix: Sequence[int]) -> list[int]:
    """The block's budgets once its largest common margin is set aside."""
    own = usable[block.node_start : block.node_end]
    margin = widest_margin(own, prefix, first=block.layer_start, last=block.layer_end)
    return [u - margin for u in own]


def open_cuts(
    room: Sequence[int], prefix: Sequence[int], block: Block
) -> list[list[int]]:
    """Every cut that some arrangement within `room` uses, ascending, per node.

    One list more than nodes: the first holds the block's first layer.
    """
    later = len(room)
    reached = [[block.layer_start]]
    for budget in room:
        later -= 1
        reached.append(_ends(reached[-1], prefix, budget, block.layer_end - later))
    choices = [[block.layer_end]]
    for starts, budget in zip(reversed(reached[:-1]), reversed(room), strict=True):
        ends = choices[-1]
        choices.append([s for s in starts if _has_end(s, ends, prefix, budget)])
    return choices[::-1]


def _ends(
    starts: Sequence[int], prefix: Sequence[int], budget: int, cap: int
) -> list[int]:
    """Ends of the ranges that begin at one of `starts` and fit the budget."""
    ends: list[int] = []
    covered = 0
    for start in starts:
        reach = min(furthest(prefix, start, budget), cap)
        ends.extend(range(max(start, covered) + 1, reach + 1))
        covered = max(covered, reach)
    return ends


def _has_end(
    start: int, ends: Sequence[int], prefix: Sequence[int], budget: int
) -> bool:
    """Tell whether some end lies behind `start` and within the budget."""
    nearest = bisect_right(ends, start)
    return nearest < len(ends) and prefix[ends[nearest]] - prefix[start] <= budget


def _split(block: Block, choices: Sequence[Sequence[int]]) -> list[Block]:
    """The blocks between settled cuts; empty when no inner cut is settled."""
    settled = [at for at, cuts in enumerate(choices) if len(cuts) == 1]
    if len(settled) == 2:  # noqa: PLR2004 - the block's own two ends
        return []
    return [
        Block(
            node_start=block.node_start + low,
            node_end=block.node_start + high,
            layer_start=choices[low][0],
            layer_end=choices[high][0],
        )
        for low, high in pairwise(settled)
    ]


def leximin_cuts(
    room: Sequence[int], prefix: Sequence[int], choices: Sequence[Sequence[int]]
) -> list[int]:
    """The best cut out of each list of choices; ends later first among equals.

    Args:
        room: Budgets no range may exceed.
        prefix: Running total of the layers' bytes.
        choices: As `open_cuts` gives them.
    """
    margins: dict[int, tuple[int, ...]] = {choices[-1][0]: ()}
    chosen: list[dict[int, int]] = []
    for at in range(len(room) - 1, -1, -1):
        best = {
            start: _best_end(start, room[at], prefix, choices[at + 1], margins)
            for start in choices[at]
        }
        margins = {start: found[0] for start, found in best.items()}
        chosen.append({start: found[1] for start, found in best.items()})
    cuts = [choices[0][0]]
    for ends in reversed(chosen):
        cuts.append(ends[cuts[-1]])
    return cuts


def _best_end(
    start: int,
    budget: int,
    prefix: Sequence[int],
    ends: Sequence[int],
    margins: dict[int, tuple[int, ...]],
) -> tuple[tuple[int, ...], int]:
    """Sorted margins from this node on, and where its range has to end."""
    nearest = bisect_right(ends, start)
    beyond = bisect_right(ends, furthest(prefix, start, budget))
    best: tuple[int, ...] = ()
    best_end = start
    for end in reversed(ends[nearest:beyond]):
        left = budget - (prefix[end] - prefix[start])
        later = margins[end]
        place = bisect_left(later, left)
        candidate = (*later[:place], left, *later[place:])
        if candidate > best:
            best, best_end = candidate, end
    return best, best_end
