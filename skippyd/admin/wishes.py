"""What an operator asks for: the parameters of the admin methods. A leaf like `schema`."""

from __future__ import annotations

import attrs


@attrs.frozen
class After:
    """Which part of a stream is wanted.

    Args:
        after: Items with a greater sequence number.
        limit: At most so many, the newest ones; the ring may hold less.
    """

    after: int = 0
    limit: int = 200


@attrs.frozen(kw_only=True)
class WatchEvents:
    """Events of deployments.

    Args:
        after: Those with a greater sequence number.
        model_id: Of this model only.
    """

    after: int = 0
    model_id: str | None = None


@attrs.frozen(kw_only=True)
class Deploy:
    """Serve a model over several nodes.

    Args:
        model: File name without its ending, path on a node, or content hash.
        context: This many tokens, no other; None lets the planner choose.
        lanes: Requests at once; None for the planner's default.
        nodes: Names or ids of the nodes to use; empty for all.
        dry_run: Only say what would be done.
    """

    model: str
    context: int | None = None
    lanes: int | None = None
    nodes: tuple[str, ...] = ()
    dry_run: bool = False


@attrs.frozen(kw_only=True)
class LoadLocal:
    """Serve a whole model on this node alone, without a coordinator.

    Args:
        model: File name without its ending, path on this node, or content hash.
        context: This many tokens, no other; None lets the planner choose.
        lanes: Requests at once; None for the planner's default.
    """

    model: str
    context: int | None = None
    lanes: int | None = None


@attrs.frozen(kw_only=True)
class Withdraw:
    """End what a deployment started; None when there is only one."""

    model: str | None = None


@attrs.frozen(kw_only=True)
class Drain:
    """Take no new stage and give the running ones up in order.

    Args:
        is_undone: Take stages again instead.
    """

    is_undone: bool = False


@attrs.frozen(kw_only=True)
class Stop:
    """End stages of this node at once.

    Args:
        stage_id: This one; None for all.
    """

    stage_id: str | None = None


@attrs.frozen(kw_only=True)
class Join:
    """Join the node that gave the token out."""

    token: str = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class InitFence:
    """Vouch that this node forgot nothing that still matters: it votes again."""

    reason: str


@attrs.frozen(kw_only=True)
class SafeModeOn:
    """Request safe mode.

    Args:
        reason: For those who find it on.
        restart: End the daemon so that its service manager starts it in safe mode.
    """

    reason: str
    restart: bool = False


@attrs.frozen(kw_only=True)
class SafeModeOff:
    """Take the request back."""

    restart: bool = False
