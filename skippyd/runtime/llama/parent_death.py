"""The kernel's parent-death signal: a stage whose parent is gone is gone as well.

Here because only this room may call into C. End of file on the lifecycle socket says
the same to a process that listens; this covers one that hangs in native code.
"""

from __future__ import annotations

import ctypes
import signal


PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have this process killed when the thread that started it ends.

    A parent that is gone already is not noticed: look at its end of a socket or pipe.

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
