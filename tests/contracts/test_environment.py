"""Setting up from nothing says what is missing, on standard error, with the remedy."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.tree import ROOT, shown


if TYPE_CHECKING:
    from pathlib import Path

NATIVE = "skippyd/runtime/llama"
SOURCES = sorted(shown(path) for path in (ROOT / NATIVE).glob("*.[ch]pp"))
PROJECT = ("requirements.lock", "pyproject.toml", "setup.py", *SOURCES)
NEEDED = ("packaging/environment.sh", "requirements-dev.lock", *PROJECT)

# In the place of an environment's Python: notes what is installed, and is content.
PYTHON_THAT_NOTES = """#!/bin/sh
case "$*" in
-VV) echo "Python 3.11.0" ;;
*"install"*) echo "$@" >>installed; touch skippyd/runtime/llama/libskippy_native.so ;;
*"pip.__version__"*) echo unknown ;;
esac
"""

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.watchdog(90)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A fresh copy of what setting up reads; without an environment."""
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run(
    command: list[str], folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=80,
    )


def test_a_machine_without_a_python_is_told_which_one_is_needed(checkout: Path) -> None:
    done = run(["packaging/environment.sh", "run"], checkout, PYTHON="no-such-python")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Python 3.11 or newer is needed and none of no-such-python is" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_a_machine_without_a_compiler_is_told_what_to_install(checkout: Path) -> None:
    done = run(
        ["packaging/environment.sh", "run"],
        checkout,
        PYTHON=sys.executable,
        CXX="no-such-compiler",
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "a C++ compiler is needed" in done.stderr
    assert "apt-get install g++" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.fixture
def set_up(checkout: Path) -> Path:
    """A checkout whose environment is there and current."""
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON_THAT_NOTES)
    python.chmod(0o755)
    assert len(installed(checkout)) == 3, "a newer pip, the requirements, the project"
    return checkout


def installed(checkout: Path) -> list[str]:
    """What setting up installs now."""
    notes = checkout / "installed"
    notes.write_text("")
    done = run(["packaging/environment.sh", "run"], checkout)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return notes.read_text().splitlines()


def test_what_is_current_is_not_installed_again(set_up: Path) -> None:
    assert installed(set_up) == []
    assert installed(set_up) == []


@pytest.mark.parametrize("name", PROJECT)
def test_a_change_of_what_the_project_is_built_from_builds_it_anew(
    set_up: Path, name: str
) -> None:
    with (set_up / name).open("a") as file:
        file.write("\n")
    assert [line for line in installed(set_up) if line.endswith("--editable .")]
    assert installed(set_up) == []


def test_one_more_native_source_or_a_missing_library_builds_it_anew(
    set_up: Path,
) -> None:
    (set_up / NATIVE / "another.cpp").write_text("int another() { return 3; }\n")
    assert len(installed(set_up)) == 1
    (set_up / NATIVE / "libskippy_native.so").unlink()
    assert len(installed(set_up)) == 1
    assert installed(set_up) == []


def test_the_native_part_is_built_without_python_headers(checkout: Path) -> None:
    done = run([sys.executable, "setup.py", "-q", "build_native"], checkout)
    built = next((checkout / "build").rglob("libskippy_native.so"), None)
    assert done.returncode == 0, done.stderr
    assert built is not None
    library = ctypes.CDLL(str(built))
    assert library.skippy_native_abi() > 0
    assert library.skippy_row_size() > 0, "every source is in it"
    assert not [n for n in SOURCES if "Python.h" in (checkout / n).read_text()]


def test_a_missing_compiler_is_one_clear_line(checkout: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_native"]
    done = run(command, checkout, CXX="no-such-compiler")
    assert done.returncode == 1
    assert "no C++ compiler (no-such-compiler) found; install one" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", SOURCES)
def test_source_that_does_not_compile_leaves_no_library(
    checkout: Path, name: str
) -> None:
    (checkout / name).write_text("int broken = ;\n")
    done = run([sys.executable, "setup.py", "-q", "build_native"], checkout)
    assert done.returncode == 1
    assert f"compiling {NATIVE} failed" in done.stderr
    assert list(checkout.rglob("libskippy_native.so*")) == []
