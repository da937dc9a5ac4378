"""Diagnostics of one stage over HTTP: health, readiness and what it holds."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.net.http_server import serve_http
from skippyd.net.http_values import HttpLimits, HttpResponse


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.net.http_exchange import Exchange
    from skippyd.net.http_server import HttpServer
    from skippyd.net.http_values import HttpRequest
    from skippyd.stage.node import StageNode

JSON_TYPE = ("content-type", "application/json")
OK, BAD_REQUEST, NOT_FOUND, WRONG_METHOD = 200, 400, 404, 405
LATER = frozenset({"/v1/messages", "/v1/text", "/v1/ready"})


@attrs.define
class StageDiagnostics:
    """Answers the diagnostic routes (skippy-facts 5.2).

    Args:
        node: The stage to show.
    """

    node: StageNode
    started_at_unix_nanos: int = attrs.Factory(time.time_ns)

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        """Answer one request."""
        await exchange.respond(self._answer(request))

    def _answer(self, request: HttpRequest) -> HttpResponse:
        routes: dict[str, Callable[[], dict[str, object]]] = {
            "/health": lambda: {"status": "ok"},
            "/ready": self._ready,
            "/v1/status": self._status,
        }
        path = request.path
        if path in LATER:
            return _error(BAD_REQUEST, f"{path} is not supported yet")
        if path not in routes:
            return _error(NOT_FOUND, f"{path} is not here; try {', '.join(routes)}")
        if request.method not in {"GET", "HEAD"}:
            return _error(WRONG_METHOD, f"{path} answers GET only")
        return _json(OK, routes[path]())

    def _ready(self) -> dict[str, object]:
        config = self.node.config
        return {
            "run_id": config.run_id,
            "topology_id": config.topology_id,
            "stage_id": config.stage_id,
            "stage_index": config.stage_index,
            "ready": True,
        }

    def _status(self) -> dict[str, object]:
        config, topology = self.node.config, self.node.topology
        statistics = self.node.runtime.statistics()
        return self._ready() | {
            "status": "ok",
            "model_id": config.model_id,
            "layer_start": config.layer_start,
            "layer_end": config.layer_end,
            "topology_stage_count": None if topology is None else len(topology.stages),
            "runtime_loaded": True,
            "started_at_unix_nanos": str(self.started_at_unix_nanos),
            "received_messages": self.node.messages,
            "lanes": self.node.open_lanes,
            "sessions": statistics.sessions,
            "session_limit": statistics.session_limit,
            "steps": statistics.steps,
            "prefill_tokens": statistics.prefill_tokens,
            "resident_tensor_bytes": statistics.resident_tensor_bytes,
            "loaded_bytes": statistics.loaded_bytes,
            "capture": statistics.capture,
        }


async def serve_diagnostics(
    diagnostics: StageDiagnostics,
    listener: trio.SocketListener,
    *,
    task_status: trio.TaskStatus[HttpServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the diagnostic routes until cancelled."""
    await serve_http(
        [listener],
        diagnostics,
        HttpLimits(),
        refusal_shape=_error,
        task_status=task_status,
    )


def _error(status: int, message: str) -> HttpResponse:
    return _json(status, {"error": message})


def _json(status: int, document: dict[str, object]) -> HttpResponse:
    return HttpResponse(status, json.dumps(document).encode(), (JSON_TYPE,))
