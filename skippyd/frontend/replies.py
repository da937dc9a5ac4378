"""Our documents and errors as HTTP responses, each with its request id."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from skippyd.core.openai.errors import ApiError, transport_error
from skippyd.net.http_values import HttpRequest, HttpResponse


if TYPE_CHECKING:
    from skippyd.net.http_exchange import Exchange


JSON_TYPE = ("content-type", "application/json")


def request_id_of(request: HttpRequest) -> str:
    """The client's `x-request-id` when it is a UUID, else a new one."""
    asked = request.headers.get("x-request-id", "")
    try:
        return str(uuid.UUID(asked))
    except ValueError:
        return str(uuid.uuid4())


def id_header(request_id: str) -> tuple[str, str]:
    """The header every response carries."""
    return ("x-request-id", request_id)


async def reply_json(
    exchange: Exchange, body: bytes, request_id: str, *, status: int = 200
) -> None:
    """Send a JSON document."""
    headers = (JSON_TYPE, id_header(request_id))
    await exchange.respond(HttpResponse(status, body, headers))


def error_response(
    error: ApiError, request_id: str, *headers: tuple[str, str]
) -> HttpResponse:
    """An error as a response, with `Retry-After` where trying again makes sense."""
    all_headers = [JSON_TYPE, id_header(request_id), *headers]
    if error.retry_after_s is not None:
        all_headers.append(("retry-after", str(error.retry_after_s)))
    return HttpResponse(error.status, error.body(), tuple(all_headers))


def refusal_shape(status: int, message: str) -> HttpResponse:
    """What the HTTP layer refused, in OpenAI's envelope."""
    return error_response(transport_error(status, message), str(uuid.uuid4()))
