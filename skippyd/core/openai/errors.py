"""Every error a client can get: status, type, code and the envelope's JSON."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import assert_never

import attrs

from skippyd.errors import FailureCode, SkippyError


_TRANSPORT_CODES: dict[int, str] = {
    HTTPStatus.REQUEST_TIMEOUT: "timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "payload_too_large",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "headers_too_large",
}


@attrs.frozen
class ApiError:
    """One refusal in OpenAI's words.

    Args:
        status: HTTP status.
        kind: The envelope's `type`.
        code: The envelope's `code`; scripts look at this one.
        message: What is wrong, where, and what to do.
        param: The request field it is about.
        retry_after_s: Seconds after which trying again makes sense.
    """

    status: int
    kind: str
    code: str = attrs.field(kw_only=True)
    message: str = attrs.field(kw_only=True)
    param: str | None = attrs.field(kw_only=True, default=None)
    retry_after_s: int | None = attrs.field(kw_only=True, default=None)

    def body(self) -> bytes:
        """The envelope as JSON."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}, separators=(",", ":")).encode("ascii")


class ApiRefusedError(SkippyError):
    """Ends the work on one request; carries what the client is told."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def invalid_value(message: str, param: str | None = None) -> ApiError:
    """A request that says something wrong (400)."""
    return _invalid(400, "invalid_value", message, param)


def unsupported_feature(message: str, param: str | None = None) -> ApiError:
    """A field or value that is known and not served yet (400)."""
    return _invalid(400, "unsupported_model_feature", message, param)


def context_exceeded(message: str) -> ApiError:
    """A prompt that leaves no room for an answer (400)."""
    return _invalid(400, "context_length_exceeded", message)


def model_not_found(asked: str, served: str) -> ApiError:
    """Another model than the one that is served (404)."""
    message = f"model {asked!r} is not served here; this server serves {served!r}"
    return _invalid(404, "model_not_found", message, "model")


def route_not_found(path: str) -> ApiError:
    """An unknown path (404)."""
    message = (
        f"no such path: {path}; served are /health, /v1/models, "
        "/v1/chat/completions and /v1/completions"
    )
    return _invalid(404, "not_found", message)


def method_not_allowed(method: str, path: str, allowed: str) -> ApiError:
    """A known path with the wrong method (405)."""
    message = f"{method} is not allowed on {path}; use {allowed}"
    return _invalid(405, "method_not_allowed", message)


def unsupported_media_type(message: str) -> ApiError:
    """A body that is not said to be plain JSON (415)."""
    return _invalid(415, "unsupported_media_type", message)


def host_not_allowed(message: str) -> ApiError:
    """A Host header that a page of another site would send (403)."""
    return ApiError(403, "permission_error", code="host_not_allowed", message=message)


def rate_limited(message: str) -> ApiError:
    """No room for the request just now (429)."""
    return ApiError(
        429,
        "rate_limit_error",
        code="rate_limit_exceeded",
        message=message,
        retry_after_s=1,
    )


def unavailable(message: str) -> ApiError:
    """The chain is loading or degraded, or the server is full (503)."""
    return _server_error(503, "service_unavailable", message, retry_after_s=1)


def timed_out(message: str) -> ApiError:
    """The chain took too long (504)."""
    return _server_error(504, "timeout", message)


def internal(message: str) -> ApiError:
    """Our own fault (500)."""
    return _server_error(500, "internal_server_error", message)


def transport_error(status: int, message: str) -> ApiError:
    """What the HTTP layer refused, before any route was looked at."""
    match status:
        case HTTPStatus.FORBIDDEN:
            return host_not_allowed(message)
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return unavailable(message)
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return _server_error(status, "internal_server_error", message)
        case _:
            return _invalid(
                status, _TRANSPORT_CODES.get(status, "invalid_value"), message
            )


def from_failure(code: FailureCode, stage_index: int, message: str) -> ApiError:
    """What a client is told about a stage's failure (contract, "Wire").

    A sampling failure is ours (500): no request field that could cause one, such
    as a grammar, is served yet.
    """
    cause = code.name.lower().replace("_", " ")
    told = f"stage {stage_index}: {cause}: {message}"
    match code:
        case FailureCode.KV_FULL:
            return rate_limited(told)
        case FailureCode.STAGE_LOST | FailureCode.FENCED | FailureCode.CANCELLED:
            return _server_error(502, "service_unavailable", told)
        case FailureCode.TIMEOUT:
            return timed_out(told)
        case (
            FailureCode.PROTOCOL
            | FailureCode.KIND_NOT_SERVED
            | FailureCode.BAD_BATCH
            | FailureCode.SAMPLING
            | FailureCode.INTERNAL
        ):
            return internal(told)
        case _:
            assert_never(code)


def _invalid(
    status: int, code: str, message: str, param: str | None = None
) -> ApiError:
    return ApiError(
        status, "invalid_request_error", code=code, message=message, param=param
    )


def _server_error(
    status: int, code: str, message: str, *, retry_after_s: int | None = None
) -> ApiError:
    return ApiError(
        status,
        "server_error",
        code=code,
        message=message,
        retry_after_s=retry_after_s,
    )
