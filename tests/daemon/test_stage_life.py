"""Stages of a small model as real processes: a chain over two nodes, and its losses."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination.fence_store import FenceStore
from skippyd.coordination.inventory import Inventory
from skippyd.coordination.model_digests import ModelDigests
from skippyd.coordination.node_budget import node_budget
from skippyd.coordination.stage_documents import ChainTrust
from skippyd.coordination.stage_parts import StageParts
from skippyd.coordination.stage_side import NodeStages
from skippyd.core.coordinator.echo import echo_differences
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    Origin,
    StageReady,
    StageState,
    StopStage,
)
from skippyd.core.coordinator.verdict import Superseded
from skippyd.daemon.supervisor import Supervisor
from skippyd.ids import NodeId
from skippyd.net.tcp import NO_TLS_ALERT
from skippyd.runtime.build import build_facts
from support.leaks import Census
from support.stage_nodes import Plan, small_plan, virtual_instant
from support.stage_room import identities


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from skippyd.coordination.identity import Identity
    from skippyd.coordination.ports import StageReport
    from skippyd.core.coordinator.messages import LoadStage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.native,
    pytest.mark.process,
    pytest.mark.watchdog(120),
]

SOAK = os.environ.get("SKIPPY_SOAK") == "1"
CYCLES = 100 if SOAK else 20
BODY = b'{"model": "org/model", "prompt": "Hello", "max_tokens": 4, "temperature": 0}'


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A small model with a tokenizer, in two stages, for this machine's build."""
    plan = small_plan(tmp_path_factory.mktemp("models"), with_tokenizer=True)
    return attrs.evolve(plan, build=build_facts())


@contextlib.asynccontextmanager
async def node(
    folder: Path, plan: Plan, index: int, trust: ChainTrust | None = None
) -> AsyncIterator[NodeStages]:
    """A node with real stage processes."""
    path = folder / f"node-{index}"
    await trio.Path(path).mkdir()
    supervisor = Supervisor(host=plan.host)
    inventory = Inventory((plan.path,), ModelDigests(None))
    with FenceStore.open(path, is_known_identity=False) as store:
        stages = NodeStages(
            node_id=NodeId(f"node-{index}"),
            name=f"node-{index}",
            store=store,
            supervisor=supervisor,
            inventory=inventory,
            parts=StageParts(inventory),
            clock=virtual_instant,
            budget=node_budget,
            trust=trust,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            await nursery.start(inventory.run)
            await nursery.start(stages.run)
            yield stages
            await stages.stop_all(5.0)
            nursery.cancel_scope.cancel()


async def claim(stages: NodeStages, plan: Plan, term: int) -> ClaimAnswer:
    answer = await stages.request(
        ClaimCoordinator(plan.claim(term)), origin=Origin.NETWORK
    )
    assert isinstance(answer, ClaimAnswer)
    return answer


async def load(stages: NodeStages, plan: Plan, term: int, index: int) -> StageReady:
    wanted = plan.load(term, index)
    reply = await stages.request(
        wanted, origin=Origin.NETWORK, settings=plan.settings()
    )
    assert isinstance(reply, StageReady), reply
    assert echo_differences(wanted, reply.status) == ()
    return reply


async def stop(stages: NodeStages, wanted: LoadStage) -> None:
    await stages.request(
        StopStage(
            key=wanted.key,
            stage=wanted.stage,
            coordinator_term=wanted.coordinator_term,
            shutdown_generation=wanted.shutdown_generation,
        ),
        origin=Origin.NETWORK,
    )


async def until(
    stages: NodeStages, is_so: Callable[[StageReport], bool]
) -> StageReport:
    while True:
        changed = stages.changed()
        for report in stages.report().stages:
            if is_so(report):
                return report
        await changed.wait()


def port_of(ready: StageReady) -> int:
    return int(ready.status.bind_addr.rpartition(":")[2])


async def complete(url: str) -> bytes:
    """Ask for a completion, as a client on a bare socket."""
    host, _, port = url.removeprefix("http://").removesuffix("/v1").rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(BODY)}"
        "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    )
    async with stream:
        await stream.send_all(head.encode() + BODY)
        return b"".join([piece async for piece in stream])


@contextlib.asynccontextmanager
async def chain(
    folder: Path, plan: Plan, term: int = 10
) -> AsyncIterator[tuple[NodeStages, NodeStages, str]]:
    """Two nodes with a served chain, and the address of its stage 0."""
    async with node(folder, plan, 0) as first, node(folder, plan, 1) as last:
        url = await serve(first, last, plan, term)
        yield first, last, url


async def serve(first: NodeStages, last: NodeStages, plan: Plan, term: int) -> str:
    await claim(first, plan, term)
    await claim(last, plan, term)
    ready = await load(last, plan, term, 1)
    plan = attrs.evolve(plan, ports=(0, port_of(ready)))
    await load(first, plan, term, 0)
    proven = await until(first, lambda report: report.health == "ok")
    assert proven.openai_base_url is not None
    return proven.openai_base_url


async def test_a_chain_over_two_nodes_proves_itself_and_answers(
    tmp_path: Path, plan: Plan
) -> None:
    async with chain(tmp_path, plan) as (first, last, url):
        answer = await complete(url)
        reports = [*first.report().stages, *last.report().stages]

    assert b"HTTP/1.1 200 " in answer
    assert b'"completion_tokens":4' in answer.replace(b" ", b"")
    assert [report.status.state for report in reports] == [StageState.READY] * 2
    for report in reports:
        assert report.loaded_bytes == report.total_bytes > 0
        assert report.pid is not None


def trusting(own: Identity, nodes: list[Identity]) -> ChainTrust:
    known = {node.node_id: node.certificate_pem for node in nodes}
    return ChainTrust(own=own.own_certificate, certificate_of=known.get)


async def test_a_chain_off_loopback_answers_the_same_under_tls(
    tmp_path: Path, plan: Plan
) -> None:
    """The unspecified address reaches this machine and is no loopback address."""
    (tmp_path / "plain").mkdir()
    async with chain(tmp_path / "plain", plan) as (_first, _last, url):
        plain = json.loads((await complete(url)).partition(b"\r\n\r\n")[2])
    (tmp_path / "keys").mkdir()
    nodes = identities(tmp_path / "keys", 3)
    ids = tuple(str(node.node_id) for node in nodes)
    far = attrs.evolve(plan, host="0.0.0.0", node_ids=ids)
    async with (
        node(tmp_path, far, 0, trusting(nodes[0], nodes)) as first,
        node(tmp_path, far, 1, trusting(nodes[1], nodes)) as last,
    ):
        url = await serve(first, last, far, 10)
        answer = json.loads((await complete(url)).partition(b"\r\n\r\n")[2])
        (report,) = last.report().stages
        await speaks_tls_only(report)
    assert answer["choices"] == plain["choices"]


async def speaks_tls_only(report: StageReport) -> None:
    port = int(report.status.bind_addr.rpartition(":")[2])
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"TUAS" + bytes(36))
        assert await stream.receive_some(100) == NO_TLS_ALERT


async def test_a_killed_stage_is_explained_restarted_and_the_chain_heals(
    tmp_path: Path, plan: Plan
) -> None:
    async with chain(tmp_path, plan) as (first, last, url):
        (before,) = last.report().stages
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        failed = await until(last, lambda r: r.status.state is StageState.FAILED)
        await until(first, lambda report: report.health != "ok")
        again = await until(last, lambda r: r.status.state is StageState.READY)
        await until(first, lambda report: report.health == "ok")
        answer = await complete(url)

    assert "was ended by SIGKILL" in failed.reason
    assert again.restarts == 1
    assert again.status.bind_addr == before.status.bind_addr
    assert b"HTTP/1.1 200 " in answer


async def test_a_newer_claim_ends_the_old_process_before_it_is_answered(
    tmp_path: Path, plan: Plan
) -> None:
    async with node(tmp_path, plan, 1) as last:
        await claim(last, plan, 10)
        await load(last, plan, 10, 1)
        (report,) = last.report().stages
        assert report.pid is not None
        with trio.fail_after(10):
            answer = await claim(last, plan, 11)
        is_reaped = not await trio.Path(f"/proc/{report.pid}").exists()
        await load(last, plan, 11, 1)

    assert isinstance(answer.verdict, Superseded)
    assert is_reaped


async def test_a_stage_that_cannot_load_says_why_in_its_own_words(
    tmp_path: Path, plan: Plan
) -> None:
    """The port of the next stage is a lie; the stage itself finds out about its key."""
    bad = attrs.evolve(plan, run_key="zz" * 32)
    async with node(tmp_path, plan, 1) as last:
        await claim(last, plan, 10)
        reply = await last.request(
            plan.load(10, 1), origin=Origin.NETWORK, settings=bad.settings()
        )

    assert isinstance(reply, LoadFailed)
    assert "run key" in reply.refusal.text


@pytest.mark.watchdog(600 if SOAK else 240)
async def test_many_starts_and_stops_leave_nothing_behind(
    tmp_path: Path, plan: Plan
) -> None:
    async with node(tmp_path, plan, 1) as last:
        await cycle(last, plan, 10)
        before = Census.take()
        for number in range(CYCLES):
            await cycle(last, plan, 11 + number)
        left = before.left_over(within_s=5.0)
        assert last.report().stages == ()

    assert left == []


async def cycle(stages: NodeStages, plan: Plan, term: int) -> None:
    await claim(stages, plan, term)
    await load(stages, plan, term, 1)
    await stop(stages, plan.load(term, 1))
