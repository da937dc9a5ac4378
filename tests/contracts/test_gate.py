"""The linters are part of the tests: one command says whether a change may land."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.tree import ROOT


BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(400)]


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "format", "--check", "."],
        ["ruff", "check", "."],
        ["mypy"],
        ["lint-imports"],
    ],
    ids=" ".join,
)
def test_the_tree_passes(command: list[str]) -> None:
    finished = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=390,
    )
    assert finished.returncode == 0, f"\n{finished.stdout}\n{finished.stderr}"
