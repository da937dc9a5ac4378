"""Nodes files that the tests of `skippyctl plan` write."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from pathlib import Path


QWEN = """
[model]
id = "qwen-480b"
native_context = 262144
layers = 62
weight_bytes = 315680000000
kv_bytes_per_token = 131072
"""
BASE = """
[model]
id = "base"
native_context = 262144
layers = 40
weight_bytes = "40GiB"
kv_bytes_per_token = 65536
"""


def nodes(*sizes: str, more: str = "") -> str:
    """`[[nodes]]` n0, n1 and so on of these sizes, each with the same further keys."""
    return "".join(
        f'[[nodes]]\nid = "n{index}"\nvram = "{size}"\n{more}\n'
        for index, size in enumerate(sizes)
    )


def write_nodes(folder: Path, text: str) -> Path:
    """Write `nodes.toml` into the folder."""
    path = folder / "nodes.toml"
    path.write_text(text, encoding="utf-8")
    return path
