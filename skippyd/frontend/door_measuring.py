"""Measures what passes the front door, for whoever keeps the figures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.telemetry.names import Attribute
from skippyd.core.telemetry.request_meter import RequestMeter


if TYPE_CHECKING:
    from skippyd.core.telemetry.span import Span
    from skippyd.frontend.door_routes import DoorRoute


@attrs.define
class PassageMeter:
    """One request on its way; made when it is whole."""

    _meter: RequestMeter = attrs.field(factory=lambda: RequestMeter(time.time_ns()))

    def begun(self, status: int) -> None:
        """The first stage has begun to answer."""
        self._meter.status = status

    def piece(self, data: bytes) -> None:
        """A piece of a stream was passed on."""
        self._meter.piece(data, time.time_ns())

    def answer(self, body: bytes) -> None:
        """An answer came whole."""
        self._meter.answer(body)

    def ended(self, route: DoorRoute, *, is_lost: bool) -> Span:
        """What was measured."""
        about = {Attribute.MODEL_ID: route.model_id, Attribute.RUN_ID: route.run_id}
        return self._meter.finished(time.time_ns(), about, is_lost=is_lost)
