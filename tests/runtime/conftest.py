"""Small models that the tests of the engine share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.model.gguf_model import open_model
from support.random_models import LLAMA_TIED, ZOO, write_random_model


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GgufModel]:
    """Every random model of the supported architectures."""
    folder = tmp_path_factory.mktemp("zoo")
    return {
        name: open_model(write_random_model(folder / f"{name}.gguf", spec))
        for name, spec in ZOO.items()
    }


@pytest.fixture(scope="session")
def tiny(zoo: dict[str, GgufModel]) -> GgufModel:
    """Six layers of a tied llama without tokenizer."""
    return zoo["llama-tied"]


@pytest.fixture(scope="session")
def talking(tmp_path_factory: pytest.TempPathFactory) -> GgufModel:
    """The same with a byte-level tokenizer of 264 tokens."""
    folder = tmp_path_factory.mktemp("talking")
    spec = attrs.evolve(LLAMA_TIED, with_tokenizer=True)
    return open_model(write_random_model(folder / "talking.gguf", spec))
