"""A stage program that does one thing wrong; put before the arguments of a real one.

`python faulty_stage.py FAULT STAGE_ID serve-binary ...` is `skippyd serve-binary ...`
except in the stage named STAGE_ID:

- `tamper` adds 1e-3 to one value of the activation of its third decoded token (the
  first may be a canary's);
- `assert` fails one of ggml's own assertions at its first batch;
- `kill` is killed by SIGKILL at its first batch.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from skippyd.cli.main import main
from skippyd.runtime.llama.bindings import ggml_base
from skippyd.runtime.llama.context import StageContext
from skippyd.runtime.stage_runtime import LlamaStageRuntime


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skippyd.runtime.llama.batch import BatchPart

    Rows = np.ndarray[tuple[int, int], np.dtype[np.float32]]

AMOUNT = 1e-3
TAMPERED_TOKEN = 3


def command(fault: str, stage_id: str) -> tuple[str, ...]:
    """The program to start stages with."""
    return (sys.executable, str(Path(__file__).resolve()), fault, stage_id)


class _Tampering:
    def __init__(self) -> None:
        self.decoded = 0

    def __call__(self, rows: Rows | None) -> None:
        if rows is None or len(rows) != 1:
            return
        self.decoded += 1
        if self.decoded == TAMPERED_TOKEN:
            rows[0, 3] += AMOUNT


def _assert(_rows: Rows | None) -> None:
    ggml_base().ggml_abort(b"graph.cpp", 7, b"GGML_ASSERT(%s) failed", b"rows == 1")


def _kill(_rows: Rows | None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _break(fault: Callable[[Rows | None], None]) -> None:
    real = StageContext.decode

    def decode(self: StageContext, parts: Sequence[BatchPart]) -> bytearray | None:
        rows = real(self, parts)
        values = None if rows is None else np.frombuffer(rows, np.float32)
        fault(None if values is None else values.reshape(-1, self.width))
        return rows

    StageContext.decode = decode  # type: ignore[method-assign]
    # Every row has to pass through what was broken.
    LlamaStageRuntime.ready_row = lambda *_: None  # type: ignore[method-assign]


def run(fault: str, stage_id: str, arguments: Sequence[str]) -> int:
    """Be a stage, a faulty one if it is the one named."""
    faults: dict[str, Callable[[Rows | None], None]] = {
        "tamper": _Tampering(),
        "assert": _assert,
        "kill": _kill,
    }
    if Path(arguments[arguments.index("--config") + 1]).stem == stage_id:
        _break(faults[fault])
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], sys.argv[3:]))
