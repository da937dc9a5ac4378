"""Configuration edges: JSON and TOML text in, checked frozen values out.

Knows files, cattrs and the rules of each document; knows nothing of engines, sockets
or clocks. Read `stage.py` first: it is the document everybody meets.
"""

from __future__ import annotations
