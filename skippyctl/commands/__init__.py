"""One file per command: its arguments, and what it does with them.

Each module has `add_arguments(parser)` and `run(arguments) -> ExitCode`, and imports
what it needs inside `run`, so that `--help` stays quick. Read `plan.py` first.
"""

from __future__ import annotations
