"""Chains of stage processes on this machine, proven against the unsplit model.

Owns what `demo`, `verify` and `bench` do: starting stages, the reference process, the
comparison. Refuses to know how a stage works: it only starts the stage command. Read
`chain.py` first.
"""

from __future__ import annotations
