"""Made-up documents of a node and its chain, for whoever shows or sends them."""

from __future__ import annotations

from typing import Any

import attrs

from skippyd.admin import schema


ALPHA, BETA, GAMMA = "a1" * 32, "b2" * 32, "c3" * 32
NOW_UNIX_MS = 1_764_468_000_000
"""2025-11-30T02:00:00Z."""

TERM = "1764460800123456789"
RUN = "mesh-split-1764460800123456789"


def stage(index: int, **changes: Any) -> schema.StageRow:  # noqa: ANN401 - any field
    """A ready stage; stage 0 is on alpha, and so on."""
    first, name = index * 10, ("alpha", "beta", "gamma")[index]
    row = schema.StageRow(
        stage_id=f"stage-{index}",
        stage_index=index,
        node_id=(ALPHA, BETA, GAMMA)[index],
        node_name=name,
        layer_start=first,
        layer_end=first + 10,
        state="READY",
        state_age_ms=7_260_000,
        reason="",
        pid=4000 + index,
        bind_addr=f"10.0.0.{index + 1}:19000",
        resident_bytes=123_456_789,
        loaded_bytes=100_000_000,
        total_bytes=100_000_000,
    )
    return attrs.evolve(row, **changes)


def serving() -> schema.Status:
    """Three stages that serve."""
    return schema.Status(
        daemon=schema.DaemonStatus(
            version="0.1.0",
            node_id=ALPHA,
            name="alpha",
            uptime_ms=8_040_000,
            state="serving",
        ),
        safe_mode=schema.SafeMode(requested=False, effective=False),
        run=schema.RunStatus(
            run_id=RUN,
            topology_id=f"topology-{RUN}",
            model_id="smollm2",
            term=TERM,
            coordinator_id=ALPHA,
            lease_until_unix_ms=NOW_UNIX_MS + 11_520_000,
            route="http://10.0.0.1:9337/v1",
        ),
        stages=(stage(0), stage(1), stage(2)),
    )


def degraded() -> schema.Status:
    """One stage loads, one is lost, and safe mode is on."""
    status = serving()
    assert status.run is not None
    return attrs.evolve(
        status,
        daemon=attrs.evolve(
            status.daemon, state="degraded", reasons=("stage-2 on gamma is lost",)
        ),
        safe_mode=schema.SafeMode(
            requested=True,
            effective=True,
            reason="bad answers since the upgrade",
            since="2025-11-30T01:00:00Z",
        ),
        run=attrs.evolve(status.run, route=None, lease_until_unix_ms=NOW_UNIX_MS - 1),
        stages=(
            stage(0),
            stage(1, state="STARTING", state_age_ms=4_200, loaded_bytes=34_000_000),
            stage(
                2,
                state="FAILED",
                state_age_ms=900,
                pid=None,
                resident_bytes=0,
                reason="killed by signal 9\nllama_model_load: loading\nlast words \x1b[2J",
            ),
        ),
    )


def idle() -> schema.Status:
    """Nothing is deployed."""
    status = serving()
    daemon = attrs.evolve(status.daemon, state="idle", uptime_ms=400)
    return attrs.evolve(status, daemon=daemon, run=None, stages=())


def node_rows() -> tuple[schema.NodeRow, ...]:
    """Alpha, which is this node, beta nearby, gamma gone."""
    alpha = schema.NodeRow(
        node_id=ALPHA,
        name="alpha",
        address="10.0.0.1:9401",
        is_this_node=True,
        health="ok",
        reason="",
        rtt_us=None,
        interface=None,
        local_address=None,
        memory_bytes=16 * 2**30,
        usable_bytes=14 * 2**30,
        version="0.1.0",
        safe_mode=False,
        last_heard_unix_ms=None,
    )
    beta = attrs.evolve(
        alpha,
        node_id=BETA,
        name="beta",
        address="10.0.0.2:9401",
        is_this_node=False,
        rtt_us=230,
        interface="eth0",
        local_address="10.0.0.1",
        last_heard_unix_ms=NOW_UNIX_MS - 1_500,
    )
    gamma = attrs.evolve(
        beta,
        node_id=GAMMA,
        name="gamma",
        address="10.0.0.3:9401",
        health="silent",
        reason="five status messages missed",
        rtt_us=None,
        interface=None,
        local_address=None,
        memory_bytes=None,
        usable_bytes=None,
        version=None,
        last_heard_unix_ms=None,
    )
    return alpha, beta, gamma


def event(
    sequence: int,
    step: str,
    message: str,
    **fields: Any,  # noqa: ANN401 - any field
) -> schema.Event:
    """An event of the deployment of smollm2."""
    base = schema.Event(
        sequence=sequence,
        unix_ms=NOW_UNIX_MS + sequence * 1_000,
        event=step,
        message=message,
        model_id="smollm2",
    )
    return attrs.evolve(base, **fields)


DEPLOYMENT = (
    event(1, "plan", "3 stages, context 8,192, 4 lanes"),
    event(2, "probe", "3 of 3 accept"),
    event(3, "load", "", stage_id="stage-2", node_id=GAMMA, done=1, total=100_000_000),
    event(
        4,
        "load",
        "",
        stage_id="stage-2",
        node_id=GAMMA,
        done=60_000_000,
        total=100_000_000,
    ),
    event(5, "load", "ready", stage_id="stage-2", node_id=GAMMA),
    event(
        6,
        "publish",
        "smollm2 is served at http://10.0.0.1:9337/v1",
        is_final=True,
        exit_code=0,
    ),
)
