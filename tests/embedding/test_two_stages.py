"""The public API alone: a two-stage chain inside one program."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

import skippyd.embedding
from skippyd.cli.stage_main import first_error
from skippyd.embedding import (
    BinaryStageOptions,
    EmbeddedOpenAiArgs,
    EmbeddedServerHandle,
    Endpoint,
    SkippyRuntimeHandle,
    StageConfig,
    StageHttpOptions,
    start_binary_stage,
    start_embedded_openai,
    start_stage_http,
)
from skippyd.embedding import options as embedding_options
from skippyd.embedding import runtime as embedding_runtime
from skippyd.embedding import servers as embedding_servers
from skippyd.errors import ConfigError
from skippyd.proving.chain import ChainPlan
from support.chat_call import Answer, Call, get
from support.cli_chain import SPEAKING
from support.random_models import write_random_model
from support.stage_cli import free_port
from support.stage_room import becomes, identities, tls_tables


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from skippyd.config.stage import StageTlsConfig

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.watchdog(20)]

ANY_PORT = Endpoint("127.0.0.1", 0)


@pytest.fixture
def plan(tmp_path: Path) -> ChainPlan:
    """Two stages of a model that speaks."""
    model = write_random_model(tmp_path / "m.gguf", SPEAKING)
    return ChainPlan(model_path=model, model_id="m", bounds=(0, 3, 6), ctx_size=512)


def whole(plan: ChainPlan) -> StageConfig:
    """One stage that holds the whole model."""
    plan = attrs.evolve(plan, bounds=(0, 6))
    (config,) = plan.configs([free_port()], bytes(32))
    return config


@contextlib.asynccontextmanager
async def two_stages(
    plan: ChainPlan, tables: Sequence[StageTlsConfig | None] = (None, None)
) -> AsyncIterator[tuple[EmbeddedServerHandle, EmbeddedServerHandle]]:
    """The chain, the last stage started first."""
    ports = [free_port(), free_port()]
    first, last = (
        attrs.evolve(config, tls=table)
        for config, table in zip(
            plan.configs(ports, bytes(range(32))), tables, strict=True
        )
    )
    topology = plan.topology(ports)
    async with trio.open_nursery() as nursery:
        tail: EmbeddedServerHandle = await nursery.start(
            start_binary_stage, BinaryStageOptions(last, topology=topology)
        )
        head: EmbeddedServerHandle = await nursery.start(
            start_binary_stage,
            BinaryStageOptions(
                first,
                topology=topology,
                openai=EmbeddedOpenAiArgs(bind_addr=ANY_PORT),
            ),
        )
        yield head, tail
        await head.shutdown()
        await tail.shutdown()


async def ask(handle: EmbeddedServerHandle, prompt: str) -> Answer:
    assert handle.openai_bind_addr is not None
    port = handle.openai_bind_addr.port

    def call() -> Answer:
        with Call.send(port, {"prompt": prompt, "max_tokens": 8}) as sent:
            return sent.answer()

    return await trio.to_thread.run_sync(call)


def is_green(handle: EmbeddedServerHandle) -> bool:
    health = handle.status().health
    return health is not None and health.status == "ok"


async def test_two_stages_of_one_program_answer_and_hold_different_tensors(
    plan: ChainPlan,
) -> None:
    async with two_stages(plan) as (head, tail):
        await becomes(lambda: is_green(head), "green")
        answer = await ask(head, "ab")
        assert answer.status == 200
        ours = set(head.status().runtime.resident_tensors)
        theirs = set(tail.status().runtime.resident_tensors)
        assert "blk.0.attn_q.weight" in ours - theirs
        assert "blk.5.attn_q.weight" in theirs - ours
        assert (ours & theirs) <= {"token_embd.weight", "output_norm.weight"}
        assert tail.status().lanes == 1
        assert tail.status().messages > 3
        assert head.runtime.session_statistics().sessions == 0
        assert head.openai_base_url == f"http://{head.openai_bind_addr}/v1"


@pytest.mark.parametrize("is_under_tls", [False, True], ids=["plain", "tls"])
async def test_a_chain_says_what_the_whole_model_says(
    plan: ChainPlan, tmp_path: Path, is_under_tls: bool
) -> None:
    tables = tls_tables(identities(tmp_path, 2)) if is_under_tls else (None, None)
    async with two_stages(plan, tables) as (head, _tail):
        await becomes(lambda: is_green(head), "green")
        split = (await ask(head, "the rain in spain")).document["choices"]
    async with trio.open_nursery() as nursery:
        args = EmbeddedOpenAiArgs(bind_addr=ANY_PORT, config=whole(plan))
        handle = await nursery.start(start_embedded_openai, args)
        await becomes(lambda: is_green(handle), "green")
        assert (await ask(handle, "the rain in spain")).document["choices"] == split
        await handle.shutdown()


async def test_a_runtime_stays_the_hosts_and_ends_once(plan: ChainPlan) -> None:
    config = whole(plan)
    runtime = await SkippyRuntimeHandle.load(config)
    status = runtime.status()
    assert (status.layer_start, status.layer_end) == (0, 6)
    assert status.captured_at_unix_ms > 1_600_000_000_000
    async with trio.open_nursery() as nursery:
        options = StageHttpOptions(config=config, bind_addr=ANY_PORT, runtime=runtime)
        shown: EmbeddedServerHandle = await nursery.start(start_stage_http, options)
        port = shown.bind_addr.port
        page = await trio.to_thread.run_sync(get, port, "/v1/status")
        assert page.document["layer_end"] == 6
        await shown.shutdown()
        await shown.shutdown()
        args = EmbeddedOpenAiArgs(bind_addr=ANY_PORT, config=config, runtime=runtime)
        handle: EmbeddedServerHandle = await nursery.start(start_embedded_openai, args)
        await becomes(lambda: is_green(handle), "green: the runtime still works")
        await handle.shutdown()
    await runtime.shutdown()
    await runtime.shutdown()
    assert runtime.status().statistics.sessions == 0


async def test_progress_is_told_while_loading(plan: ChainPlan) -> None:
    told: list[float] = []
    runtime = await SkippyRuntimeHandle.load(whole(plan), progress=told.append)
    await runtime.shutdown()
    assert told
    assert math.isclose(told[-1], 1.0)
    assert told == sorted(told)


async def test_what_contradicts_itself_is_refused_before_loading(
    plan: ChainPlan,
) -> None:
    ports = [free_port(), free_port()]
    first, last = plan.configs(ports, bytes(32))
    openai = EmbeddedOpenAiArgs(bind_addr=ANY_PORT)
    with pytest.raises(ConfigError, match="only stage 0 serves OpenAI"):
        await start_binary_stage(BinaryStageOptions(last, openai=openai))
    with pytest.raises(ConfigError, match="one of several stages"):
        await start_embedded_openai(attrs.evolve(openai, config=first))
    with pytest.raises(ConfigError, match="needs a config or a runtime"):
        await start_embedded_openai(openai)
    other = attrs.evolve(plan, bounds=(0, 2, 6)).topology(ports)
    with pytest.raises(ConfigError, match="does not match topology entry"):
        await SkippyRuntimeHandle.load(first, other)


@pytest.mark.parametrize("concurrency", [0, 5])
async def test_concurrency_is_within_the_lanes(
    plan: ChainPlan, concurrency: int
) -> None:
    args = EmbeddedOpenAiArgs(
        bind_addr=ANY_PORT, config=whole(plan), generation_concurrency=concurrency
    )
    with pytest.raises(ExceptionGroup) as caught:
        await start_embedded_openai(args)
    refusal = first_error(caught.value)
    assert isinstance(refusal, ConfigError)
    assert "cannot exceed configured lane_count" in str(refusal)


def test_the_public_names_are_these() -> None:
    assert skippyd.embedding.__all__ == [
        "BinaryStageOptions",
        "EmbeddedOpenAiArgs",
        "EmbeddedRuntimeStatus",
        "EmbeddedServerHandle",
        "EmbeddedServerStatus",
        "Endpoint",
        "FlowControl",
        "RuntimeStatistics",
        "SkippyRuntimeHandle",
        "StageConfig",
        "StageHttpOptions",
        "StageTimings",
        "StageTopology",
        "start_binary_stage",
        "start_embedded_openai",
        "start_stage_http",
    ]
    for name in skippyd.embedding.__all__:
        assert hasattr(skippyd.embedding, name)
    homes = (embedding_options, embedding_runtime, embedding_servers)
    assert all(home.__doc__ for home in homes)
