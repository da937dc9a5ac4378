"""`skippyd verify`: every cut exact, differences and refusals by their exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from skippyd.cli import verify as verify_command
from skippyd.cli.main import main
from skippyd.errors import ExitCode
from skippyd.proving import verify as proving_verify
from support import faulty_stage
from support.gguf_bytes import TinyLlama
from support.random_models import ZOO, write_random_model


if TYPE_CHECKING:
    from pathlib import Path

native = pytest.mark.native
slow = pytest.mark.slow
process = pytest.mark.process

KEYS = {
    "schema",
    "arch",
    "layers",
    "model_sha256",
    "llama_cpp_build",
    "cpu_features",
    "capture",
    "threads",
    "chunk",
    "prompt_tokens",
    "decoded_tokens",
    "cuts",
}


def verified(
    capsys: pytest.CaptureFixture[str], path: Path, *flags: object
) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and talk of `verify --json`."""
    code = main(["verify", str(path), "--json", *(str(flag) for flag in flags)])
    said = capsys.readouterr()
    [line] = said.out.splitlines()
    document: dict[str, Any] = json.loads(line)
    return code, document, said.err


def check_all_exact(document: dict[str, Any]) -> None:
    assert [cut["at"] for cut in document["cuts"]] == [*range(1, document["layers"])]
    assert {
        (cut["verdict"], cut["max_abs_difference"], cut["tokens_equal"])
        for cut in document["cuts"]
    } == {("exact", 0.0, True)}


@native
@slow
@process
@pytest.mark.watchdog(240)
def test_the_real_model_is_exact_at_all_its_cuts(
    smollm2_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """29 chains of two processes; four predicted rows each."""
    code, document, talk = verified(capsys, smollm2_path, "--tokens", 4)
    assert code == ExitCode.DONE
    assert document.keys() == KEYS
    assert (document["schema"], document["arch"]) == ("skippy.verify/1", "llama")
    assert document["layers"] == 30
    assert document["model_sha256"].startswith("b179c9523d0e6a0f")
    assert (document["decoded_tokens"], document["capture"]) == (4, "native")
    check_all_exact(document)
    assert "29 of 29 exact" in talk


@native
@slow
@process
@pytest.mark.watchdog(120)
@pytest.mark.parametrize("name", ["llama-experts", "qwen2", "qwen3", "gemma3-pattern"])
def test_each_architecture_is_exact_at_all_cuts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Random models without tokenizer are fed 40 tokens of a fixed seed.

    gemma3 has 12 layers here and a window of 8.
    """
    path = write_random_model(tmp_path / "m.gguf", ZOO[name])
    code, document, _ = verified(capsys, path, "--tokens", 8, "--chunk", 16)
    assert code == ExitCode.DONE
    assert document["arch"] == ZOO[name].architecture
    assert (document["prompt_tokens"], document["chunk"]) == (40, 16)
    check_all_exact(document)


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_chain_is_one_entry_and_two_threads_are_told(
    talking_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, talk = verified(
        capsys,
        talking_path,
        *("--chain", "2,5", "--threads", 2, "--prompt", "the inn " * 60),
    )
    assert code == ExitCode.DONE
    [entry] = document["cuts"]
    assert (entry["at"], entry["verdict"]) == ([2, 5], "exact")
    assert document["threads"] == 2
    assert document["prompt_tokens"] > 200
    assert "cut     2,5  exact" in talk


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_cut_that_is_not_offered_is_refused_beside_the_others(
    mute_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, talk = verified(capsys, mute_path, "--cuts", "0,3,6", "--tokens", 2)
    assert code == ExitCode.REFUSED
    verdicts = [cut["verdict"] for cut in document["cuts"]]
    assert verdicts == ["refused", "exact", "refused"]
    assert "cut 6 is out of range" in document["cuts"][2]["reason"]
    assert "cut at 1 to 5" in document["cuts"][2]["reason"]
    assert "1 of 3 exact" in talk


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_tampered_stage_makes_it_fail(
    mute_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = faulty_stage.command("tamper", "stage-0")
    monkeypatch.setattr(
        proving_verify.Trial.begin.__func__,  # type: ignore[attr-defined]
        "__defaults__",
        (command,),
    )
    monkeypatch.setitem(
        proving_verify.verify.__kwdefaults__,  # type: ignore[arg-type]
        "command",
        command,
    )
    code, document, talk = verified(capsys, mute_path, "--cuts", "2,4", "--tokens", 4)
    assert code == ExitCode.FAILED
    for cut in document["cuts"]:
        assert cut["verdict"] == "inexact"
        assert cut["max_abs_difference"] > 0
    assert "0 of 2 exact" in talk


# ---- what is said without starting anything ------------------------------------------


def refusal(
    capsys: pytest.CaptureFixture[str], path: Path, *flags: str
) -> tuple[int, str]:
    code = main(["verify", str(path), *flags])
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    assert line.startswith("skippyd: ")
    return code, line


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--cuts", "2;4"], "--cuts '2;4': write layers such as 5,9"),
        (["--chain", "5,2"], "--chain 5,2: write the cuts in order"),
        (["--chain", "2,2"], "--chain 2,2: write the cuts in order"),
        (["--tokens", "0"], "--tokens is 0; 1 to 100000 is offered"),
        (["--chunk", "1000000"], "--chunk is 1000000; 1 to 8192 is offered"),
        (["--threads", "-2"], "--threads is -2"),
    ],
)
def test_wrong_flags_are_usage_errors(
    mute_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    code, line = refusal(capsys, mute_path, *flags)
    assert code == ExitCode.USAGE
    assert words in line


def test_cuts_and_chain_together_are_a_usage_error(
    mute_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(mute_path), "--cuts", "2", "--chain", "3"])
    assert ended.value.code == ExitCode.USAGE
    assert "not allowed with" in capsys.readouterr().err


def test_an_architecture_that_is_not_offered_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = TinyLlama(architecture="gpt2").write(tmp_path / "m.gguf")
    code, line = refusal(capsys, path)
    assert code == ExitCode.REFUSED
    assert "architecture 'gpt2' is not offered; offered: gemma3, llama" in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "m.gguf"),
        (b"PK\x03\x04" + bytes(100), "m.gguf"),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, "m.gguf"),
    ],
)
def test_a_broken_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    code, line = refusal(capsys, path)
    assert code == ExitCode.FAILED
    assert words in line


def test_a_file_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refusal(capsys, tmp_path / "none.gguf")
    assert code == ExitCode.FAILED
    assert "none.gguf" in line


def test_the_flags_are_the_contracts() -> None:
    """`skippyd verify MODEL [--cuts|--chain|--tokens|--chunk|--threads|--json]`."""
    import argparse  # noqa: PLC0415 - only here

    parser = argparse.ArgumentParser()
    verify_command.add_arguments(parser)
    found = vars(parser.parse_args(["m.gguf"]))
    assert found.keys() == {
        *("model", "cuts", "chain", "tokens", "chunk", "threads", "prompt", "json")
    }
    assert (found["cuts"], found["tokens"], found["threads"]) == ("all", 16, 1)
