"""The OpenAI server and one generation's life.

Owns the HTTP surface at stage 0: routes, validation answers, streaming, chat
templates.  Refuses to know how tokens are produced: it sees the chain only
through the protocols of `backend.py`, which is the file to read first.
"""

from __future__ import annotations
