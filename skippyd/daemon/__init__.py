"""The daemon of one node: what lives, in which order it starts and stops.

Owns wiring, the state directory, the stage processes, signals, systemd and the clock.
Refuses to know rules: those are in `core`, their performance in `coordination`.
Read `app.py` first.
"""

from __future__ import annotations
