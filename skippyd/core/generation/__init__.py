"""One generation's text: limits, prompt spans, token bytes to words.

Refuses to know HTTP, JSON shapes and the chain.  Read `text.py` first.
"""

from __future__ import annotations
