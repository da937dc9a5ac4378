"""Decides which layers each node holds, and says why a model cannot be held.

Refuses to know where the numbers come from (files, probes, flags) and how a plan
is shown or carried out. Read `planner.py` first, then `fitting.py` for the proof.
"""

from __future__ import annotations
