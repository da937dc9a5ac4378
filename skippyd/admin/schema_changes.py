"""The documents that answer a change: what was made, pinned or begun."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Invitation:
    """`skippyctl invite`: one token for one machine."""

    schema: str = "skippy.invite/1"
    token: str = attrs.field(repr=False)
    node_id: str
    address: str
    expires_unix_ms: int


@attrs.frozen(kw_only=True)
class Joined:
    """`skippyctl join`: the node that is pinned now."""

    schema: str = "skippy.join/1"
    node_id: str
    name: str
    address: str


@attrs.frozen(kw_only=True)
class Deployment:
    """A deployment that has begun; `after` is where its events start."""

    schema: str = "skippy.deployment/1"
    model_id: str
    after: int


@attrs.frozen(kw_only=True)
class Done:
    """A change that was made, in words."""

    schema: str = "skippy.done/1"
    message: str
