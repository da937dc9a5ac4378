"""Text to tokens and back, and what a model without tokenizer says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.model.slicing import slice_model
from skippyd.runtime.llama.model import load_file, load_slice
from skippyd.runtime.llama.vocabulary import LlamaVocabulary
from skippyd.runtime.settings import EngineSettings
from support.tiny_tokenizer import CHAT_TEMPLATE, token_id


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.model.gguf_model import GgufModel

pytestmark = pytest.mark.native


@pytest.fixture
def words(talking: GgufModel) -> Iterator[LlamaVocabulary]:
    with load_slice(slice_model(talking, 0, 2), EngineSettings()) as loaded:
        yield LlamaVocabulary(loaded)


@pytest.mark.parametrize("text", ["", "the inn", "Größe 👍\n\ttab", "\x00\x7f" * 40])
def test_text_goes_there_and_back(words: LlamaVocabulary, text: str) -> None:
    tokens = words.tokenize(text, add_special=False, parse_special=False)
    assert b"".join(words.piece(token) for token in tokens) == text.encode()


def test_merges_are_used(words: LlamaVocabulary) -> None:
    assert words.tokenize(" the", add_special=False, parse_special=False) == [
        token_id("Ġthe")
    ]


def test_control_tokens_count_only_when_asked(words: LlamaVocabulary) -> None:
    text = "<|im_end|>"
    assert words.tokenize(text, add_special=False, parse_special=True) == [
        token_id(text)
    ]
    plain = words.tokenize(text, add_special=False, parse_special=False)
    assert len(plain) > 1
    assert token_id(text) not in plain


def test_the_vocabulary_knows_its_marks(words: LlamaVocabulary) -> None:
    assert words.size == 264
    assert words.has_tokenizer
    assert words.add_bos is False
    assert (words.bos_text, words.eos_text) == ("<|endoftext|>", "<|im_end|>")
    assert words.chat_template == CHAT_TEMPLATE
    assert words.is_end(token_id("<|im_end|>"))
    assert not words.is_end(ord("a"))
    assert words.control_texts == ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    assert words.piece(token_id("<|im_start|>")) == b""


def test_a_model_without_tokenizer_says_so(tiny: GgufModel) -> None:
    with load_file(tiny.path, EngineSettings()) as loaded:
        words = LlamaVocabulary(loaded)
        assert not words.has_tokenizer
        assert words.chat_template is None
        assert (words.bos_text, words.eos_text, words.control_texts) == ("", "", ())
        with pytest.raises(ModelError, match="no tokenizer; send token ids"):
            words.tokenize("x", add_special=False, parse_special=False)


def test_a_middle_stage_has_no_words(talking: GgufModel) -> None:
    with load_slice(slice_model(talking, 2, 4), EngineSettings()) as loaded:
        assert LlamaVocabulary(loaded).size == 1
        assert not LlamaVocabulary(loaded).has_tokenizer
