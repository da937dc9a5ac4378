from __future__ import annotations

from uuid import UUID

from skippyd.core.openai.errors import invalid_value, rate_limited
from skippyd.frontend.replies import error_response, refusal_shape, request_id_of
from skippyd.net.http_values import HttpRequest


MINE = "0b4f8a52-9f0e-4a53-9d4b-0f6d4d3d1c11"


def asked(request_id: str) -> HttpRequest:
    return HttpRequest("GET", "/", headers={"x-request-id": request_id}, body=b"")


def test_a_uuid_is_kept_and_anything_else_replaced() -> None:
    assert request_id_of(asked(MINE)) == MINE
    for other in ("", "x", MINE + "0", "é" * 500):
        assert UUID(request_id_of(asked(other))) != UUID(MINE)


def test_an_error_carries_its_id_and_when_to_try_again() -> None:
    busy = error_response(rate_limited("busy"), MINE)
    assert (busy.status, dict(busy.headers)["retry-after"]) == (429, "1")
    wrong = error_response(invalid_value("wrong"), MINE, ("allow", "GET"))
    assert dict(wrong.headers) == {
        "content-type": "application/json",
        "x-request-id": MINE,
        "allow": "GET",
    }


def test_a_refusal_of_the_http_layer_gets_an_id_too() -> None:
    shaped = refusal_shape(413, "too large")
    assert b'"code":"payload_too_large"' in shaped.body
    assert str(UUID(dict(shaped.headers)["x-request-id"]))
