"""A child that ends with its parent: the kernel's parent-death signal.

Here because ctypes is used nowhere else; the standard library has no call for it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys


PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit("skippyd: the process that started this stage is gone")
