"""What tests of commands share: logging as it was, small models with and without words."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command run inside the test sets up logging of its own: undo it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def talking_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six layers of llama with a byte-level tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("talking")
    return write_random_model(folder / "talking.gguf", RandomModel(with_tokenizer=True))


@pytest.fixture(scope="session")
def mute_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six layers of llama without tokenizer."""
    folder = tmp_path_factory.mktemp("mute")
    return write_random_model(folder / "mute.gguf", RandomModel())
