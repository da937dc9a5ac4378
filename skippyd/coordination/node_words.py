"""How nodes are called in sentences for people: by name, with enough of the id.

The rules and the planner know nodes by their ids alone, and so do the messages of other
nodes. What leaves for a person goes through here; what a script reads keeps whole ids.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from skippyd.errors import RefusedError
from skippyd.ids import NodeId


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyd.coordination.ports import Nodes

SHORT_ID = 12
_WHOLE_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def known_names(nodes: Nodes) -> dict[NodeId, str]:
    """What people call each node that this one knows; empty where nobody said."""
    names = {peer.node_id: peer.name for peer in nodes.peers()}
    own = nodes.reports().get(nodes.own_id)
    names[nodes.own_id] = "" if own is None else own.name
    return names


def label(node_id: str, name: str) -> str:
    """A node's name and enough of its id to tell it from others of that name."""
    return f"{name} ({node_id[:SHORT_ID]})" if name else node_id[:SHORT_ID]


def in_words(text: str, names: Mapping[NodeId, str]) -> str:
    """Write the known nodes of a text by their names; other hashes stay whole."""

    def named(found: re.Match[str]) -> str:
        node_id = NodeId(found[0])
        return label(node_id, names[node_id]) if node_id in names else node_id

    return _WHOLE_ID.sub(named, text)


@contextlib.contextmanager
def refusals_in_words(nodes: Nodes) -> Iterator[None]:
    """Let refusals leave with names in them."""
    try:
        yield
    except RefusedError as error:
        error.args = (in_words(str(error), known_names(nodes)),)
        raise
