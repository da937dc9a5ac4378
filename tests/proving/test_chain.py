"""Chains of real stage processes: started together, gone together, resumed exactly."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.wire.sampling import SamplingBlock
from skippyd.errors import RefusedError, StageFailureError, UsageError
from skippyd.proving.chain import (
    ChainPlan,
    LocalChain,
    bounds_of_cuts,
    close_driver,
    even_bounds,
)
from skippyd.proving.stage_process import StageProcessError
from support import faulty_stage


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.model.gguf_model import GgufModel


def plan_of(
    path: Path, bounds: tuple[int, ...], *, chunk: int = 64, threads: int = 1
) -> ChainPlan:
    return ChainPlan(
        model_path=path,
        model_id="test",
        bounds=bounds,
        ctx_size=256,
        chunk=chunk,
        threads_per_stage=threads,
    )


# ---- bounds ------------------------------------------------------------------------


def test_cuts_become_bounds() -> None:
    assert bounds_of_cuts((), 30) == (0, 30)
    assert bounds_of_cuts((1, 29), 30) == (0, 1, 29, 30)


@pytest.mark.parametrize("cut", [-1, 0, 30, 31])
def test_a_cut_out_of_range_is_refused_by_name(cut: int) -> None:
    with pytest.raises(RefusedError, match=rf"cut {cut} is not offered: .*1 to 29"):
        bounds_of_cuts((cut,), 30)


@pytest.mark.parametrize("cuts", [(5, 5), (9, 5)])
def test_cuts_out_of_order_are_a_usage_error(cuts: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="write cuts in order"):
        bounds_of_cuts(cuts, 30)


@pytest.mark.parametrize("layers", [1, 7, 30])
def test_even_ranges_differ_by_one_layer_at_most(layers: int) -> None:
    for stages in range(1, layers + 1):
        bounds = even_bounds(stages, layers)
        sizes = {b - a for a, b in itertools.pairwise(bounds)}
        assert (bounds[0], bounds[-1], len(bounds)) == (0, layers, stages + 1)
        assert max(sizes) - min(sizes) <= 1


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"31 stages are not offered.*1 to 30"):
        even_bounds(31, 30)
    with pytest.raises(UsageError, match="0 stages: 1 is the least"):
        even_bounds(0, 30)


def test_the_reference_is_told_what_the_stages_are_told() -> None:
    plan = plan_of(Path("/m.gguf"), (0, 2, 6), chunk=48, threads=3)
    settings = plan.settings()
    assert (settings.ctx_size, settings.n_threads) == (256, 3)
    assert (settings.n_batch, settings.n_ubatch) == (48, 48)
    assert (settings.lane_count, settings.kv_unified) == (4, True)


# ---- running chains ----------------------------------------------------------------

native = pytest.mark.native
slow = pytest.mark.slow
process = pytest.mark.process


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_chain_starts_answers_and_leaves_nothing(talking: GgufModel) -> None:
    shares: dict[int, list[float]] = {0: [], 1: [], 2: []}
    with LocalChain.start(
        plan_of(talking.path, (0, 2, 4, 6)),
        on_progress=lambda index, share: shares[index].append(share),
    ) as chain:
        # The documents hold the key of the run: they are gone by now.
        assert not Path(chain._folder.name).exists()
        assert [values[-1] for values in shares.values()] == [1.0, 1.0, 1.0]
        driver = chain.driver()
        driver.prefill([5, 6, 7])
        driver.configure(None)
        tokens = [driver.decode(8), driver.decode(9)]
        driver.stop()
        close_driver(driver)
        assert all(0 <= token < 264 for token in tokens)
        assert chain.death() is None
        figures = [stage.status() for stage in chain.stages]
        assert [figure["prefill_tokens"] for figure in figures] == [3, 3, 3]
        pids = [stage.process.pid for stage in chain.stages]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_stages_that_cannot_start_take_the_others_with_them(
    tmp_path: Path, talking: GgufModel
) -> None:
    """Here the file is gone, and every stage says so in one line."""
    path = tmp_path / "m.gguf"
    path.write_bytes(talking.path.read_bytes()[:1000])
    with pytest.raises(StageProcessError) as caught:
        LocalChain.start(plan_of(path, (0, 2, 4, 6)))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [name for name in os.listdir(tmp_path) if name != "m.gguf"]  # noqa: PTH208


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_stage_that_ends_under_way_is_named(talking: GgufModel) -> None:
    command = faulty_stage.command("kill", "stage-1")
    with LocalChain.start(
        plan_of(talking.path, (0, 2, 4, 6)), command=command
    ) as chain:
        driver = chain.driver(reply_timeout_s=15)
        driver.prefill([5, 6, 7])
        with pytest.raises(StageFailureError):
            driver.configure(None)
        close_driver(driver)
        death = chain.death()
        assert death is not None
        first_line = str(death).splitlines()[0]
        assert first_line.startswith("stage-1 (pid ")
        assert "was ended by SIGKILL" in first_line


# ---- resuming (a draw depends on its position alone) -----------------------------


def generated(
    plan: ChainPlan, sampling: SamplingBlock, told: Sequence[int], count: int
) -> list[int]:
    """Tokens that a new chain of processes draws after what it is told."""
    with LocalChain.start(plan) as chain:
        driver = chain.driver()
        driver.prefill(told[:-1])
        driver.configure(sampling)
        tokens = [told[-1]]
        for _ in range(count):
            tokens.append(driver.decode(tokens[-1]))
        driver.stop()
        close_driver(driver)
    return tokens[1:]


DRAWN = 40
KEPT = (1, 7, 39)


def check_resumed(
    plan: ChainPlan, sampling: SamplingBlock, prompt: Sequence[int]
) -> list[int]:
    whole = generated(plan, sampling, prompt, DRAWN)
    for kept in KEPT:
        rest = generated(plan, sampling, [*prompt, *whole[:kept]], DRAWN - kept)
        assert rest == whole[kept:]
    return whole


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_resumed_generation_goes_on_as_it_would_have(talking: GgufModel) -> None:
    """Temperature 1 and penalties, on a new chain from the first 1, 7 and 39 tokens.

    Chunks of 1: prefilled in one chunk, history gives other bits than token by token.
    """
    plan = plan_of(talking.path, (0, 2, 6), chunk=1)
    sampling = SamplingBlock(
        flags=1,
        temperature=1.0,
        seed=77,
        top_k=40,
        frequency_penalty=0.5,
        xtc_probability=0.3,
        xtc_threshold=0.02,
    )
    prompt = list(b"the chain of stages ")
    whole = check_resumed(plan, sampling, prompt)
    assert len(set(whole)) > 10
    again = generated(plan, attrs.evolve(sampling, seed=78), prompt, DRAWN)
    assert again != whole


@native
@slow
@process
@pytest.mark.watchdog(120)
def test_a_real_model_resumes_exactly(smollm2_path: Path) -> None:
    plan = plan_of(smollm2_path, (0, 15, 30))
    sampling = SamplingBlock(flags=1, temperature=1.0, seed=20)
    prompt = [1, 4093, 198, 19556, 2, 198, 1, 520, 9531, 198]
    whole = check_resumed(plan, sampling, prompt)
    assert len(set(whole)) > 15


def test_documents_are_strict_json(tmp_path: Path) -> None:
    """The stages read them with the checks of any configuration."""
    from skippyd.config.stage import load_stage_config  # noqa: PLC0415 - only here
    from skippyd.proving.chain import _write_documents  # noqa: PLC0415 - only here

    plan = plan_of(tmp_path / "m.gguf", (0, 2, 6))
    _write_documents(tmp_path, plan, [4001, 4002], bytes(range(32)))
    for index in range(2):
        path = tmp_path / f"stage-{index}.json"
        config = load_stage_config(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert (config.layer_start, config.layer_end) == plan.bounds[index : index + 2]
        assert config.transport_auth == bytes(range(32))
    assert json.loads((tmp_path / "topology.json").read_text())
