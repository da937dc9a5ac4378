"""The operator's view: looks at a node and steers it, never loads a model.

Knows the planner, the configuration edge and the GGUF reader; refuses to know the
daemon's insides. Read `main.py` first, then the command's own file.
"""

from __future__ import annotations
