"""The operator's view: looks at a node and steers it, never loads a model."""

from __future__ import annotations
