"""How both ends of the admin socket begin: constants only, for they cost nothing."""

from __future__ import annotations


API = 1
"""Version of the methods; both sides name it in `hello`."""

PATH = "/v1"
HELLO = "hello"
ITEM = "item"
"""The notification that carries one document of a stream."""
