"""`skippyd bench`: progress on standard error, one line of JSON at the end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skippyd.cli.bench import bench_document
from skippyd.cli.main import main
from skippyd.errors import ExitCode
from skippyd.proving import bench as proving_bench
from skippyd.proving.bench import BenchPlan, Figure, SpeedFigures, StageOverhead
from skippyd.units import MIB


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

native = pytest.mark.native

SPEED = SpeedFigures(
    engine_ratio=Figure(median=0.98765, lowest=0.9, highest=1.1),
    decode_ratio=Figure(median=0.95, lowest=0.94321, highest=0.97),
    boundary_us_p50=Figure(median=61.26, lowest=58.0, highest=70.04),
    boundary_us_p99=Figure(median=150.0, lowest=120.0, highest=900.0),
    cut=3,
)
OVERHEADS = [
    StageOverhead(model="model", stage_index=0, overhead_bytes=40 * MIB),
    StageOverhead(model="model", stage_index=1, overhead_bytes=42 * MIB),
    StageOverhead(model="q4_0", stage_index=0, overhead_bytes=41 * MIB),
    StageOverhead(model="q4_0", stage_index=1, overhead_bytes=43 * MIB),
]
KEYS = {
    "schema",
    "machine",
    "model",
    "threads_per_stage",
    "repetitions",
    "cuts",
    "engine_ratio",
    "engine_ratio_spread",
    "decode_ratio",
    "decode_ratio_spread",
    "boundary_us_p50",
    "boundary_us_p50_spread",
    "boundary_us_p99",
    "boundary_us_p99_spread",
    "stage_overhead_bytes",
    "stage_overhead_of",
}


@pytest.fixture(autouse=True)
def switch_interval_as_before() -> Iterator[None]:
    """The command shortens the interpreter's switch interval."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[BenchPlan]:
    """The plans that were measured, by measures that take no time."""
    plans: list[BenchPlan] = []

    def measure_speed(plan: BenchPlan, on_round: Callable[[str], None]) -> SpeedFigures:
        plans.append(plan)
        for number in range(plan.repetitions):
            on_round(f"round {number + 1}")
        return SPEED

    def measure_overhead(plan: BenchPlan) -> list[StageOverhead]:
        plans.append(plan)
        return OVERHEADS

    monkeypatch.setattr(proving_bench, "measure_speed", measure_speed)
    monkeypatch.setattr(proving_bench, "measure_overhead", measure_overhead)
    return plans


@native
def test_the_document_has_the_contracts_keys() -> None:
    plan = BenchPlan(model_path=Path("some/m.gguf"), repetitions=5, threads_per_stage=2)
    document = bench_document(plan, SPEED, OVERHEADS)
    assert document.keys() == KEYS
    assert document["schema"] == "skippy.bench/1"
    assert document["model"] == "m.gguf"
    assert (document["threads_per_stage"], document["repetitions"]) == (2, 5)
    assert document["cuts"] == {"decode_ratio": [3], "stage_overhead_bytes": [3]}
    machine = document["machine"]
    assert isinstance(machine, dict)
    assert machine["cpus"] >= 1
    assert machine["llama_cpp_build"].startswith("llama.cpp")


@native
def test_each_figure_is_its_median_beside_its_spread() -> None:
    plan = BenchPlan(model_path=Path("m.gguf"), repetitions=5)
    document = bench_document(plan, SPEED, OVERHEADS)
    assert document["engine_ratio"] == 0.9877
    assert document["engine_ratio_spread"] == [0.9, 1.1]
    assert document["decode_ratio_spread"] == [0.9432, 0.97]
    assert document["boundary_us_p50"] == 61.3
    assert document["boundary_us_p50_spread"] == [58.0, 70.0]
    assert document["boundary_us_p99"] == 150.0
    assert document["stage_overhead_bytes"] == [40 * MIB, 42 * MIB, 41 * MIB, 43 * MIB]
    assert document["stage_overhead_of"] == [
        "model stage-0",
        "model stage-1",
        "q4_0 stage-0",
        "q4_0 stage-1",
    ]


@native
def test_progress_is_told_and_the_last_line_is_json(
    mute_path: Path, measured: list[BenchPlan], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--repetitions", "2", "--threads-per-stage", "2"]
    assert main(["bench", "--model", str(mute_path), *flags]) == ExitCode.DONE
    said = capsys.readouterr()
    [line] = said.out.splitlines()
    document: dict[str, Any] = json.loads(line)
    assert document.keys() == KEYS
    assert (document["repetitions"], document["model"]) == (2, "mute.gguf")
    plan = BenchPlan(model_path=mute_path, repetitions=2, threads_per_stage=2)
    assert measured == [plan, plan]
    assert "round 1\n  round 2\n" in said.err
    assert "q4_0 stage-1: 43.0 MiB beyond tensors and KV" in said.err


@native
@pytest.mark.usefixtures("measured")
def test_json_alone_says_nothing_else(
    mute_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--model", str(mute_path), "--json"]) == ExitCode.DONE
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out)["repetitions"] == 12


@pytest.mark.parametrize("count", ["0", "-3"])
def test_less_than_one_round_is_a_usage_error(
    mute_path: Path,
    measured: list[BenchPlan],
    capsys: pytest.CaptureFixture[str],
    count: str,
) -> None:
    flags = ["--model", str(mute_path), "--repetitions", count]
    assert main(["bench", *flags]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"skippyd: --repetitions is {count}; 1 is the least\n"
    assert measured == []


def test_a_count_that_is_no_number_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--repetitions", "many"])
    assert ended.value.code == ExitCode.USAGE
    assert "--repetitions" in capsys.readouterr().err
