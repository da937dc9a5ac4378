"""The bare loop decodes what the engine decodes: only then is it a measure of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.errors import ModelError, SkippyError
from skippyd.runtime.llama.bare import BareLoop
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.unsplit import UnsplitModel


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=128, n_batch=32, n_ubatch=32, lane_count=1)
PROMPT = [*range(100, 130)]


def decoded(bare: BareLoop, prompt: list[int], count: int) -> list[int]:
    """What the loop decodes after a prompt."""
    tokens = [prompt[-1]]
    bare.begin(prompt[:-1])
    for _ in range(count):
        tokens.append(bare.decode(tokens[-1]))
    return tokens[1:]


@pytest.mark.parametrize("name", ["llama-tied", "llama-q4_0", "gemma3"])
def test_it_decodes_what_the_engine_decodes(
    zoo: dict[str, GgufModel], name: str
) -> None:
    path = zoo[name].path
    with UnsplitModel(path, SETTINGS) as engine:
        rows = engine.generate(PROMPT, chunk=32, limit=8, sampling=None)
        expected = [row.token for row in rows]
    with BareLoop(path, SETTINGS) as bare:
        tokens = decoded(bare, PROMPT, 8)
    assert tokens == expected
    assert len(set(tokens)) > 1


def test_each_prompt_begins_anew(tiny: GgufModel) -> None:
    with BareLoop(tiny.path, SETTINGS) as bare:
        first = decoded(bare, PROMPT, 6)
        decoded(bare, [7, 8, 9], 40)
        again = decoded(bare, PROMPT, 6)
    assert again == first


def test_more_tokens_than_a_batch_are_refused_before_they_are_written(
    tiny: GgufModel,
) -> None:
    with (
        BareLoop(tiny.path, SETTINGS) as bare,
        pytest.raises(SkippyError, match="takes 32 tokens at once, not 33"),
    ):
        bare.begin([1] * 33)


def test_a_full_cache_is_said(tiny: GgufModel) -> None:
    small = attrs.evolve(SETTINGS, ctx_size=32)
    with (
        BareLoop(tiny.path, small) as bare,
        pytest.raises(SkippyError, match="llama_decode failed"),
    ):
        decoded(bare, [1] * 30, 260)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"m\.gguf"):
        BareLoop(path, SETTINGS)
