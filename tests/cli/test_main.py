"""The command: help is quick, errors are one line, exit codes are the contract's."""

from __future__ import annotations

import errno
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from skippyd import __version__
from skippyd.cli import main as main_module
from skippyd.cli.main import COMMANDS, main
from skippyd.errors import ConfigError, ExitCode


if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def test_no_command_shows_the_help_and_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    for name in COMMANDS:
        assert name in said.err


@pytest.mark.parametrize(
    "arguments", [["fly"], ["demo", "--fly"], ["demo", "--st", "2"]]
)
def test_unknown_commands_and_flags_are_usage_errors(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Abbreviations are not taken: a script must not change its meaning later."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == ExitCode.USAGE
    assert arguments[-1] in capsys.readouterr().err or "--st" in arguments


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == ExitCode.DONE
    assert capsys.readouterr().out == f"skippyd {__version__}\n"


class _Command:
    HELP = "a command of the test"

    def __init__(self, run: Callable[[], int]) -> None:
        self._run = run

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """None."""

    def run(self, arguments: argparse.Namespace) -> int:
        """What the test says."""
        return self._run()


def raising(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            ConfigError("stage.json: lane_cuont"),
            78,
            "skippyd: stage.json: lane_cuont\n",
        ),
        (KeyboardInterrupt(), 130, "skippyd: interrupted\n"),
        (BrokenPipeError(), 1, ""),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "skippyd: cannot write: [Errno 28] No space left on device; free some space\n",
        ),
    ],
)
def test_an_end_is_one_line_and_its_code(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(main_module, "_load", lambda _name: _Command(raising(error)))
    assert main(["demo"]) == code
    assert capsys.readouterr().err == said


def test_a_fault_of_ours_is_shown_whole_and_exits_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = ZeroDivisionError("of ours")
    monkeypatch.setattr(main_module, "_load", lambda _name: _Command(raising(fault)))
    assert main(["demo"]) == ExitCode.INTERNAL
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "ZeroDivisionError: of ours" in said
    assert said.endswith("skippyd: internal error, please report the lines above\n")


def test_other_systems_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["demo"]) == ExitCode.FAILED
    assert capsys.readouterr().err == "skippyd: runs on Linux only, this is darwin\n"


@pytest.mark.slow
@pytest.mark.process
def test_help_loads_neither_numpy_nor_trio() -> None:
    """A slow `--help` is the first thing a newcomer would notice."""
    code = (
        "import sys\n"
        "from skippyd.cli.main import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    heavy = {'numpy', 'trio', 'llama_cpp', 'jinja2', 'rich'}\n"
        "    print('loaded:', *sorted(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded:"
