"""Reports of nodes as they would say them."""

from __future__ import annotations

import attrs

from skippyd.coordination.ports import (
    FEATURES,
    GENERATION,
    ModelEntry,
    NodeReport,
    StageReport,
)
from skippyd.core.coordinator.messages import StageState
from skippyd.ids import CoordinatorId, NodeId, RunId, Term
from support.claims import KEY, load_of, ready_status
from support.claims import claim as claim_of


GIB = 1024**3


def report_of(
    name: str,
    *,
    memory_bytes: int = 8 * GIB,
    sha256: str | None = KEY.manifest_sha256,
    stages: tuple[StageReport, ...] = (),
) -> NodeReport:
    """A node that has the model."""
    return NodeReport(
        node_id=NodeId(name),
        name=f"name of {name}",
        version="0",
        generation=GENERATION,
        features=FEATURES,
        instance_id=f"store of {name}",
        memory_bytes=memory_bytes,
        max_memory_bytes=None,
        headroom_bytes=0,
        stage_host="127.0.0.1",
        models=(ModelEntry(name="m", path="/m.gguf", bytes=1, sha256=sha256),),
        stages=stages,
    )


def stage_report(
    run: str,
    *,
    state: StageState = StageState.READY,
    coordinator: str = "coordinator",
    term: int = 10,
    reason: str = "",
    loaded: tuple[int, int] = (0, 0),
) -> StageReport:
    """A stage of a run in a state."""
    status = ready_status(load_of(claim_of()))
    return StageReport(
        status=attrs.evolve(
            status,
            stage=attrs.evolve(status.stage, run_id=RunId(run)),
            state=state,
            coordinator_id=CoordinatorId(coordinator),
            coordinator_term=Term(term),
        ),
        since_unix_ms=0,
        reason=reason,
        loaded_bytes=loaded[0],
        total_bytes=loaded[1],
    )
