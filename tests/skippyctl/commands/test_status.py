"""`status` is asked often, by people and by scripts: it starts with next to nothing."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.admin_daemon import admin_daemon
from support.admin_view import FakeNodeView


if TYPE_CHECKING:
    from pathlib import Path

HEAVY = ("trio", "rich", "cattrs", "wsproto", "h11", "llama_cpp", "numpy", "jinja2")
LONGEST_CPU_S = 0.3
"""The whole process has 300 ms; processor time is what a busy machine leaves alone."""


@pytest.mark.process
@pytest.mark.slow
def test_the_whole_process_takes_less_than_300_ms(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    command = [sys.executable, "-m", "skippyctl", "status", "--socket", str(path)]
    with admin_daemon(path, FakeNodeView()):
        taken = [_cpu_s(command) for _ in range(5)]
    assert min(taken) < LONGEST_CPU_S


@pytest.mark.process
@pytest.mark.slow
def test_no_heavy_library_is_imported_for_it(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    code = (
        "import sys; from skippyctl.main import main; "
        f"assert main(['status', '--socket', {str(path)!r}]) == 0; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    with admin_daemon(path, FakeNodeView()):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
    assert done.stdout.splitlines()[-1] == "[]"


def _cpu_s(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=20)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
