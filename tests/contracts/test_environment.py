"""Setting up from nothing says what is missing, on standard error, with the remedy."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.tree import ROOT


if TYPE_CHECKING:
    from pathlib import Path

NATIVE = "skippyd/runtime/llama/native.cpp"
NEEDED = (
    "packaging/environment.sh",
    "requirements.lock",
    "requirements-dev.lock",
    "pyproject.toml",
    "setup.py",
    NATIVE,
)

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


def test_the_native_part_is_built_without_python_headers(checkout: Path) -> None:
    done = run([sys.executable, "setup.py", "-q", "build_native"], checkout)
    built = next((checkout / "build").rglob("libskippy_native.so"), None)
    assert done.returncode == 0, done.stderr
    assert built is not None
    assert ctypes.CDLL(str(built)).skippy_native_abi() > 0
    assert "Python.h" not in (checkout / NATIVE).read_text()


def test_a_missing_compiler_is_one_clear_line(checkout: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_native"]
    done = run(command, checkout, CXX="no-such-compiler")
    assert done.returncode == 1
    assert "no C++ compiler (no-such-compiler) found; install one" in done.stderr
    assert "Traceback" not in done.stderr


def test_source_that_does_not_compile_leaves_no_library(checkout: Path) -> None:
    (checkout / NATIVE).write_text("int broken = ;\n")
    done = run([sys.executable, "setup.py", "-q", "build_native"], checkout)
    assert done.returncode == 1
    assert f"compiling {NATIVE} failed" in done.stderr
    assert list(checkout.rglob("libskippy_native.so*")) == []
