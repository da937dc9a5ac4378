"""The daemon's log: one logfmt line an event, and the newest lines kept for operators.

Writing happens in a thread of its own with a bounded queue: a full pipe at standard
error costs lines, which are counted, and never the loop's time.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import logging
import logging.handlers
import os
import queue
import re
import sys
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT_LINES = 2_000
"""As many as may be asked for at once."""
QUEUED_LINES = 8_192
LONGEST_MESSAGE = 8_192
STAGE_LOGGER = "skippyd.stage"
CHATTERER = "trio-websocket"
ROOT_LOGGER = "skippyd"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
STAGE_LINE = re.compile(r"\S{20,32}Z (DEBUG|INFO|WARNING|ERROR) (.*)", re.DOTALL)
STAGE_LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
}
PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Of sd-daemon: error, warning, informational; what is less is debug, 7."""

DEBUG_PRIORITY = 7


@attrs.frozen(kw_only=True)
class LogLine:
    """One kept line.

    Args:
        sequence: Grows by one with each line since the start.
        source: The part of the daemon, or a stage and its process.
    """

    sequence: int
    unix_ms: int
    level: str
    source: str
    message: str


@attrs.define(eq=False)
class LogRing:
    """The newest lines, oldest first."""

    _lines: deque[LogLine] = attrs.field(
        factory=lambda: deque(maxlen=KEPT_LINES), init=False
    )
    _last: int = attrs.field(default=0, init=False)

    def add(self, record: logging.LogRecord) -> None:
        """Keep a record's line; the oldest goes when the ring is full."""
        self._last += 1
        self._lines.append(
            LogLine(
                sequence=self._last,
                unix_ms=int(record.created * 1000),
                level=record.levelname.lower(),
                source=source_of(record),
                message=message_of(record),
            )
        )

    def after(self, sequence: int, limit: int) -> tuple[tuple[LogLine, ...], int]:
        """The newest lines after a number, and how many after it are not among them."""
        newest = tuple(self._lines)[-limit:] if limit > 0 else ()
        items = tuple(line for line in newest if line.sequence > sequence)
        return items, max(0, self._last - max(0, sequence)) - len(items)


class _RingHandler(logging.Handler):
    def __init__(self, ring: LogRing) -> None:
        super().__init__()
        self._ring = ring

    def emit(self, record: logging.LogRecord) -> None:
        self._ring.add(record)


class _DroppingQueueHandler(logging.handlers.QueueHandler):
    """Hands records to the writer's thread; one that finds no room is counted."""

    dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        # Arguments may change after this, and nothing is pickled.
        prepared = copy.copy(record)
        prepared.msg, prepared.args = message_of(record), None
        prepared.exc_info = prepared.exc_text = None
        return prepared

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1
            return
        if self.dropped:
            dropped, self.dropped = self.dropped, 0
            note = logging.LogRecord(
                ROOT_LOGGER,
                logging.WARNING,
                "",
                0,
                "event=log_dropped lines=%d",
                (dropped,),
                None,
            )
            with contextlib.suppress(queue.Full):
                self.queue.put_nowait(note)


class LogfmtFormatter(logging.Formatter):
    """One logfmt line; with a priority for the journal, with a time elsewhere."""

    def __init__(self, *, is_for_journal: bool) -> None:
        super().__init__()
        self._is_for_journal = is_for_journal

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        fields = (
            f"level={record.levelname.lower()} source={quoted(source_of(record))} "
            f"msg={quoted(message_of(record))}"
        )
        if self._is_for_journal:
            return f"<{priority(record.levelno)}>{fields}"
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"ts={moment}.{int(record.msecs):03d}Z {fields}"


def start_logging(level: str, environment: Mapping[str, str]) -> LogRing:
    """Write the log of this process to standard error and keep its newest lines."""
    ring = LogRing()
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(LogfmtFormatter(is_for_journal=is_journal(environment)))
    lines: queue.Queue[logging.LogRecord] = queue.Queue(QUEUED_LINES)
    listener = logging.handlers.QueueListener(lines, writer)
    listener.start()
    atexit.register(listener.stop)
    logging.basicConfig(
        level=level.upper(),
        handlers=[_DroppingQueueHandler(lines), _RingHandler(ring)],
        force=True,
    )
    # It logs each frame, and so each line of this very log that an operator follows.
    logging.getLogger(CHATTERER).setLevel(logging.INFO)
    return ring


def stage_line(name: str, pid: int, line: str) -> None:
    """Log one line that a stage process wrote, as grave as that one says it is."""
    level, text = logging.INFO, line
    if (found := STAGE_LINE.match(line)) is not None:
        level, text = STAGE_LEVELS[found[1]], found[2]
    logging.getLogger(f"{STAGE_LOGGER}.{name}").log(level, "pid=%d %s", pid, text)


def set_level(level: str) -> None:
    """Change what is written, after the configuration was read again."""
    logging.getLogger().setLevel(level.upper())


def is_journal(environment: Mapping[str, str], descriptor: int = 2) -> bool:
    """Whether standard error is the journal's own stream, as it says."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def priority(level: int) -> int:
    """The sd-daemon priority of a level."""
    for least, number in PRIORITIES:
        if level >= least:
            return number
    return DEBUG_PRIORITY


def source_of(record: logging.LogRecord) -> str:
    """The part of the program, without the program's own name."""
    return record.name.removeprefix(f"{ROOT_LOGGER}.")


def message_of(record: logging.LogRecord) -> str:
    """What is said, a traceback after it, on one line without control characters."""
    text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        trace = "".join(traceback.format_exception(record.exc_info[1]))
        text = f"{text}\n{trace.rstrip()}"
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)[:LONGEST_MESSAGE]


def quoted(text: str) -> str:
    """A logfmt value: quotes only where they are needed."""
    if text and not re.search(r'[\s"=\\]', text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
