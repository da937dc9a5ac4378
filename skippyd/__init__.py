"""One language model across several machines none of which could hold it alone."""

from __future__ import annotations


__version__ = "0.1.0"
