"""One operator's connection: what is said first, what is allowed, what is logged."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd import __version__
from skippyd.admin import schema
from skippyd.admin.access import READERS, WRITERS, Permission
from skippyd.admin.api import HELLO
from skippyd.admin.handlers import METHODS, STREAMS, Method, Stream
from skippyd.config.complaints import InvalidConfigError
from skippyd.config.convert import structure, unstructure
from skippyd.errors import ExitCode, SkippyError
from skippyd.net.jsonrpc import RpcConnection
from skippyd.net.jsonrpc_messages import RpcCode, RpcError


if TYPE_CHECKING:
    from skippyd.admin.node_view import NodeView
    from skippyd.net.jsonrpc import TextChannel
    from skippyd.net.unix import PeerCredentials

logger = logging.getLogger("skippyd.admin")

_ENTRIES: tuple[Method | Stream, ...] = (*METHODS, *STREAMS)
_TABLE = {entry.name: entry for entry in _ENTRIES}


@attrs.define(eq=False, kw_only=True)
class AdminSession:
    """Answers one peer.

    Args:
        view: The node.
        peer: Who the kernel says it is.
        permission: What that user may do.
    """

    view: NodeView
    peer: PeerCredentials
    permission: Permission
    _connection: RpcConnection | None = attrs.field(default=None, init=False)
    _has_said_hello: bool = attrs.field(default=False, init=False)
    _is_streaming: bool = attrs.field(default=False, init=False)

    async def run(self, channel: TextChannel) -> str:
        """Serve until the channel ends; return why it did."""
        self._connection = RpcConnection(channel, handler=self.answer)
        return await self._connection.run()

    async def answer(self, method: str, params: object) -> object:
        """Answer one request.

        Raises:
            RpcError: It is not allowed, not understood, or could not be done.
        """
        if method == HELLO:
            return self._hello(params)
        if not self._has_said_hello:
            message = f"say {HELLO} first, with the api version"
            raise RpcError(RpcCode.INVALID_REQUEST, message)
        entry = self._entry(method)
        try:
            return await self._serve(entry, params)
        except RpcError:
            raise
        except InvalidConfigError as error:
            raise _rpc_error(RpcCode.INVALID_PARAMS, error, ExitCode.USAGE) from error
        except SkippyError as error:
            raise _rpc_error(RpcCode.REFUSED, error, error.exit_code) from error

    async def _serve(self, entry: Method | Stream, params: object) -> object:
        if isinstance(entry, Stream):
            return await self._stream(entry, params)
        if entry.permission is Permission.WRITE:
            return await self._write(entry, params)
        return await self._ask(entry, params)

    def _hello(self, params: object) -> object:
        try:
            theirs = structure(params, schema.Hello, source=HELLO)
        except InvalidConfigError as error:
            raise _rpc_error(RpcCode.INVALID_PARAMS, error, ExitCode.USAGE) from error
        if theirs.api != schema.API:
            raise RpcError(
                RpcCode.REFUSED,
                f"skippyd {__version__} speaks admin version {schema.API}, skippyctl "
                f"{theirs.version[:32]} version {theirs.api}; use the skippyctl that "
                "came with it, or restart skippyd after an upgrade",
                {"exit_code": int(ExitCode.FAILED)},
            )
        self._has_said_hello = True
        return unstructure(schema.Hello(api=schema.API, version=__version__))

    def _entry(self, method: str) -> Method | Stream:
        entry = _TABLE.get(method)
        if entry is None:
            message = f"no method {method!r}; this is skippyd {__version__}"
            raise RpcError(RpcCode.UNKNOWN_METHOD, message)
        if self.permission >= entry.permission:
            return entry
        group = WRITERS if entry.permission is Permission.WRITE else READERS
        if entry.permission is Permission.WRITE:
            logger.warning(
                "event=admin_refused uid=%d pid=%d method=%s",
                self.peer.uid,
                self.peer.pid,
                entry.name,
            )
        raise RpcError(
            RpcCode.NOT_ALLOWED,
            f"permission denied: user id {self.peer.uid} may not use {entry.name}; "
            f"join group {group} or use sudo",
            {"exit_code": int(ExitCode.PERMISSION)},
        )

    async def _ask(self, entry: Method, params: object) -> object:
        with trio.move_on_after(entry.deadline_s):
            return document(await entry.answer(self.view, params, self.peer.uid))
        raise RpcError(
            RpcCode.DEADLINE,
            f"{entry.name} took longer than {entry.deadline_s:g} s; what it began may "
            "go on: look at status",
            {"exit_code": int(ExitCode.TRY_AGAIN)},
        )

    async def _write(self, entry: Method, params: object) -> object:
        outcome = "cut off"
        try:
            done = await self._ask(entry, params)
        except SkippyError as error:
            outcome = str(error)
            raise
        else:
            outcome = "done"
            return done
        finally:
            # Values are left out: one of them is the secret of an invitation.
            logger.info(
                "event=admin_write uid=%d pid=%d method=%s outcome=%r",
                self.peer.uid,
                self.peer.pid,
                entry.name,
                outcome,
            )

    async def _stream(self, entry: Stream, params: object) -> object:
        assert self._connection is not None
        if self._is_streaming:
            message = "one stream a connection; open another one"
            raise RpcError(RpcCode.TOO_MANY_REQUESTS, message)
        self._is_streaming = True
        try:
            stream = entry.documents(self.view, params)
            async with contextlib.aclosing(stream) as documents:
                async for each in documents:
                    item = {"method": entry.name, "document": document(each)}
                    await self._connection.notify(schema.ITEM, item)
        finally:
            self._is_streaming = False
        return document(schema.Done(message="the stream has ended"))


def document(value: object) -> dict[str, object]:
    """Write a document; an event without the keys it has no value for."""
    written = unstructure(value)
    return schema.present_keys(written) if isinstance(value, schema.Event) else written


def _rpc_error(code: RpcCode, error: SkippyError, exit_code: ExitCode) -> RpcError:
    return RpcError(code, str(error), {"exit_code": int(exit_code)})
