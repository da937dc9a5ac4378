from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from skippyctl.main import COMMANDS, main, whole_parser
from skippyd import __version__
from skippyd.errors import ExitCode, RefusedError, UsageError


if TYPE_CHECKING:
    import argparse


class Fake(ModuleType):
    """A command that ends the way the test wants."""

    def __init__(self, ending: BaseException | ExitCode) -> None:
        super().__init__("skippyctl.commands.plan")
        self._ending = ending

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--flag", action="store_true")
        parser.add_argument("--json", action="store_true")
        parser.set_defaults(errors_in_json=True)

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        assert arguments.flag
        if isinstance(self._ending, BaseException):
            raise self._ending
        return self._ending


def run_fake(monkeypatch: pytest.MonkeyPatch, ending: BaseException | ExitCode) -> int:
    monkeypatch.setitem(sys.modules, "skippyctl.commands.plan", Fake(ending))
    return main(["plan", "--flag"])


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        (ExitCode.DONE, 0, ""),
        (ExitCode.REFUSED, 6, ""),
        (UsageError("one\ntwo"), 2, "skippyctl plan: one\nskippyctl plan: two\n"),
        (RefusedError("no"), 6, "skippyctl plan: no\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_the_ending_of_a_command_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ending: BaseException | ExitCode,
    code: int,
    said: str,
) -> None:
    assert run_fake(monkeypatch, ending) == code
    assert capsys.readouterr().err == said


def test_a_fault_of_ours_is_exit_70_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_fake(monkeypatch, ZeroDivisionError("oops")) == 70
    said = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in said
    assert said.endswith("skippyctl plan: internal error; the lines above say where\n")


def test_an_error_is_told_to_scripts_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Fake(RefusedError("no"))
    monkeypatch.setitem(sys.modules, "skippyctl.commands.plan", fake)
    assert main(["plan", "--flag", "--json"]) == 6
    captured = capsys.readouterr()
    text, document = captured.err.splitlines()
    assert text == "skippyctl plan: no"
    assert json.loads(document) == {
        "schema": "skippy.error/1",
        "command": "plan",
        "message": "no",
        "exit_code": 6,
    }
    assert captured.out == ""


@pytest.mark.parametrize("words", [[], ["plna"], ["--nonsense"]])
def test_no_command_or_an_unknown_one_is_exit_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_help_and_version_are_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in ((["--help"], "plan a topology"), (["--version"], __version__)):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        assert said in capsys.readouterr().out


def test_every_command_is_there_with_its_flags() -> None:
    text = whole_parser().format_help()
    assert all(name in text for name in COMMANDS)


@pytest.mark.slow
@pytest.mark.process
def test_a_reader_that_has_seen_enough_and_a_full_disk_end_it_in_order() -> None:
    """In processes of their own: what Python says at exit counts as well."""
    command = [sys.executable, "-m", "skippyctl", "completion", "bash"]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        b"skippyctl completion: standard output takes no more: the disk is full\n"
    )
