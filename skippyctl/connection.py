"""JSON-RPC to the daemon of this machine: calls, streams, and what a refusal means."""

from __future__ import annotations

import json
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
from skippyd.admin.api import API, HELLO, ITEM, PATH
from skippyd.errors import ExitCode, SkippyError


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SILENCE_SECONDS = 30.0
"""After so long without a word the daemon is asked whether it is there, once."""

_EXIT_CODES = {
    -32602: ExitCode.USAGE,  # invalid parameters
    -32001: ExitCode.TRY_AGAIN,  # too many requests
    -32002: ExitCode.TRY_AGAIN,  # took too long
    -32003: ExitCode.PERMISSION,
    -32005: ExitCode.TRY_AGAIN,  # not ready
}
"""Codes of `skippyd.net.jsonrpc_messages`, for answers that ask for no exit code."""


class RefusedByDaemonError(SkippyError):
    """The daemon's refusal, with the exit code that it asks for."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(clean(message))
        self.exit_code = exit_code


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
            self.call(HELLO, hello, timeout_s=HANDSHAKE_SECONDS)
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
            message = {} if text is None else self._parse(text)
            if "result" in message or "error" in message:
                return self._outcome(message, call_id)

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
                case {"method": name, "params": {"document": dict(document)}}:
                    if name == ITEM:
                        yield document
                case {"result": _} | {"error": _}:
                    self._outcome(message, call_id)
                    return
                case _:
                    continue

    def _send(self, method: str, params: object) -> int:
        call_id, self._next_id = self._next_id, self._next_id + 1
        message: dict[str, object] = {"jsonrpc": "2.0", "id": call_id, "method": method}
        if params is not None:
            message["params"] = params
        self._channel.send(json.dumps(message, separators=(",", ":")))
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

    def _parse(self, text: str) -> dict[str, object]:
        try:
            message: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._channel.lost(f"it sent what is no answer: {error}") from error
        if not isinstance(message, dict):
            raise self._channel.lost("it sent what is no answer")
        return message

    def _outcome(self, message: dict[str, object], call_id: int) -> dict[str, object]:
        match message:
            case {"result": dict(result), "id": answered} if answered == call_id:
                return result
            case {"error": {"code": int(code), "message": str(text), **rest}}:
                raise RefusedByDaemonError(text, _exit_code(code, rest.get("data")))
            case _:
                raise self._channel.lost("it answered something that was not asked")

    def _silent(self, method: str, seconds: float) -> DaemonUnreachableError:
        return DaemonUnreachableError(
            f"the daemon at {self._path} did not answer {method} within {seconds:g} s; "
            "it may be stopped or overloaded"
        )


def _exit_code(code: int, data: object) -> ExitCode:
    wanted = data.get("exit_code") if isinstance(data, dict) else None
    if isinstance(wanted, int) and wanted in set(ExitCode):
        return ExitCode(wanted)
    return _EXIT_CODES.get(code, ExitCode.FAILED)
