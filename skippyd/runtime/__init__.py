"""The stage engine: one llama.cpp context, one thread that runs it.

Owns loading a layer range, batches, sequences, sampling and the engine thread.
Refuses to know about sockets, lanes and messages. Read `engine.py` first;
`llama/` is the only folder of the product that sees ctypes or llama.cpp.
"""

from __future__ import annotations
