from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from skippyctl.main import main
from support.nodes_files import BASE, QWEN, nodes, write_nodes
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from pathlib import Path


@attrs.frozen(kw_only=True)
class Result:
    """What the program said and how it ended."""

    returncode: int
    stdout: str
    stderr: str


Plan = Callable[..., Result]


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Run `skippyctl plan` in this process, standard output no terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def run_plan(*words: str | Path, **environment: str) -> Result:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        try:
            code = main(["plan", *map(str, words)])
        except SystemExit as ended:  # argparse ends by itself
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Result(returncode=code, stdout=captured.out, stderr=captured.err)

    return run_plan


def document(result: Result) -> dict[str, Any]:
    """The last line of standard output, which is all there is."""
    lines = result.stdout.splitlines()
    assert len(lines) == 1, result
    read: dict[str, Any] = json.loads(lines[0])
    assert read["schema"] == "skippy.plan/1"
    return read


@pytest.mark.parametrize(
    ("sizes", "context", "counts"),
    [
        (["80GiB"] * 4, 65_536, [16, 16, 15, 15]),
        (["80GiB"] * 5, 262_144, [13, 13, 12, 12, 12]),
        (["80GiB"] * 10, 262_144, [13, 13, 12, 12, 12]),
        (["80GiB"] * 4 + ["64GiB"], 262_144, [13, 13, 13, 13, 10]),
    ],
)
def test_the_published_outcomes_come_out(
    plan: Plan, tmp_path: Path, sizes: list[str], context: int, counts: list[int]
) -> None:
    result = plan("--nodes", write_nodes(tmp_path, QWEN + nodes(*sizes)), "--json")

    assert result.returncode == 0
    assert result.stderr == ""
    answer = document(result)
    assert answer["context_length"] == context
    assert answer["lanes"] == 4
    assert [s["layer_end"] - s["layer_start"] for s in answer["stages"]] == counts


def test_four_nodes_of_70_gib_are_refused_with_numbers(
    plan: Plan, tmp_path: Path
) -> None:
    result = plan(
        "--nodes", write_nodes(tmp_path, QWEN + nodes(*["70GiB"] * 4)), "--json"
    )

    assert result.returncode == 6
    answer = document(result)
    assert answer["refused"] == "NoValidTopology"
    assert answer["minimum_context"] == 65_536
    assert answer["missing_bytes"] == 23_626_025_008
    assert answer["one_more_node_bytes"] == 31_381_329_264
    assert len(answer["shortfalls"]) == 4


@pytest.mark.parametrize(
    ("flags", "name", "number"),
    [
        (["--context", "32768"], "ContextBelowMinimum", ("minimum", 65_536)),
        (["--context", "262145"], "ContextExceedsNative", ("native", 262_144)),
        (["--lanes", "0"], "ZeroParallelLanes", ("schema", "skippy.plan/1")),
        (
            ["--lanes", "257"],
            "ParallelLanesExceedSequenceCapacity",
            ("maximum", 256),
        ),
        (["--max-vram", "8GiB"], "NoValidTopology", ("node_count", 2)),
    ],
)
def test_a_refusal_is_exit_6_and_a_document(
    plan: Plan, tmp_path: Path, flags: list[str], name: str, number: tuple[str, object]
) -> None:
    path = write_nodes(tmp_path, BASE + nodes("80GiB", "80GiB"))
    result = plan("--nodes", path, "--json", *flags)

    assert result.returncode == 6
    answer = document(result)
    assert answer["refused"] == name
    assert answer["message"]
    assert answer[number[0]] == number[1]


def test_flags_override_the_file(plan: Plan, tmp_path: Path) -> None:
    text = BASE + "[plan]\ncontext = 131072\nlanes = 2\ntarget_tpot_ms = 1\n"
    path = write_nodes(tmp_path, text + nodes("80GiB", "80GiB", more="latency_ms = 5"))
    written = document(plan("--nodes", path, "--json"))
    flagged = document(
        plan(
            *("--nodes", path, "--json", "--context", "65536", "--lanes", "3"),
            *("--target-tpot-ms", "10.5", "--max-vram", "24GiB"),
        )
    )

    assert (written["context_length"], written["lanes"]) == (131_072, 2)
    assert (len(written["stages"]), written["target_met"]) == (1, False)
    assert (flagged["context_length"], flagged["lanes"]) == (65_536, 3)
    assert (len(flagged["stages"]), flagged["target_met"]) == (2, True)
    assert flagged["estimated_decode_network_ms_per_token"] == 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BASE + nodes("80GiB", more="headrom = 3"), "did you mean headroom?"),
        (BASE + nodes("-4GiB"), "is not a size"),
        (BASE + nodes("4000TiB"), "is outside 1 to"),
        (BASE + nodes("8GiB") + nodes("8GiB"), "nodes[1].id: n0 is the id of nodes[0]"),
        (BASE, "there is none; write at least one [[nodes]]"),
        (nodes("8GiB"), "there is no model; write [model] or give --model PATH"),
        (BASE + nodes("8GiB", more="latency_ms = nan"), "nodes[0].latency_ms"),
        ("[model", "is not valid TOML"),
        (
            BASE + '[plan]\ncache_type_k = "f16"\n' + nodes("8GiB"),
            "plan.cache_type_k: kv_bytes_per_token says it already",
        ),
        ('[model]\npath = "missing.gguf"\n' + nodes("8GiB"), "missing.gguf"),
    ],
)
def test_a_wrong_file_is_exit_2_with_its_place(
    plan: Plan, tmp_path: Path, text: str, said: str
) -> None:
    path = write_nodes(tmp_path, text)
    result = plan("--nodes", path, "--json")

    assert result.returncode == 2
    assert result.stdout == ""
    assert said in result.stderr
    assert all(
        line.startswith("skippyctl plan: ") for line in result.stderr.splitlines()
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "--nodes"),
        (["--nodes", "no-such-file.toml"], "no-such-file.toml: cannot be read"),
        (["--nodes", "x", "--context", "-1"], "--context"),
        (["--nodes", "x", "--lanes", "many"], "'many' is not a whole number"),
        (["--nodes", "x", "--target-tpot-ms", "nan"], "'nan' is not a number of milli"),
        (["--nodes", "x", "--target-tpot-ms", "soon"], "'soon' is not a number of mil"),
        (["--nodes", "x", "--color", "pink"], "--color"),
        (["--nodes", "x", "--verbose"], "--verbose"),
    ],
)
def test_wrong_flags_are_exit_2(plan: Plan, flags: list[str], said: str) -> None:
    result = plan(*flags)

    assert result.returncode == 2
    assert result.stdout == ""
    assert said in result.stderr


@pytest.mark.parametrize("size", ["80 gigs", "0", "-3", "1e3"])
def test_a_wrong_max_vram_is_exit_2(plan: Plan, tmp_path: Path, size: str) -> None:
    path = write_nodes(tmp_path, BASE + nodes("80GiB"))
    result = plan("--nodes", path, f"--max-vram={size}")

    assert result.returncode == 2
    assert "--max-vram" in result.stderr


def test_a_model_file_is_read_where_the_nodes_file_says(
    plan: Plan, tmp_path: Path
) -> None:
    write_random_model(tmp_path / "tiny.gguf", RandomModel())
    text = '[model]\npath = "tiny.gguf"\n[plan]\nmin_nodes = 2\n'
    path = write_nodes(tmp_path, text + nodes("64MiB", "64MiB"))

    answer = document(plan("--nodes", path, "--json"))

    assert answer["model_id"] == "tiny"
    assert answer["context_length"] == 2048
    assert [(s["layer_start"], s["layer_end"]) for s in answer["stages"]] == [
        (0, 3),
        (3, 6),
    ]


def test_model_overrides_the_section(plan: Plan, tmp_path: Path) -> None:
    model = write_random_model(tmp_path / "tiny.gguf", RandomModel())
    path = write_nodes(tmp_path, QWEN + nodes("64MiB"))

    answer = document(plan("--nodes", path, "--model", model, "--json"))

    assert answer["model_id"] == "tiny"
    assert answer["stages"][0]["layer_end"] == 6


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all" * 9])
def test_a_broken_model_file_is_exit_2(
    plan: Plan, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "broken.gguf").write_bytes(content)
    path = write_nodes(tmp_path, nodes("64MiB"))

    result = plan("--nodes", path, "--model", tmp_path / "broken.gguf", "--json")

    assert result.returncode == 2
    assert "broken.gguf" in result.stderr
    assert result.stdout == ""


def test_a_pipe_gets_plain_text_without_boxes_or_cuts(
    plan: Plan, tmp_path: Path
) -> None:
    text = QWEN + nodes(*["80GiB"] * 5).replace('"n3"', f'"{"long-name-" * 12}"')
    result = plan("--nodes", write_nodes(tmp_path, text), "--explain", COLUMNS="40")

    assert result.returncode == 0
    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout
    assert "long-name-" * 12 in result.stdout
    assert "context: 262,144 tokens: the model's native context" in result.stdout
    assert "candidates:" in result.stdout


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        (["--color", "always"], {}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        ([], {}, False),
    ],
)
def test_colours_are_there_when_asked_for(
    plan: Plan,
    tmp_path: Path,
    flags: list[str],
    environment: dict[str, str],
    expected: bool,
) -> None:
    path = write_nodes(tmp_path, QWEN + nodes(*["80GiB"] * 5))
    result = plan("--nodes", path, *flags, **environment)
    assert ("\x1b[" in result.stdout) is expected


def test_a_memory_map_is_written_beside_the_answer(plan: Plan, tmp_path: Path) -> None:
    path = write_nodes(tmp_path, QWEN + nodes(*["80GiB"] * 5))
    result = plan("--nodes", path, "--json", "--memory-map", tmp_path / "map.svg")

    assert result.returncode == 0
    document(result)
    assert (tmp_path / "map.svg").read_text().startswith("<svg ")


def test_a_memory_map_that_cannot_be_written_is_exit_2(
    plan: Plan, tmp_path: Path
) -> None:
    path = write_nodes(tmp_path, QWEN + nodes(*["80GiB"] * 5))
    result = plan("--nodes", path, "--memory-map", tmp_path / "no" / "map.svg")

    assert result.returncode == 2
    assert "cannot be written: No such file or directory" in result.stderr


def program(*words: str, stdout: int) -> subprocess.CompletedProcess[str]:
    """Run `skippyctl` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "skippyctl", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=20,
    )


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(("size", "code"), [("80GiB", 0), ("70GiB", 6), ("70", 2)])
def test_the_process_ends_with_the_code(tmp_path: Path, size: str, code: int) -> None:
    path = write_nodes(tmp_path, QWEN + nodes(*[size] * 4))
    result = program("plan", "--nodes", str(path), "--json", stdout=subprocess.PIPE)

    assert result.returncode == code
    assert bool(result.stderr) == (code == 2)
    assert len(result.stdout.splitlines()) == (code != 2)


@pytest.mark.process
@pytest.mark.slow
def test_a_closed_pipe_is_no_complaint(tmp_path: Path) -> None:
    path = write_nodes(tmp_path, QWEN + nodes(*["80GiB"] * 5))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = program("plan", "--nodes", str(path), stdout=writer)
    finally:
        os.close(writer)

    assert result.stderr == ""
    assert result.returncode == 0


@pytest.mark.process
@pytest.mark.slow
def test_help_imports_neither_rich_nor_cattrs_nor_the_planner() -> None:
    script = (
        "import sys\n"
        "from skippyctl.main import main\n"
        "try:\n    main(['plan', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({m.split('.')[0] for m in sys.modules}"
        " & {'rich', 'cattrs', 'attrs', 'trio', 'numpy'}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert result.stdout.splitlines()[-1] == "[]"
    assert "--memory-map" in result.stdout
