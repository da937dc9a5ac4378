"""JSON-RPC 2.0 messages: values, their text on the wire, and refusals by code.

What a peer sends is bounded before it is looked at: nesting, ids, names of methods.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import TYPE_CHECKING

import attrs

from skippyd.config.documents import parse_json
from skippyd.errors import ConfigError, SkippyError


if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "2.0"
LONGEST_ID = 64
LONGEST_METHOD = 64

RequestId = int | str
"""What a sender marks its request with."""


class RpcCode(IntEnum):
    """Why a request was not answered with a result (JSON-RPC 2.0, section 5.1)."""

    PARSE = -32700
    INVALID_REQUEST = -32600
    UNKNOWN_METHOD = -32601
    INVALID_PARAMS = -32602
    INTERNAL = -32603
    TOO_MANY_REQUESTS = -32001
    DEADLINE = -32002
    NOT_ALLOWED = -32003
    REFUSED = -32004
    NOT_READY = -32005


class RpcError(SkippyError):
    """A request was answered with an error.

    Args:
        code: One of `RpcCode`, or what a newer peer invented.
        message: What is wrong, for people.
        data: What a program may want to know: `reason`, `hint`, `exit_code`.
    """

    def __init__(
        self, code: int, message: str, data: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = dict(data or {})


@attrs.frozen(kw_only=True)
class Call:
    """A request or, without an id, a notification."""

    method: str
    params: object
    id: RequestId | None


@attrs.frozen
class Result:
    """The answer to a request that was done."""

    id: RequestId
    value: object


@attrs.frozen
class Failure:
    """The answer to a request that was not; the id is None when it had none to read."""

    id: RequestId | None
    error: RpcError


Message = Call | Result | Failure


def parse_message(text: str) -> Message:
    """Read one message.

    Raises:
        RpcError: PARSE when it is no JSON, INVALID_REQUEST when it is no JSON-RPC 2.0.
    """
    try:
        document = parse_json(text, source="message")
    except ConfigError as error:
        raise RpcError(RpcCode.PARSE, str(error)) from error
    if isinstance(document, list):
        raise invalid_request("batches are not served; send one message at a time")
    if not isinstance(document, dict) or document.get("jsonrpc") != VERSION:
        raise invalid_request('a message is an object with "jsonrpc": "2.0"')
    if "method" in document:
        return _call(document)
    if unknown := document.keys() - {"jsonrpc", "id", "result", "error"}:
        raise invalid_request(f"unknown member {min(unknown)[:LONGEST_METHOD]!r}")
    if ("result" in document) == ("error" in document):
        raise invalid_request("an answer has either a result or an error")
    if "result" in document:
        return Result(_id(document), document["result"])
    return Failure(_id_or_null(document), _error(document["error"]))


def encode_message(message: Message) -> str:
    """Write one message, on one line and without spaces."""
    document: dict[str, object] = {"jsonrpc": VERSION}
    match message:
        case Call(method=method, params=params, id=id_):
            document |= {"method": method}
            document |= {} if params is None else {"params": params}
            document |= {} if id_ is None else {"id": id_}
        case Result(id=id_, value=value):
            document |= {"id": id_, "result": value}
        case Failure(id=failed_id, error=error):
            shape: dict[str, object] = {"code": error.code, "message": error.message}
            shape |= {"data": error.data} if error.data else {}
            document |= {"id": failed_id, "error": shape}
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _call(document: Mapping[str, object]) -> Call:
    if unknown := document.keys() - {"jsonrpc", "id", "method", "params"}:
        raise invalid_request(f"unknown member {min(unknown)[:LONGEST_METHOD]!r}")
    method, params = document["method"], document.get("params")
    if not isinstance(method, str) or not 0 < len(method) <= LONGEST_METHOD:
        raise invalid_request(f"method is a text of 1 to {LONGEST_METHOD} characters")
    if params is not None and not isinstance(params, dict):
        raise invalid_request("params is an object")
    is_request = "id" in document
    return Call(method=method, params=params, id=_id(document) if is_request else None)


def _id(document: Mapping[str, object]) -> RequestId:
    match document.get("id"):
        case bool():
            raise invalid_request("id is a number or a short text")
        case int(number):
            return number
        case str(text) if len(text) <= LONGEST_ID:
            return text
        case _:
            raise invalid_request("id is a number or a short text")


def _id_or_null(document: Mapping[str, object]) -> RequestId | None:
    return None if document.get("id") is None else _id(document)


def _error(value: object) -> RpcError:
    match value:
        case {"code": int(code), "message": str(message), "data": dict(data)}:
            return RpcError(code, message, data)
        case {"code": int(code), "message": str(message)}:
            return RpcError(code, message)
        case _:
            raise invalid_request("an error has a code and a message")


def invalid_request(message: str) -> RpcError:
    """Say that a message is no JSON-RPC 2.0."""
    return RpcError(RpcCode.INVALID_REQUEST, message)
