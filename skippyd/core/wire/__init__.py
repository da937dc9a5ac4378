"""The generation-8 binary codec between stages: values to bytes and back.

Owns the layout, the limits, the error texts and the admission descriptor.
Refuses to know sockets, time, sessions and models: a shell feeds bytes in and takes
messages out. Read `kinds.py` first, then `messages.py`, `encode.py`, `decode.py`.
"""

from __future__ import annotations
