"""The flag is one number that C reads and Python writes."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from skippyd.runtime.llama.abort import AbortFlag


@pytest.mark.native
@pytest.mark.parametrize("use_native", [True, False])
def test_the_callback_tells_whether_the_flag_is_up(use_native: bool) -> None:
    """(In a running batch: `test_context.py`.)"""
    flag = AbortFlag(use_native=use_native)
    params: Any = SimpleNamespace()
    flag.install(params)
    user = ctypes.c_void_p(params.abort_callback_data)
    answers = []
    changes = (flag.lower, flag.raise_, flag.raise_, flag.lower)
    for change in changes:
        change()
        answers.append(bool(params.abort_callback(user)))
    assert answers == [False, True, True, False]
