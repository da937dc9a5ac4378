"""llama.cpp's words become records of ours, whole lines with their level."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.runtime.llama.logs import route_logs, take_recent_errors
from skippyd.runtime.llama.model import load_file
from skippyd.runtime.settings import EngineSettings


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.native


def test_what_llama_cpp_says_is_logged_and_not_printed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(200))
    with (
        caplog.at_level(logging.DEBUG, "skippyd.llama"),
        pytest.raises(ModelError, match=f"llama.cpp refused the {path}: ") as refusal,
    ):
        load_file(path, EngineSettings())
    errors = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert errors
    assert all("\n" not in record.getMessage() for record in errors)
    assert errors[0].getMessage() in str(refusal.value)
    assert {record.name for record in caplog.records} == {"skippyd.llama"}
    assert capfd.readouterr() == ("", "")


def test_errors_are_told_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        load_file(tmp_path / "nowhere.gguf", EngineSettings())
    assert take_recent_errors() == ""


def test_routing_twice_routes_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    route_logs()
    route_logs()
    with pytest.raises(ModelError):
        load_file(tmp_path / "nowhere.gguf", EngineSettings())
    messages = [record.getMessage() for record in caplog.records]
    assert messages
    assert len(set(messages)) == len(messages)


def test_a_host_that_imports_llama_cpp_does_not_take_the_reasons_away(
    tmp_path: Path,
) -> None:
    """That import sets a log callback of its own, for the whole process."""
    route_logs()
    importlib.import_module("llama_cpp")
    with pytest.raises(ModelError, match=r"refused the .*nowhere\.gguf: (?!no reason)"):
        load_file(tmp_path / "nowhere.gguf", EngineSettings())
