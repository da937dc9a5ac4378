"""Loading: progress is told, refusals carry llama.cpp's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.model.gguf_model import open_model
from skippyd.model.slice_rules import ALL_RULES
from skippyd.model.slicing import slice_model
from skippyd.runtime.llama.model import load_file, load_slice
from skippyd.runtime.settings import EngineSettings


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel

pytestmark = pytest.mark.native

SETTINGS = EngineSettings()


def test_progress_rises_to_the_end(tiny: GgufModel) -> None:
    shares: list[float] = []
    with load_slice(slice_model(tiny, 1, 4), SETTINGS, shares.append) as loaded:
        assert (loaded.width, loaded.layer_count) == (64, 3)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 3


def test_progress_that_raises_does_not_end_the_load(tiny: GgufModel) -> None:
    def broken(_share: float) -> None:
        raise ValueError("nobody looks")

    with load_slice(slice_model(tiny, 1, 4), SETTINGS, broken) as loaded:
        assert loaded.layer_count == 3


def test_a_slice_that_llama_cpp_refuses_is_a_model_error(tiny: GgufModel) -> None:
    """A slice with its layers under their old numbers."""
    import attrs  # noqa: PLC0415 - only here

    rules = attrs.evolve(ALL_RULES, renumber_blocks=False)
    with pytest.raises(ModelError, match=r"llama.cpp refused the slice: .*blk"):
        load_slice(slice_model(tiny, 2, 4, rules=rules), SETTINGS)


def test_a_file_that_is_not_there_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"llama.cpp refused the .*none\.gguf: .+"):
        load_file(tmp_path / "none.gguf", SETTINGS)


def test_closing_twice_is_harmless(tiny: GgufModel) -> None:
    loaded = load_file(tiny.path, SETTINGS)
    loaded.close()
    loaded.close()
    assert loaded.pointer is None


@pytest.mark.slow
def test_a_real_model_gives_its_vocabulary_to_both_ends(smollm2_path: Path) -> None:
    model = open_model(smollm2_path)
    sizes = []
    for start, end in ((0, 1), (1, 29), (29, 30)):
        with load_slice(slice_model(model, start, end), SETTINGS) as loaded:
            sizes.append(loaded.vocabulary_size)
    assert sizes == [49152, 1, 49152]
