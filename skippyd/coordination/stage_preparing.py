"""Preparations: finding and checking a stage's part before its claim and its load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.admission import descriptor_difference
from skippyd.core.coordinator.control_effects import PreparationMoved
from skippyd.core.coordinator.messages import PreparationState
from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.coordination.ports import StageRunSettings
    from skippyd.coordination.stage_parts import StageParts
    from skippyd.core.coordinator.messages import LoadStage


@attrs.define(eq=False, kw_only=True)
class StagePreparing:
    """The preparations under way; what becomes of each is offered to the rules.

    Args:
        parts: Finds and opens models.
        offer: Hands an event to the rules.
    """

    parts: StageParts
    offer: Callable[[PreparationMoved], None]
    nursery: trio.Nursery | None = None
    _scopes: dict[LoadStage, trio.CancelScope] = attrs.Factory(dict)

    def start(
        self, load: LoadStage, settings: StageRunSettings | None, refusal: str | None
    ) -> None:
        """Begin a preparation.

        Args:
            load: What will be loaded.
            settings: What its run is made of.
            refusal: Why this node takes no stage at all.
        """
        if settings is None and refusal is None:
            refusal = "the preparation came without its run settings"
        if refusal is not None or settings is None or self.nursery is None:
            self._move(load, PreparationState.FAILED, refusal or "the node is stopping")
            return
        scope = self._scopes[load] = trio.CancelScope()
        self.nursery.start_soon(self._prepare, load, settings, scope)

    def cancel(self, load: LoadStage) -> None:
        """End a preparation; nothing is reported about it any more."""
        scope = self._scopes.pop(load, None)
        if scope is not None:
            scope.cancel()

    async def _prepare(
        self, load: LoadStage, settings: StageRunSettings, scope: trio.CancelScope
    ) -> None:
        self._move(load, PreparationState.RESOLVING)
        with scope:
            try:
                part = await self.parts.open(load, settings)
                difference = descriptor_difference(load.admission, part.descriptor)
            except SkippyError as error:
                difference = str(error)
            if difference:
                self._move(load, PreparationState.FAILED, difference)
            else:
                self._move(load, PreparationState.READY)
        if self._scopes.get(load) is scope:
            del self._scopes[load]

    def _move(self, load: LoadStage, state: PreparationState, error: str = "") -> None:
        self.offer(PreparationMoved(load=load, state=state, error=error))
