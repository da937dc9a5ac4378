from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skippyctl.arguments import (
    add_common,
    add_watch,
    model,
    names,
    positive,
    whole,
    words,
)


if TYPE_CHECKING:
    from collections.abc import Callable


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_watch(parser)
    add_common(parser)
    return parser.parse_args(argv)


def test_the_socket_is_the_flag_then_the_variable_then_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SKIPPY_ADMIN_SOCKET", raising=False)
    assert parsed().socket == Path("/run/skippyd/admin.sock")
    monkeypatch.setenv("SKIPPY_ADMIN_SOCKET", "/run/other.sock")
    assert parsed().socket == Path("/run/other.sock")
    assert parsed("--socket", "/tmp/x").socket == Path("/tmp/x")


def test_nothing_goes_on_and_nothing_is_json_unless_asked() -> None:
    quiet = parsed()
    assert (quiet.json, quiet.watch, quiet.color) == (False, False, "auto")


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (whole, "0", 0),
        (positive, "12", 12),
        (names, "a, b", ("a", "b")),
        (words, "  why ", "why"),
    ],
)
def test_values_are_read(
    read: Callable[[str], object], text: str, value: object
) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (whole, "-1"),
        (whole, "1.5"),
        (whole, "٣"),
        (whole, "9" * 19),
        (positive, "0"),
        (names, "a,,b"),
        (names, "a,a"),
        (names, ""),
        (words, "  "),
    ],
)
def test_values_that_say_nothing_are_refused(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


def test_a_path_of_a_model_is_one_of_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon works in another one."""
    monkeypatch.chdir(tmp_path)
    assert model("./a.gguf") == model("a.gguf") == f"{tmp_path}/a.gguf"
    assert model("/models/a.gguf") == "/models/a.gguf"
    assert model("smollm2") == "smollm2"
