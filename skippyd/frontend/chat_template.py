"""Rendering a chat with the model's own template, in a process that can be killed.

One worker process per server, started with it and kept.  A render has a wall
deadline; a worker that overruns it, dies or is left in the middle of an exchange
by a cancelled request is killed, and the next render starts a new one.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from skippyd.errors import SkippyError
from skippyd.units import MIB


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence


logger = logging.getLogger(__name__)

WORKER_PATH = Path(__file__).with_name("template_worker.py")
RENDER_S = 2.0
# An interpreter and jinja2 on a busy machine; not part of any render's deadline.
START_S = 20.0
REAP_S = 5.0
# The worker's limit of 4 MiB characters, each at most four bytes, and its status.
ANSWER_BYTES = 16 * MIB + 1

_FAILED = 1


class TemplateFailedError(SkippyError):
    """The template could not be rendered; the message says why."""


class TemplateRenderer(Protocol):
    """Renders chat templates."""

    async def render(self, template: str, variables: Mapping[str, object]) -> str:
        """The rendered text.

        Raises:
            TemplateFailedError: With the template's own message where it has one.
        """
        ...


def template_variables(
    messages: Sequence[Mapping[str, str]], *, bos_text: str, eos_text: str
) -> dict[str, object]:
    """The names that chat templates use; tools and documents are always absent."""
    return {
        "messages": messages,
        "bos_token": bos_text,
        "eos_token": eos_text,
        "add_generation_prompt": True,
        "tools": None,
        "documents": None,
    }


@attrs.define
class WorkerRenderer:
    """Renders in one worker process; one render at a time."""

    _render_s: float = RENDER_S
    _process: trio.Process | None = attrs.field(default=None, init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while there is none."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the worker now, so that the first render need not wait for it.

        Raises:
            TemplateFailedError: It did not start.
        """
        async with self._lock:
            await self._ensure_started()

    async def render(self, template: str, variables: Mapping[str, object]) -> str:
        """See `TemplateRenderer.render`."""
        # In a thread: a chat may be megabytes, and tokens of others are waiting.
        frame = await trio.to_thread.run_sync(_request_frame, template, variables)
        async with self._lock:
            process = await self._ensure_started()
            with trio.move_on_after(self._render_s):
                answer = await self._exchange(process, frame)
                return _text_of(answer)
        raise TemplateFailedError(
            f"the model's chat template did not end within {self._render_s:g} s"
        )

    async def stop(self) -> None:
        """Kill the worker and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        with trio.CancelScope(shield=True, deadline=trio.current_time() + REAP_S):
            process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()

    async def _ensure_started(self) -> trio.Process:
        if self._process is not None and self._process.poll() is None:
            return self._process
        await self.stop()
        self._process = process = await trio.lowlevel.open_process(
            # Isolated: neither the environment nor the working folder can put
            # other code into the worker.
            [sys.executable, "-I", str(WORKER_PATH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: os.environ[name] for name in ("TZ",) if name in os.environ},
        )
        with trio.move_on_after(START_S):
            await self._exchange(process, None)
            logger.info("event=template_worker_started pid=%d", process.pid)
            return process
        raise TemplateFailedError(
            f"the chat template worker did not start within {START_S:g} s; its own "
            "message is on standard error"
        )

    async def _exchange(self, process: trio.Process, frame: bytes | None) -> bytes:
        """Send a request and read the answer; kill the worker when cut short."""
        is_complete = False
        try:
            answer = await _send_and_receive(process, frame)
            is_complete = True
        except trio.BrokenResourceError as error:
            raise _ended_error() from error
        finally:
            if not is_complete:
                await self.stop()
        return answer


def _request_frame(template: str, variables: Mapping[str, object]) -> bytes:
    request = {"template": template, "variables": variables}
    data = json.dumps(request, ensure_ascii=False).encode("utf-8")
    return struct.pack("<I", len(data)) + data


async def _send_and_receive(process: trio.Process, frame: bytes | None) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    if frame is not None:
        await process.stdin.send_all(frame)
    (length,) = struct.unpack("<I", await _read_exactly(process.stdout, 4))
    if not 1 <= length <= ANSWER_BYTES:
        raise TemplateFailedError("the chat template worker broke its frame")
    return await _read_exactly(process.stdout, length)


async def _read_exactly(source: trio.abc.ReceiveStream, count_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < count_bytes:
        piece = await source.receive_some(count_bytes - len(data))
        if not piece:
            raise _ended_error()
        data += piece
    return bytes(data)


def _ended_error() -> TemplateFailedError:
    return TemplateFailedError(
        "the model's chat template used too much memory or time; its worker ended"
    )


def _text_of(answer: bytes) -> str:
    text = answer[1:].decode("utf-8")
    if answer[0] == _FAILED:
        raise TemplateFailedError(f"the model's chat template failed: {text}")
    return text


@asynccontextmanager
async def open_worker_renderer() -> AsyncIterator[WorkerRenderer]:
    """A renderer whose worker starts and ends with the context."""
    renderer = WorkerRenderer()
    try:
        await renderer.start()
        yield renderer
    finally:
        await renderer.stop()
