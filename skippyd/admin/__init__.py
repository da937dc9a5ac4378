"""What an operator may see and ask for, over the admin socket of one node.

Owns the documents (`schema`), who may do what (`access`), the table of methods
(`handlers`) and the socket (`server`). Refuses to know where the answers come from:
`node_view.NodeView` lists what it needs, the daemon provides it. Read `schema.py` first.
"""

from __future__ import annotations
