"""A node that an operator may look at: made-up documents, and a record of changes."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from skippyd.admin import schema, wishes
from skippyd.errors import RefusedError, SkippyError


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


SAFE_MODE_OFF = schema.SafeModeReport(
    safe_mode=schema.SafeMode(requested=False, effective=False)
)


@attrs.define(eq=False)
class FakeNodeView:
    """Implements `NodeView`; `changes` lists what was asked, `refusal` refuses it all.

    `events` answers from `story`, then waits for ever.
    """

    now: schema.Status = attrs.field(factory=serving)
    story: tuple[schema.Event, ...] = DEPLOYMENT
    missed_events: int = 0
    refusal: SkippyError | None = None
    changes: list[tuple[object, int | None]] = attrs.field(factory=list)
    checks: tuple[schema.CheckRow, ...] = (
        schema.CheckRow(check="disk", verdict="ok", finding="9.50 GiB free"),
    )
    safe: schema.SafeModeReport = SAFE_MODE_OFF
    has_claims: bool = True
    is_quarantined: bool = False
    change: trio.Event = attrs.field(factory=trio.Event)

    def show(self, status: schema.Status) -> None:
        """Change the status and wake the watchers."""
        self.now = status
        self.change.set()
        self.change = trio.Event()

    async def status(self) -> schema.Status:
        return self.now

    def changed(self) -> trio.Event:
        return self.change

    async def claims(self) -> schema.Claims:
        row = schema.ClaimRow(
            model_id="smollm2",
            package_ref="local-gguf://sha256/" + "d4" * 32,
            manifest_sha256="d4" * 32,
            topology_id=f"topology-{RUN}",
            run_id=RUN,
            coordinator_id=ALPHA,
            term=TERM,
            participant_set_hash="e5" * 32,
            topology_hash="f6" * 32,
            lease_until_unix_ms=NOW_UNIX_MS + 11_520_000,
            is_lease_held=True,
        )
        return schema.Claims(items=(row,) if self.has_claims else ())

    async def leases(self) -> schema.Leases:
        row = schema.LeaseRow(
            model_id="smollm2",
            run_id=RUN,
            term=TERM,
            coordinator_id=ALPHA,
            lease_until_unix_ms=NOW_UNIX_MS + 11_520_000,
            left_ms=11_520_000,
            state="held",
        )
        return schema.Leases(items=(row,) if self.has_claims else ())

    async def lanes(self) -> schema.Lanes:
        row = schema.LaneRow(
            stage_id="stage-0",
            lane_id=0,
            state="decode",
            session_id="18446744073709551615",
            age_ms=2_000,
        )
        rest = attrs.evolve(row, lane_id=1, state="idle", session_id=None)
        return schema.Lanes(items=(row, rest) if self.has_claims else ())

    async def sessions(self) -> schema.Sessions:
        row = schema.SessionRow(
            session_id="18446744073709551615",
            request_id="42",
            stage_id="stage-0",
            lane_id=0,
            state="decode",
            token_count=1_234,
            age_ms=61_000,
        )
        return schema.Sessions(items=(row,) if self.has_claims else ())

    async def nodes(self) -> schema.Nodes:
        return schema.Nodes(items=node_rows())

    async def telemetry(self, wish: wishes.After) -> schema.Telemetry:
        span = schema.SpanRow(
            sequence=7,
            name="stage.openai_request_summary",
            start_unix_ms=NOW_UNIX_MS,
            elapsed_us=1_500_000,
            attributes={"llama_stage.ttft_ms": "52"},
        )
        known = schema.Distribution(
            count=3, p50_us=52_000, p95_us=61_000, max_us=61_000
        )
        return schema.Telemetry(
            window_ms=60_000,
            safe_mode=False,
            requests_per_minute=3.0,
            prompt_tokens_per_s=1.5,
            completion_tokens_per_s=4.25,
            failed_requests=1,
            ttft=known,
            tpot=attrs.evolve(known, p50_us=9_870),
            queue_wait=schema.Distribution(),
            lock_wait=schema.Distribution(),
            queue_depth=0,
            ring=schema.RingRow(capacity=8192, kept=8192, recorded=9000, dropped=808),
            items=(span,) if wish.after < 7 and wish.limit > 0 else (),
        )

    async def logs(self, wish: wishes.After) -> schema.Logs:
        rows = (
            schema.LogRow(
                sequence=1,
                unix_ms=NOW_UNIX_MS,
                level="info",
                source="daemon",
                message="event=ready",
            ),
            schema.LogRow(
                sequence=2,
                unix_ms=NOW_UNIX_MS + 1_000,
                level="error",
                source="stage-2",
                message="event=stage_lost reason='killed by signal 9'",
            ),
        )
        items = tuple(row for row in rows if row.sequence > wish.after)
        return schema.Logs(items=items[-wish.limit :])

    async def events(self, wish: wishes.WatchEvents) -> schema.Events:
        items = tuple(
            each
            for each in self.story
            if each.sequence > wish.after and wish.model_id in {None, each.model_id}
        )
        if not items:
            await trio.sleep_forever()
        missed = self.missed_events if wish.after == 0 else 0
        return schema.Events(missed=missed, items=items)

    async def fence(self) -> schema.Fence:
        row = schema.FenceRow(
            model_id="smollm2",
            package_ref="local-gguf://sha256/" + "d4" * 32,
            manifest_sha256="d4" * 32,
            term=TERM,
            run_id=RUN,
            coordinator_id=ALPHA,
            stopped=(f"1764460000000000000/{RUN}",),
        )
        return schema.Fence(
            store="/var/lib/skippyd/fence.sqlite3",
            instance_id="0123456789abcdef",
            is_quarantined=self.is_quarantined,
            quarantine_reason="the store is older than this node's word"
            if self.is_quarantined
            else "",
            quarantine_left_ms=14_000_000 if self.is_quarantined else None,
            items=(row,) if self.has_claims else (),
        )

    async def safe_mode(self) -> schema.SafeModeReport:
        return self.safe

    async def doctor(self) -> schema.Doctor:
        return schema.Doctor(items=self.checks)

    async def deploy(self, wish: wishes.Deploy) -> schema.Deployment:
        self._take(wish)
        return schema.Deployment(model_id=wish.model, after=0)

    async def withdraw(self, wish: wishes.Withdraw) -> schema.Deployment:
        self._take(wish)
        return schema.Deployment(model_id=wish.model or "smollm2", after=0)

    async def drain(self, wish: wishes.Drain) -> schema.Done:
        self._take(wish)
        return schema.Done(message="draining; 1 stage is given up in order")

    async def stop(self, wish: wishes.Stop) -> schema.Done:
        self._take(wish)
        return schema.Done(message="1 stage is stopped")

    async def invite(self) -> schema.Invitation:
        self._take(schema.Nothing())
        return schema.Invitation(
            token="skippy1-secret",
            node_id=ALPHA,
            address="10.0.0.1:9401",
            expires_unix_ms=NOW_UNIX_MS + 900_000,
        )

    async def join(self, wish: wishes.Join) -> schema.Joined:
        self._take(wish)
        return schema.Joined(node_id=BETA, name="beta", address="10.0.0.2:9401")

    async def init_fence(self, wish: wishes.InitFence, *, uid: int) -> schema.Done:
        self._take(wish, uid)
        return schema.Done(message="this node votes again")

    async def safe_mode_on(
        self, wish: wishes.SafeModeOn, *, uid: int
    ) -> schema.SafeModeReport:
        self._take(wish, uid)
        state = schema.SafeMode(
            requested=True,
            effective=False,
            reason=wish.reason,
            since="2025-11-30T02:00:00Z",
        )
        return schema.SafeModeReport(safe_mode=state, origin="file", by_uid=uid)

    async def safe_mode_off(
        self, wish: wishes.SafeModeOff, *, uid: int
    ) -> schema.SafeModeReport:
        self._take(wish, uid)
        return self.safe

    def _take(self, wish: object, uid: int | None = None) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.changes.append((wish, uid))


def infeasible() -> SkippyError:
    """A refusal as the planner words it."""
    return RefusedError("smollm2 needs 12 GiB, the nodes have 9.50 GiB")
