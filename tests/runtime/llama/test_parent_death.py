"""A child that asked for it ends with its parent, though it hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.running_command import is_alive
from support.stage_cli import eventually


pytestmark = [pytest.mark.process, pytest.mark.slow]

# The grandchild blocks SIGTERM and sleeps; its parent is killed.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=sys.stdout)
time.sleep(60)
"""
CHILD = """
import os, signal, time
from skippyd.runtime.llama.parent_death import die_with_parent
signal.signal(signal.SIGTERM, signal.SIG_IGN)
die_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_the_kernel_ends_a_child_whose_parent_was_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        eventually(lambda: not is_alive(child), "the child is gone")
