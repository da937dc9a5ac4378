"""The demo answers, proves it, and says in one line what went wrong."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest

from skippyd.cli import demo
from skippyd.cli.main import main
from skippyd.errors import ExitCode
from skippyd.proving.stage_process import StageProcessError
from support import faulty_stage
from support.running_command import RunningCommand, descendants, is_alive


if TYPE_CHECKING:
    from pathlib import Path

native = pytest.mark.native
slow = pytest.mark.slow
process = pytest.mark.process

# Contract, "Command output", and `capture`, which the specification of the engine asks.
KEYS = {
    "schema",
    "model",
    "model_sha256",
    "stages",
    "openai_base_url",
    "prompt_tokens",
    "completion_tokens",
    "finish_reason",
    "sampling",
    "text",
    "unsplit_text",
    "identical_to_unsplit",
    "max_abs_logit_difference",
    "compared_logit_rows",
    "ttft_ms",
    "tpot_ms",
    "unsplit_tpot_ms",
    "capture",
}
STAGE_KEYS = {
    "stage_id",
    "stage_index",
    "layer_start",
    "layer_end",
    "pid",
    "bind_addr",
    "resident_bytes",
    "ms_per_token",
}
ANY_PORT = ("--openai-bind-addr", "127.0.0.1:0")


def once(
    capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and talk of `demo --once --json`."""
    words = [str(word) for word in arguments]
    code = main(["demo", "--once", "--json", *ANY_PORT, *words])
    said = capsys.readouterr()
    [line] = said.out.splitlines()
    document: dict[str, Any] = json.loads(line)
    return code, document, said.err


def check_identical(document: dict[str, Any], stages: list[tuple[int, int]]) -> None:
    assert document["identical_to_unsplit"] is True
    assert document["max_abs_logit_difference"] == 0.0
    assert document["text"] == document["unsplit_text"]
    assert document["compared_logit_rows"] == document["completion_tokens"]
    ranges = [(s["layer_start"], s["layer_end"]) for s in document["stages"]]
    assert ranges == stages


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_the_document_has_the_contracts_keys(
    talking_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, talk = once(
        capsys, "--model", talking_path, "--max-tokens", 9, "--prompt", "the inn"
    )
    assert code == ExitCode.DONE
    assert document.keys() == KEYS
    assert document["schema"] == "skippy.demo/1"
    assert document["capture"] == "native"
    assert all(stage.keys() == STAGE_KEYS for stage in document["stages"])
    check_identical(document, [(0, 2), (2, 4), (4, 6)])
    assert (document["completion_tokens"], document["finish_reason"]) == (9, "length")
    assert document["sampling"]["temperature"] == 0.0
    assert all(stage["resident_bytes"] > 10**6 for stage in document["stages"])
    assert all(stage["ms_per_token"] > 0 for stage in document["stages"])
    assert "? the inn" in talk
    assert "IDENTICAL to the unsplit model: 9 rows of logits" in talk
    assert "stage-1  layers 2-3  " in talk


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_random_bytes_at_a_high_temperature_are_identical_too(
    talking_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tokens are bytes: the text is full of broken UTF-8, on both sides alike."""
    code, document, _ = once(
        capsys,
        *("--model", talking_path, "--cuts", "1,5"),
        *("--temperature", 2, "--max-tokens", 60),
    )
    assert code == ExitCode.DONE
    check_identical(document, [(0, 1), (1, 5), (5, 6)])
    assert len(set(document["text"])) > 8


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_single_stage_is_a_chain_too(
    talking_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, _ = once(
        capsys, "--model", talking_path, "--stages", 1, "--max-tokens", 4
    )
    assert code == ExitCode.DONE
    check_identical(document, [(0, 6)])


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_the_python_capture_is_reported(
    talking_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKIPPY_CAPTURE", "python")
    code, document, _ = once(
        capsys, "--model", talking_path, "--stages", 2, "--max-tokens", 4
    )
    assert code == ExitCode.DONE
    assert document["capture"] == "python"
    check_identical(document, [(0, 3), (3, 6)])


@native
@slow
@process
@pytest.mark.watchdog(90)
@pytest.mark.parametrize(
    ("flags", "stages"),
    [
        ([], [(0, 10), (10, 20), (20, 30)]),
        (["--cuts", "1,29"], [(0, 1), (1, 29), (29, 30)]),
        (["--cuts", "15", "--temperature", "1"], [(0, 15), (15, 30)]),
    ],
)
def test_the_real_model_is_identical(
    smollm2_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    stages: list[tuple[int, int]],
) -> None:
    code, document, _ = once(
        capsys, "--model", smollm2_path, "--max-tokens", 32, *flags
    )
    assert code == ExitCode.DONE
    check_identical(document, stages)
    assert "sky" in document["text"]


def parsed(*arguments: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    words = [str(word) for word in arguments]
    return parser.parse_args(["--once", "--json", *ANY_PORT, *words])


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_one_changed_activation_turns_the_verdict(
    talking_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One stage adds 1e-3 to one float of one token."""
    code = demo.run_demo(
        parsed("--model", talking_path, "--max-tokens", 8),
        command=faulty_stage.command("tamper", "stage-1"),
    )
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert code == ExitCode.FAILED
    assert document["identical_to_unsplit"] is False
    assert document["max_abs_logit_difference"] > 0
    assert "DIFFERS from the unsplit model" in said.err


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_stage_that_dies_is_the_reason_given(talking_path: Path) -> None:
    """Not stage 0's complaint about it."""
    with pytest.raises(StageProcessError, match=r"^stage-1 \(pid \d+\) was ended by"):
        demo.run_demo(
            parsed("--model", talking_path, "--max-tokens", 8),
            command=faulty_stage.command("kill", "stage-1"),
        )


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_prompt_beyond_the_context_is_refused_in_one_line(
    talking_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", str(talking_path), "--ctx-size", "64", "--prompt", "x" * 90]
    assert main(["demo", "--once", *ANY_PORT, *words]) == ExitCode.FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("skippyd: ")
    assert "64" in last


# ---- what is refused before anything starts ------------------------------------------

WRONG = {
    "both": (["--stages", "2", "--cuts", "3"], 2, "--stages or --cuts, not both"),
    "no stage": (["--stages", "0"], 2, "0 stages: 1 is the least"),
    "many stages": (["--stages", "7"], 6, "7 stages are not offered: a model of 6"),
    "cut 0": (["--cuts", "0"], 6, "cut 0 is not offered"),
    "cut 6": (["--cuts", "2,6"], 6, "cut 6 is not offered.*1 to 5"),
    "order": (["--cuts", "4,2"], 2, "write cuts in order"),
    "words": (["--cuts", "a,b"], 2, "--cuts 'a,b': write layers such as 10,20"),
    "threads": (["--threads-per-stage", "0"], 2, "--threads-per-stage is 0"),
    "tokens": (["--max-tokens", "-1"], 2, "--max-tokens is -1; 1 is the least"),
    "context": (["--ctx-size", "0"], 2, "--ctx-size is 0"),
    "cold": (["--temperature", "-1"], 2, "--temperature -1.0: 0 to 100"),
    "nan": (["--temperature", "nan"], 2, "--temperature nan: 0 to 100"),
    "address": (["--openai-bind-addr", "nowhere"], 78, "nowhere"),
}


@pytest.mark.watchdog(60)
@pytest.mark.parametrize("what", WRONG)
def test_wrong_flags_are_named(
    talking_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    import re  # noqa: PLC0415 - only here

    flags, code, words = WRONG[what]
    assert main(["demo", "--model", str(talking_path), *flags]) == code
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    assert line.startswith("skippyd: ")
    assert re.search(words, line)


def test_a_model_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["demo", "--model", str(tmp_path / "none.gguf")])
    assert code == ExitCode.FAILED
    [line] = capsys.readouterr().err.splitlines()
    assert "none.gguf" in line


def test_a_port_in_use_is_said_before_anything_is_loaded(
    talking_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ["--model", str(talking_path), "--openai-bind-addr", address]
        assert main(["demo", *flags]) == ExitCode.FAILED
    said = capsys.readouterr()
    [line] = said.err.splitlines()
    assert line.startswith(f"skippyd: cannot listen on {address}: Address already in")
    assert "choose another --openai-bind-addr" in line
    assert said.out == ""


# ---- serving -------------------------------------------------------------------------


@native
@slow
@process
@pytest.mark.watchdog(40)
@pytest.mark.parametrize("victim", ["stage-0", "stage-1"])
def test_a_stage_killed_while_serving_ends_the_demo(
    talking_path: Path, tmp_path: Path, victim: str
) -> None:
    flags = ["--model", str(talking_path), "--stages", "2", "--max-tokens", "4"]
    command = RunningCommand.start(
        ["demo", *flags, *ANY_PORT], tmp_path / "log", cwd=tmp_path
    )
    with command:
        command.wait_said("Ctrl-C ends all stages", within_s=30)
        children = descendants(command.process.pid)
        pid = stage_pid(command.log.read_text(), victim)
        assert pid in children
        os.kill(pid, signal.SIGKILL)
        assert command.exit_code() == ExitCode.FAILED
        last = command.log.read_text().splitlines()
        assert any(
            line.startswith(f"skippyd: {victim} (pid {pid}) was ended by SIGKILL")
            for line in last
        )
        assert not [child for child in children if is_alive(child)]


def stage_pid(said: str, stage_id: str) -> int:
    [line] = [line for line in said.splitlines() if line.startswith(f"{stage_id}  ")]
    return int(line.rpartition("pid ")[2])
