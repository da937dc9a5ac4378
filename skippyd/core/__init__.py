"""Decisions as values: no I/O, clock, randomness or tasks in any package below.

Each package stands alone and imports only `skippyd.ids`, `skippyd.errors` and
`skippyd.units`; time and measurements come in as arguments.
"""

from __future__ import annotations
