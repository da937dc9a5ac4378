"""A node that an operator may look at: made-up documents, and a record of changes."""

from __future__ import annotations

import attrs
import trio

from skippyd.admin import schema, wishes
from skippyd.errors import RefusedError, SkippyError
from support.admin_documents import (
    ALPHA,
    BETA,
    DEPLOYMENT,
    NOW_UNIX_MS,
    RUN,
    TERM,
    node_rows,
    serving,
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
            request_id="42",
            token_count=1_234,
            age_ms=2_000,
        )
        rest = schema.LaneRow(
            stage_id="stage-0", lane_id=1, state="idle", session_id=None, age_ms=2_000
        )
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
            idle_ms=20,
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

    async def load_local(self, wish: wishes.LoadLocal) -> schema.Done:
        self._take(wish)
        return schema.Done(message=f"local-{wish.model} serves {wish.model}")

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
