"""The stage engine: one llama.cpp context, one thread that runs it.

Owns loading a layer range, batches, sequences, sampling and the engine thread.
Refuses to know about lanes and messages, and about sockets but for the descriptor a row
may be sent to (`adr/0003`). Read `engine.py` first;
`llama/` is the only folder of the product that sees ctypes or llama.cpp.
"""

from __future__ import annotations
