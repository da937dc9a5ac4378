"""Model files on disk: bounded GGUF reading, facts, and layer slices.

Owns what a GGUF says and how a range of its layers becomes a model of its own.
Refuses to know how a model is run: no llama.cpp, no tasks, no sockets, no arrays.
Everything read here is untrusted until it has passed the reader's limits.
Read `slicing.py` first, then `architectures.py` for what is known to be exact.
"""
