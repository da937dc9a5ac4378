"""Whether a list of nodes holds a run of layers, each keeping a margin free.

Theory. Nodes stand in one order: usable memory descending, then node id. Ranges
are contiguous and never empty. `prefix[i]` is the bytes of the first i layers.

1. *The first nodes are the best nodes.* Take any c nodes in order and their
   ranges. Put the same ranges on the first c nodes of the whole list: at every
   place the usable memory is at least as large, so every margin is at least as
   large, and the node ids are the smallest among equals. Hence no subset is ever
   searched: fitting, the largest smallest margin, its leximin refinement and the
   tie on ids are all reached by a prefix of the (latency-filtered) list.
2. *Greedy decides.* `fits` lets each node take all it can while one layer is left
   for every later node. The end of its range is the furthest any arrangement can
   reach there. If the next layer is then too heavy for a node, it is too heavy
   for all later ones, and no arrangement had placed it earlier.
3. *The counts that fit are an interval.* Let Q be an arrangement on a nodes and P
   one on b > a + 1. With j the first place where Q ends at or after P's place
   j + 1, node j may take everything from Q's end at j - 1 to P's end at j + 1 (a
   part of its own range in Q), and each later node the range of P's next one.
   That is an arrangement on b - 1 nodes. So the fewest stages that fit are found
   by one greedy pass and, when more are demanded, by one test at that number.
4. *Less margin, lower context, more memory never hurt*, so margins, contexts and
   sizes of a further node are found by bisection.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def prefix_bytes(weights: Sequence[int], kv_layer_bytes: int) -> tuple[int, ...]:
    """Running total of the layers' bytes, beginning with 0."""
    return tuple(accumulate((w + kv_layer_bytes for w in weights), initial=0))


def furthest(prefix: Sequence[int], start: int, budget_bytes: int) -> int:
    """End of the longest range from `start` within the budget.

    `start` or less when not even one layer fits.
    """
    return bisect_right(prefix, prefix[start] + budget_bytes) - 1


def fits(
    usable: Sequence[int],
    prefix: Sequence[int],
    margin_bytes: int = 0,
    *,
    first: int = 0,
    last: int | None = None,
) -> bool:
    """Tell whether the nodes hold layers first..last, each keeping the margin.

    Args:
        usable: Bytes of the nodes, descending; each takes at least one layer.
        prefix: Running total of the layers' bytes.
        margin_bytes: Must stay free on every node; negative allows a shortfall.
        first: First layer to place.
        last: Layer after the last one to place, None for all.
    """
    end = len(prefix) - 1 if last is None else last
    position, later = first, len(usable)
    for room in usable:
        later -= 1
        reach = min(furthest(prefix, position, room - margin_bytes), end - later)
        if reach <= position:
            return False
        position = reach
    return position == end


def fewest_stages(
    usable: Sequence[int], prefix: Sequence[int], at_least: int
) -> int | None:
    """Fewest nodes from the front of `usable` that hold all layers, or None."""
    position, count, end = 0, 0, len(prefix) - 1
    while position < end:
        if count == len(usable):
            return None
        reach = furthest(prefix, position, usable[count])
        if reach <= position:
            return None
        position = reach
        count += 1
    if count >= at_least:
        return count
    if at_least <= len(usable) and fits(usable[:at_least], prefix):
        return at_least
    return None


def widest_margin(
    usable: Sequence[int], prefix: Sequence[int], *, first: int, last: int
) -> int:
    """Largest margin every node can keep; negative when the layers do not fit.

    Needs at least one node and as many layers as nodes.
    """
    total = prefix[last] - prefix[first]
    certain = usable[-1] - total
    mean = (sum(usable) - total) // len(usable)
    return largest(
        certain, mean, lambda m: fits(usable, prefix, m, first=first, last=last)
    )


def largest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Largest number in low..high for which `holds`; it is taken to hold at low.

    `holds` must not become true again once it is false.
    """
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
