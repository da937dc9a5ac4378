"""JSON-RPC to the daemon of this machine: calls, streams, and what a refusal means."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from skippyctl.channel import (
    HANDSHAKE_SECONDS,
    PATIENCE_SECONDS,
    BlockingChannel,
    DaemonUnreachableError,
)
from skippyctl.words import clean
from skippyd import __version__
from skippyd.admin.schema import API, ITEM, PATH
from skippyd.errors import ExitCode, SkippyError
from skippyd.net.jsonrpc_messages import (
    Call,
    Failure,
    Result,
    RpcCode,
    RpcError,
    encode_message,
    parse_message,
)


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from skippyd.net.jsonrpc_messages import Message

SILENCE_SECONDS = 30.0
"""After so long without a word the daemon is asked whether it is there, once."""

_EXIT_CODES: dict[int, ExitCode] = {
    RpcCode.NOT_ALLOWED: ExitCode.PERMISSION,
    RpcCode.INVALID_PARAMS: ExitCode.USAGE,
    RpcCode.TOO_MANY_REQUESTS: ExitCode.TRY_AGAIN,
    RpcCode.DEADLINE: ExitCode.TRY_AGAIN,
    RpcCode.NOT_READY: ExitCode.TRY_AGAIN,
}


class RefusedByDaemonError(SkippyError):
    """The daemon's refusal, with the exit code that it asks for."""

    def __init__(self, error: RpcError) -> None:
        super().__init__(clean(error.message))
        self.exit_code = _exit_code(error)


class AdminConnection:
    """An open connection that has said hello.

    Args:
        path: The admin socket.
        patience_s: How long to wait for a daemon that is starting.
        silence_s: How long a stream may be silent before the daemon is asked.

    Raises:
        DaemonUnreachableError: Nothing answers.
        SocketDeniedError: This user may not open the socket.
        RefusedByDaemonError: The daemon speaks another version.
    """

    def __init__(
        self,
        path: Path,
        *,
        patience_s: float = PATIENCE_SECONDS,
        silence_s: float = SILENCE_SECONDS,
    ) -> None:
        self._path = path
        self._silence_s = silence_s
        self._next_id = 1
        self._channel = BlockingChannel(path, PATH, patience_s=patience_s)
        try:
            hello = {"schema": "skippy.hello/1", "api": API, "version": __version__}
            self.call("hello", hello, timeout_s=HANDSHAKE_SECONDS)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close; the daemon notices at once."""
        self._channel.close()

    def call(
        self, method: str, params: object = None, *, timeout_s: float
    ) -> dict[str, object]:
        """Ask and wait for the answer.

        Raises:
            RefusedByDaemonError: The daemon answered with an error.
            DaemonUnreachableError: It did not answer in time, or is gone.
        """
        call_id = self._send(method, params)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                text = self._channel.receive(deadline - time.monotonic())
            except TimeoutError as error:
                raise self._silent(method, timeout_s) from error
            message = None if text is None else self._parse(text)
            if message is not None and not isinstance(message, Call):
                return _outcome(message, call_id)

    def stream(self, method: str, params: object = None) -> Iterator[dict[str, object]]:
        """Ask for a stream and yield its documents; ends when the daemon ends it.

        Raises:
            RefusedByDaemonError: The daemon ended it with an error.
            DaemonUnreachableError: The daemon is gone.
        """
        call_id = self._send(method, params)
        while True:
            message = self._parse(self._receive_or_ping(method))
            match message:
                case Call(method=name, params={"document": dict(document)}):
                    if name == ITEM:
                        yield document
                case Call():
                    continue
                case _:
                    _outcome(message, call_id)
                    return

    def _send(self, method: str, params: object) -> int:
        call_id, self._next_id = self._next_id, self._next_id + 1
        message = Call(method=method, params=params, id=call_id)
        self._channel.send(encode_message(message))
        return call_id

    def _receive_or_ping(self, method: str) -> str:
        was_asked = False
        while True:
            try:
                text = self._channel.receive(self._silence_s)
            except TimeoutError as error:
                if was_asked:
                    raise self._silent(method, 2 * self._silence_s) from error
                self._channel.ping()
                was_asked = True
                continue
            if text is not None:
                return text
            was_asked = False

    def _parse(self, text: str) -> Message:
        try:
            return parse_message(text)
        except RpcError as error:
            raise self._channel.lost(f"it sent what is no answer: {error}") from error

    def _silent(self, method: str, seconds: float) -> DaemonUnreachableError:
        return DaemonUnreachableError(
            f"the daemon at {self._path} did not answer {method} within {seconds:g} s; "
            "it may be stopped or overloaded"
        )


def _outcome(message: Message, call_id: int) -> dict[str, object]:
    match message:
        case Result(id=answered, value=dict(value)) if answered == call_id:
            return value
        case Failure(error=error):
            raise RefusedByDaemonError(error)
        case _:
            text = "the daemon answered something that was not asked"
            raise RefusedByDaemonError(RpcError(RpcCode.INTERNAL, text))


def _exit_code(error: RpcError) -> ExitCode:
    wanted = error.data.get("exit_code")
    if isinstance(wanted, int) and wanted in set(ExitCode):
        return ExitCode(wanted)
    return _EXIT_CODES.get(error.code, ExitCode.FAILED)
