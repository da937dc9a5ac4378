from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from skippyd.daemon.logs import (
    KEPT_LINES,
    LogfmtFormatter,
    LogRing,
    is_journal,
    message_of,
    priority,
    quoted,
    source_of,
)


if TYPE_CHECKING:
    from pathlib import Path


def _record(
    message: str, level: int = logging.INFO, *args: object
) -> logging.LogRecord:
    record = logging.LogRecord("skippyd.rollout", level, "", 0, message, args, None)
    record.created, record.msecs = 1_764_468_000.25, 250.0
    return record


def test_a_line_is_logfmt_with_its_time() -> None:
    line = LogfmtFormatter(is_for_journal=False).format(_record("run=%s", 20, "r1"))
    assert line == (
        'ts=2025-11-30T02:00:00.250Z level=info source=rollout msg="run=r1"'
    )


@pytest.mark.parametrize(
    ("level", "number"),
    [(10, 7), (20, 6), (30, 4), (40, 3), (50, 3)],
)
def test_the_journal_gets_a_priority_and_no_time(level: int, number: int) -> None:
    line = LogfmtFormatter(is_for_journal=True).format(_record("done", level))
    assert priority(level) == number
    assert line.startswith(f"<{number}>level=")
    assert "ts=" not in line


def test_no_message_breaks_its_line() -> None:
    text = message_of(_record("a\nb\r\x1b[2J\x00\x85\u2028c"))
    assert text == "a\\nb\\r\\x1b[2J\\x00\\x85\\u2028c"
    assert quoted('say "x"') == '"say \\"x\\""'
    assert quoted("") == '""'
    assert source_of(_record("")) == "rollout"


def test_a_traceback_stays_on_the_line() -> None:
    record = _record("failed")
    try:
        raise ValueError("broken")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    text = message_of(record)
    assert "\n" not in text
    assert text.startswith("failed\\nTraceback")
    assert text.endswith("ValueError: broken")


def test_the_ring_keeps_the_newest_and_tells_what_is_gone() -> None:
    ring = LogRing()
    for number in range(KEPT_LINES + 10):
        ring.add(_record("%d", 20, number))
    lines, missed = ring.after(0, 5)
    assert [line.message for line in lines] == [
        str(KEPT_LINES + n) for n in range(5, 10)
    ]
    assert missed == KEPT_LINES + 5
    last = lines[-1].sequence
    assert ring.after(last, 5) == ((), 0)
    assert lines[-1].unix_ms == 1_764_468_000_250


def test_standard_error_is_the_journals_only_when_it_is_the_same_file(
    tmp_path: Path,
) -> None:
    with (tmp_path / "stream").open("w") as stream:
        status = os.fstat(stream.fileno())
        name = f"{status.st_dev}:{status.st_ino}"
        assert is_journal({"JOURNAL_STREAM": name}, stream.fileno())
        assert not is_journal({"JOURNAL_STREAM": f"{name}1"}, stream.fileno())
        assert not is_journal({}, stream.fileno())


@pytest.mark.slow
def test_a_process_writes_each_line_once_and_keeps_it() -> None:
    program = (
        "import logging, os\n"
        "from skippyd.daemon.logs import set_level, stage_line, start_logging\n"
        "ring = start_logging('info', os.environ)\n"
        "logging.getLogger('skippyd.daemon').info('event=%s', 'ready')\n"
        "logging.getLogger('skippyd.daemon').debug('unseen')\n"
        "set_level('debug')\n"
        "logging.getLogger('skippyd.daemon').debug('seen')\n"
        "# Each frame that carries a log line would make another one.\n"
        "logging.getLogger('trio-websocket').debug('a frame')\n"
        "stage_line('stage-1', 7, 'loading')\n"
        "line = '2025-11-30T02:00:00.250Z WARNING skippyd.chain lost'\n"
        "stage_line('stage-1', 7, line)\n"
        "print([line.message for line in ring.after(0, 9)[0]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (
        done.stdout
        == "['event=ready', 'seen', 'pid=7 loading', 'pid=7 skippyd.chain lost']\n"
    )
    assert [line.partition("level=")[2] for line in done.stderr.splitlines()] == [
        'info source=daemon msg="event=ready"',
        "debug source=daemon msg=seen",
        'info source=stage.stage-1 msg="pid=7 loading"',
        'warning source=stage.stage-1 msg="pid=7 skippyd.chain lost"',
    ]
