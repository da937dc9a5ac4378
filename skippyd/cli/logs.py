"""Log lines of a process on standard error: one event a line, with time and level."""

from __future__ import annotations

import logging
import sys
import time


LOG_LEVELS = ("debug", "info", "warning", "error")
FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s"


def log_to_stderr(level: str = "info") -> None:
    """Write records of `level` and above to standard error."""
    formatter = logging.Formatter(FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
