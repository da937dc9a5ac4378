"""What the front door sees of the published routes; the daemon hands them in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol


if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from skippyd.ids import NodeId, RunId


class DoorRoute(Protocol):
    """Where one model is served."""

    @property
    def model_id(self) -> str:
        """The model."""
        ...

    @property
    def run_id(self) -> RunId:
        """The run that serves it."""
        ...

    @property
    def coordinator_id(self) -> NodeId:
        """The node of its first stage."""
        ...

    @property
    def openai_base_url(self) -> str:
        """Address of the first stage."""
        ...


class DoorRoutes(Protocol):
    """What is published, as this node knows."""

    def published(self) -> Sequence[DoorRoute]:
        """Every published route."""
        ...

    def closed_reason(self, model_id: str | None = None) -> str:
        """Why a model, or anything at all, is not served now."""
        ...

    def waiting_reason(self, model_id: str) -> str | None:
        """Why a model that is wanted is not served now; None when nobody wants it."""
        ...

    def lost_reason(self, node_id: NodeId) -> str | None:
        """Why a first stage's node cannot be reached now; None when it can."""
        ...

    def using(self, run_id: RunId) -> AbstractContextManager[None]:
        """Count a request that uses a run."""
        ...
