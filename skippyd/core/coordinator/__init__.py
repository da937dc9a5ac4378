"""Who may load a split, decided without I/O: claims, leases, fences, campaigns.

Owns the rules of both sides: what one node remembers and refuses (`fence`,
`control`) and how a coordinator gets a run going (`campaign`). Refuses to know
sockets, processes, stores and clocks: `now` is an argument and work for the
shell is returned as effects, in the order in which it must be done.
Read `claim.py` first, then `fence.py`.
"""

from __future__ import annotations
