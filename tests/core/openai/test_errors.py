"""The table of skippy-facts 5.3 and the contract's failure codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from skippyd.core.openai import errors
from skippyd.errors import FailureCode


if TYPE_CHECKING:
    from skippyd.core.openai.errors import ApiError


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "retry_after_s"),
    [
        (
            errors.invalid_value("m"),
            400,
            "invalid_request_error",
            "invalid_value",
            None,
        ),
        (
            errors.unsupported_feature("m"),
            *(400, "invalid_request_error", "unsupported_model_feature", None),
        ),
        (
            errors.unsupported_media_type("m"),
            *(415, "invalid_request_error", "unsupported_media_type", None),
        ),
        (
            errors.context_exceeded("m"),
            *(400, "invalid_request_error", "context_length_exceeded", None),
        ),
        (
            errors.model_not_found("a", "b"),
            *(404, "invalid_request_error", "model_not_found", None),
        ),
        (errors.route_not_found("/x"), 404, "invalid_request_error", "not_found", None),
        (
            errors.method_not_allowed("GET", "/x", "POST"),
            *(405, "invalid_request_error", "method_not_allowed", None),
        ),
        (
            errors.rate_limited("m"),
            *(429, "rate_limit_error", "rate_limit_exceeded", 1),
        ),
        (errors.unavailable("m"), 503, "server_error", "service_unavailable", 1),
        (errors.timed_out("m"), 504, "server_error", "timeout", None),
        (errors.internal("m"), 500, "server_error", "internal_server_error", None),
        (
            errors.transport_error(413, "m"),
            *(413, "invalid_request_error", "payload_too_large", None),
        ),
        (
            errors.transport_error(431, "m"),
            *(431, "invalid_request_error", "headers_too_large", None),
        ),
        (
            errors.transport_error(408, "m"),
            *(408, "invalid_request_error", "timeout", None),
        ),
        (
            errors.transport_error(400, "m"),
            *(400, "invalid_request_error", "invalid_value", None),
        ),
        (
            errors.transport_error(403, "m"),
            *(403, "permission_error", "host_not_allowed", None),
        ),
        (
            errors.transport_error(503, "m"),
            *(503, "server_error", "service_unavailable", 1),
        ),
        (
            errors.transport_error(505, "m"),
            *(505, "server_error", "internal_server_error", None),
        ),
    ],
)
def test_each_kind_of_refusal_has_its_status_type_and_code(
    error: ApiError, status: int, kind: str, code: str, retry_after_s: int | None
) -> None:
    assert (error.status, error.kind, error.code) == (status, kind, code)
    assert error.retry_after_s == retry_after_s


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (FailureCode.PROTOCOL, 500, "internal_server_error"),
        (FailureCode.KIND_NOT_SERVED, 500, "internal_server_error"),
        (FailureCode.KV_FULL, 429, "rate_limit_exceeded"),
        (FailureCode.BAD_BATCH, 500, "internal_server_error"),
        (FailureCode.STAGE_LOST, 502, "service_unavailable"),
        (FailureCode.FENCED, 502, "service_unavailable"),
        (FailureCode.CANCELLED, 502, "service_unavailable"),
        (FailureCode.TIMEOUT, 504, "timeout"),
        (FailureCode.SAMPLING, 500, "internal_server_error"),
        (FailureCode.INTERNAL, 500, "internal_server_error"),
    ],
)
def test_a_stage_failure_names_the_stage_and_keeps_its_meaning(
    failure: FailureCode, status: int, code: str
) -> None:
    error = errors.from_failure(failure, 2, "connection closed")
    assert (error.status, error.code) == (status, code)
    assert error.message.startswith("stage 2: ")
    assert error.message.endswith("connection closed")


def test_the_envelope_has_openais_four_keys() -> None:
    body = errors.invalid_value('say "é"', "stop").body()
    assert json.loads(body) == {
        "error": {
            "message": 'say "é"',
            "type": "invalid_request_error",
            "param": "stop",
            "code": "invalid_value",
        }
    }
    assert body.isascii()
