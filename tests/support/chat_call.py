"""One OpenAI call over http.client, taken apart so that a test can act in between."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Self

import attrs


if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 15.0


@attrs.frozen
class Answer:
    """A response that came whole."""

    status: int
    headers: dict[str, str]
    document: dict[str, object]

    @property
    def error(self) -> dict[str, object]:
        """The inside of the error envelope."""
        error = self.document["error"]
        assert isinstance(error, dict)
        return error


@attrs.define(eq=False)
class Call:
    """A request that has been sent."""

    connection: http.client.HTTPConnection
    _response: http.client.HTTPResponse | None = None

    @classmethod
    def send(cls, port: int, body: dict[str, object]) -> Self:
        """POST a completion request and return without waiting."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps({"model": "m", "temperature": 0, **body}),
            {"Content-Type": "application/json"},
        )
        return cls(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection, answered or not."""
        if self._response is not None:
            self._response.close()
        self.connection.close()

    def answer(self) -> Answer:
        """Wait for the whole response."""
        response = self.connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, headers, json.loads(response.read()))
        self.connection.close()
        return answer

    def events(self) -> Iterator[dict[str, object]]:
        """Server-sent events as they come; ends with the stream."""
        self._response = response = self.connection.getresponse()
        assert response.status == http.HTTPStatus.OK, response.read()
        while line := response.readline():
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line.removeprefix(b"data: "))


def get(port: int, path: str) -> Answer:
    """GET a path."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answer(response.status, {}, json.loads(response.read()))
    finally:
        connection.close()


@attrs.define
class Stopwatch:
    """Time since a moment."""

    _began: float = attrs.Factory(time.monotonic)

    @property
    def seconds(self) -> float:
        """Since then."""
        return time.monotonic() - self._began
