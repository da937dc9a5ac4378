"""Commands of `skippyd`: arguments in, exit codes and lines out, nothing decided here.

Each command is one file with `add_arguments(parser)` and `run(arguments)`; it imports
what it runs inside `run`, so that `--help` is quick. Read `main.py` first.
"""

from __future__ import annotations
