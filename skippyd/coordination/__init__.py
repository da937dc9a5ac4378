"""Between nodes: identities, control connections, fences on disk, rollouts, failover.

Owns everything that moves the pure rules of `core.coordinator` over sockets and disks.
Refuses to know how a stage computes. Read `ports.py` first: it is how the parts meet.
"""

from __future__ import annotations
