"""Small models that the proofs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.model.gguf_model import open_model
from support.random_models import LLAMA_TIED, write_random_model


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel


@pytest.fixture(scope="session")
def talking(tmp_path_factory: pytest.TempPathFactory) -> GgufModel:
    """Six layers with a byte-level tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("talking")
    spec = attrs.evolve(LLAMA_TIED, with_tokenizer=True)
    return open_model(write_random_model(folder / "talking.gguf", spec))


@pytest.fixture(scope="session")
def mute(tmp_path_factory: pytest.TempPathFactory) -> GgufModel:
    """Six layers without tokenizer."""
    folder = tmp_path_factory.mktemp("mute")
    return open_model(write_random_model(folder / "mute.gguf", LLAMA_TIED))
