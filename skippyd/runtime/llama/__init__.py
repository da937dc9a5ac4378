"""The only place that sees ctypes or llama.cpp.

Owns the bindings, our native library, and wrappers with typed errors. Refuses to
know about stages and lanes. Read `context.py` first, then `native.cpp`; `next_token.cpp` is
the short way of a foreseen token.
"""

from __future__ import annotations
