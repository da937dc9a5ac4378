"""Sockets and the protocols spoken on them, without any word of the domain.

Refuses to know requests, chains and configuration: callers pass handlers and
limits.  For HTTP read `http_values.py` first, then `http_server.py`.
"""

from __future__ import annotations
