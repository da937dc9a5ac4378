"""A model's vocabulary: text to tokens, token to bytes, its template and end tokens.

Read-only inside llama.cpp, so any thread may use it while the engine computes.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

import numpy as np

from skippyd.errors import ModelError
from skippyd.runtime.llama.bindings import address_of, llama
from skippyd.runtime.llama.native import ERROR_BYTES, THREW, error_text, native


if TYPE_CHECKING:
    from skippyd.runtime.llama.model import LlamaModel

CONTROL_ATTRIBUTE = 1 << 3  # LLAMA_TOKEN_ATTR_CONTROL
NO_TOKENIZER = 0  # LLAMA_VOCAB_TYPE_NONE
FIRST_PIECE_BYTES = 64


class LlamaVocabulary:
    """The vocabulary of one loaded model; the model must outlive it.

    Args:
        model: A loaded first or final slice, or a whole model.
    """

    def __init__(self, model: LlamaModel) -> None:
        self._vocab = model.vocabulary_pointer
        self._tokenize_address = address_of(llama()._lib.llama_tokenize)  # noqa: SLF001 - its address is wanted
        self.size = model.vocabulary_size
        self.has_tokenizer = int(llama().llama_vocab_type(self._vocab)) != NO_TOKENIZER
        template = llama().llama_model_chat_template(model.pointer, None)
        self.chat_template: str | None = (
            template.decode(errors="replace") if template else None
        )

    @property
    def add_bos(self) -> bool:
        """Whether this model's prompts begin with the BOS token."""
        return bool(llama().llama_vocab_get_add_bos(self._vocab))

    @functools.cached_property
    def bos_text(self) -> str:
        """Text of the BOS token, empty when there is none."""
        return self._text_or_empty(int(llama().llama_vocab_bos(self._vocab)))

    @functools.cached_property
    def eos_text(self) -> str:
        """Text of the EOS token, empty when there is none."""
        return self._text_or_empty(int(llama().llama_vocab_eos(self._vocab)))

    @functools.cached_property
    def control_texts(self) -> tuple[str, ...]:
        """Texts of all control tokens, the longest first."""
        found = {
            self._token_text(token)
            for token in range(self.size if self.has_tokenizer else 0)
            if llama().llama_vocab_get_attr(self._vocab, token) & CONTROL_ATTRIBUTE
        }
        return tuple(sorted(found - {""}, key=lambda text: (-len(text), text)))

    def is_end(self, token: int) -> bool:
        """Whether generation ends at this token."""
        return bool(llama().llama_vocab_is_eog(self._vocab, token))

    def piece(self, token: int) -> bytes:
        """Bytes of one token as they appear in text; control tokens give none."""
        size = FIRST_PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = llama().llama_token_to_piece(
                self._vocab,
                token,
                buffer,
                size,
                0,
                False,
            )
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def tokenize(
        self, text: str, *, add_special: bool, parse_special: bool
    ) -> list[int]:
        """Token ids of a text.

        Args:
            text: What to tokenize.
            add_special: Add BOS and EOS as the model asks.
            parse_special: Whether control tokens spelled in the text count as such.

        Raises:
            ModelError: The model has no tokenizer, or it failed on this text.
        """
        if not self.has_tokenizer:
            raise ModelError("this model carries no tokenizer; send token ids instead")
        raw = text.encode()
        room = len(raw) + 8
        while True:
            tokens = np.empty(room, np.int32)
            count = self._tokenize(
                raw, tokens, add_special=add_special, parse_special=parse_special
            )
            if count >= 0:
                return [int(token) for token in tokens[:count]]
            room = -count

    def _tokenize(
        self,
        raw: bytes,
        tokens: np.ndarray[tuple[int], np.dtype[np.int32]],
        *,
        add_special: bool,
        parse_special: bool,
    ) -> int:
        library = native()
        pointer = ctypes.cast(tokens.ctypes.data, ctypes.POINTER(ctypes.c_int32))
        flags = (add_special, parse_special)
        if library is None:
            return int(
                llama().llama_tokenize(
                    self._vocab, raw, len(raw), pointer, len(tokens), *flags
                )
            )
        error = ctypes.create_string_buffer(ERROR_BYTES)
        count = int(
            library.skippy_tokenize(
                self._tokenize_address,
                self._vocab,
                raw,
                len(raw),
                pointer,
                len(tokens),
                *flags,
                error,
                ERROR_BYTES,
            )
        )
        if count == THREW:
            raise ModelError(f"the tokenizer failed: {error_text(error)}")
        return count

    def _text_or_empty(self, token: int) -> str:
        return self._token_text(token) if token >= 0 else ""

    def _token_text(self, token: int) -> str:
        raw: bytes = llama().llama_vocab_get_text(self._vocab, token) or b""
        return raw.decode(errors="replace")
