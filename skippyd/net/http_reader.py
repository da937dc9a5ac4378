"""One request off the wire: h11 parses, the limits are ours."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

import attrs
import h11
import trio

from skippyd.net.http_values import HttpRefusalError, HttpRequest


if TYPE_CHECKING:
    from skippyd.net.http_values import HttpLimits
    from skippyd.net.http_wire import ByteWire


_HEAD_READ_BYTES = 16384
_BODY_READ_BYTES = 65536


@attrs.define
class BodyBudget:
    """Bytes of request bodies that all connections hold together."""

    limit_bytes: int
    held_bytes: int = 0

    def take(self, count_bytes: int) -> None:
        """Count bytes in.

        Raises:
            HttpRefusalError: 503, the server holds too many already.
        """
        if self.held_bytes + count_bytes > self.limit_bytes:
            raise HttpRefusalError(503, "too many request bodies at once; try again")
        self.held_bytes += count_bytes

    def give_back(self, count_bytes: int) -> None:
        """Count bytes out."""
        self.held_bytes -= count_bytes


@attrs.define
class RequestReader:
    """Reads the requests of one connection, one after the other.

    Args:
        has_loopback_bind: Only loopback names are right in a Host header then: a
            page of another site that a browser was led to would send its own.
    """

    _wire: ByteWire
    _connection: h11.Connection
    _limits: HttpLimits = attrs.field(kw_only=True)
    _budget: BodyBudget = attrs.field(kw_only=True)
    _has_loopback_bind: bool = attrs.field(kw_only=True)

    async def read_head(self) -> h11.Request | None:
        """The next request line and headers; None when the client is done.

        Raises:
            HttpRefusalError: What is wrong with it.
            PeerGoneError: The connection broke.
        """
        with trio.move_on_after(self._limits.header_s):
            event = await self._next_event(_HEAD_READ_BYTES)
            if not isinstance(event, h11.Request):
                return None
            self._check_head(event)
            return event
        raise HttpRefusalError(
            408, f"the request head did not arrive within {self._limits.header_s:g} s"
        )

    async def read_body(self, head: h11.Request) -> HttpRequest:
        """The rest of the request; its bytes stay counted in the budget.

        Raises:
            HttpRefusalError: Too large, too slow, malformed.
            PeerGoneError: The connection broke.
        """
        if self._connection.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            await self._wire.send(self._connection.send(go_on) or b"")
        body = bytearray()
        try:
            await self._collect_body(body)
        except BaseException:
            self._budget.give_back(len(body))
            raise
        return HttpRequest(
            head.method.decode("ascii"),
            head.target.decode("ascii").partition("?")[0],
            headers=_joined_headers(head),
            body=bytes(body),
        )

    async def _collect_body(self, body: bytearray) -> None:
        limits = self._limits
        deadline = trio.current_time() + limits.body_grace_s
        with trio.CancelScope(deadline=deadline) as scope:
            while True:
                event = await self._next_event(_BODY_READ_BYTES)
                if not isinstance(event, h11.Data):
                    return
                if len(body) + len(event.data) > limits.body_bytes:
                    raise _too_large(limits.body_bytes)
                self._budget.take(len(event.data))
                body += event.data
                scope.deadline = deadline + len(body) / limits.body_bytes_per_s
        raise HttpRefusalError(
            408,
            f"the request body came slower than {limits.body_bytes_per_s} bytes/s",
        )

    async def _next_event(self, read_bytes: int) -> h11.Event | None:
        try:
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                self._connection.receive_data(await self._wire.receive(read_bytes))
            return event if isinstance(event, h11.Event) else None
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            raise HttpRefusalError(status, f"malformed request: {error}") from error

    def _check_head(self, head: h11.Request) -> None:
        limits = self._limits
        head_bytes = sum(len(name) + len(value) + 4 for name, value in head.headers)
        if head_bytes > limits.header_bytes or len(head.headers) > limits.header_count:
            raise HttpRefusalError(
                431,
                f"the headers are larger than {limits.header_bytes} bytes "
                f"or more than {limits.header_count}",
            )
        if len(head.target) > limits.target_bytes:
            raise HttpRefusalError(
                414, f"the request target is longer than {limits.target_bytes} bytes"
            )
        if head.http_version not in {b"1.0", b"1.1"}:
            raise HttpRefusalError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        if not head.target.startswith(b"/"):
            raise HttpRefusalError(400, "the request target must begin with /")
        _check_framing(head, limits.body_bytes)
        if self._has_loopback_bind:
            _check_loopback_host(head)


def _check_framing(head: h11.Request, body_limit_bytes: int) -> None:
    headers = dict(head.headers)
    length = headers.get(b"content-length")
    if b"transfer-encoding" in headers and (
        length is not None or head.http_version == b"1.0"
    ):
        # Two readers of the same bytes would cut them differently.
        raise HttpRefusalError(
            400, "Transfer-Encoding together with Content-Length or HTTP/1.0 is refused"
        )
    if length is not None and int(length) > body_limit_bytes:
        raise _too_large(body_limit_bytes)


def _check_loopback_host(head: h11.Request) -> None:
    for name, value in head.headers:
        if name == b"host" and not is_loopback_host(value.decode("latin-1")):
            raise HttpRefusalError(
                403,
                "this server listens on loopback and answers to localhost and "
                "loopback addresses only; the Host header names another host",
            )


def is_loopback_host(host: str) -> bool:
    """Whether a Host header's value names this machine, whatever the port."""
    if host.startswith("["):
        name = host[1:].partition("]")[0]
    else:
        name = host.partition(":")[0].lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _too_large(limit_bytes: int) -> HttpRefusalError:
    return HttpRefusalError(413, f"the request body is larger than {limit_bytes} bytes")


def _joined_headers(head: h11.Request) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
