"""What is measured, under which names, and the bounded ring that keeps the newest.

Owns names, spans, the ring's arithmetic and the figures made of it. Refuses to know
clocks, threads and exporters: whoever records says when, and nothing ever waits.
Read `names.py` first.
"""

from __future__ import annotations
