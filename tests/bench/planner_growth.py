"""How planning time grows with the nodes: a table, printed.

    python tests/bench/planner_growth.py

Questions at 10 to 10,000 nodes and 128 layers: layers alike or not, with latencies or
without, on large nodes or (deep) on small ones. The node sizes keep the chain about as
long at every size, so the column of growth is the nodes' own: 10 would be linear, n log n
is between 11 and 13. No stages means that it was refused.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from random import Random  # noqa: TID251 - seeded below: the questions are fixed
from typing import TYPE_CHECKING

import attrs


sys.path.insert(0, str(Path(__file__).parents[2]))

from skippyd.core.topology.plan import TopologyPlan
from skippyd.core.topology.planner import plan_topology
from skippyd.core.topology.request import ModelShape, Node, PlanRequest
from skippyd.ids import NodeId
from skippyd.units import GIB


if TYPE_CHECKING:
    from collections.abc import Iterator


LAYERS = 128
NODE_COUNTS = (10, 100, 1_000, 10_000)
REPETITIONS = 5
KINDS = ("even", "even, latency", "uneven", "uneven, latency", "uneven, deep, latency")


@attrs.frozen(kw_only=True)
class Row:
    """One kind of question at one number of nodes."""

    kind: str
    node_count: int
    stage_count: int
    median_ms: float
    worst_ms: float


def question(kind: str, node_count: int, rng: Random) -> PlanRequest:
    """A question with an answer on some six nodes of any crowd, or on a hundred."""
    is_uneven, has_latency = kind.startswith("uneven"), kind.endswith("latency")
    weights = tuple(rng.choice((GIB, 2 * GIB)) for _ in range(LAYERS))
    smallest, largest = (
        (3, 5) if "deep" in kind else (30 if node_count < 100 else 4, 40)
    )
    return PlanRequest(
        model=ModelShape(
            native_context=262_144,
            layer_count=LAYERS,
            weight_bytes=sum(weights),
            kv_bytes_per_token=LAYERS * 1_024,
            layer_weight_bytes=weights if is_uneven else (),
        ),
        nodes=tuple(
            Node(
                node_id=NodeId(f"node-{index}"),
                vram_bytes=rng.randrange(smallest * GIB, largest * GIB),
                latency_us=rng.randrange(100, 50_000) if has_latency else None,
            )
            for index in range(node_count)
        ),
    )


def measure(kind: str, node_count: int) -> Row:
    """Plan a few questions of the kind and take the median."""
    times_ms: list[float] = []
    stage_counts: list[int] = []
    for repetition in range(REPETITIONS):
        request = question(kind, node_count, Random(repetition))
        start = time.perf_counter()
        plan = plan_topology(request)
        times_ms.append(1000 * (time.perf_counter() - start))
        stage_counts.append(len(plan.stages) if isinstance(plan, TopologyPlan) else 0)
    return Row(
        kind=kind,
        node_count=node_count,
        stage_count=int(statistics.median(stage_counts)),
        median_ms=statistics.median(times_ms),
        worst_ms=max(times_ms),
    )


def table(rows: list[Row]) -> Iterator[str]:
    """The rows as text, with the growth over the row before of the same kind."""
    yield f"{'layers':22}{'nodes':>8}{'stages':>8}{'median ms':>12}{'worst ms':>12}  growth"
    before: Row | None = None
    for row in rows:
        growth = ""
        if before is not None and before.kind == row.kind:
            growth = f"{row.median_ms / before.median_ms:8.1f}"
        yield (
            f"{row.kind:22}{row.node_count:8}{row.stage_count:8}"
            f"{row.median_ms:12.2f}{row.worst_ms:12.2f}{growth}"
        )
        before = row


def main() -> int:
    """Print the table."""
    rows = [measure(kind, count) for kind in KINDS for count in NODE_COUNTS]
    sys.stdout.write("\n".join(table(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
