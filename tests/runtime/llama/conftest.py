"""A context to draw from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.drawing import context_after_history


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.llama.context import StageContext


@pytest.fixture
def context(talking: GgufModel) -> Iterator[StageContext]:
    """It has read a history: its last row is to be drawn from."""
    with context_after_history(talking) as made:
        yield made
