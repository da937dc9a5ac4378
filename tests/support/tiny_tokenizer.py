"""A real byte-level vocabulary of 264 tokens with a ChatML template, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    import gguf


CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "i n", "\u0120 t", "\u0120t he", "e r")
"""\u0120 is how byte-level vocabularies write a space."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

NORMAL_TOKEN = 1
CONTROL_TOKEN = 3

_PRINTABLE = range(0x20, 0x7F)


def token_texts() -> tuple[str, ...]:
    """Every token in order of its id: 256 bytes, the merges, the control tokens."""
    merged = tuple(merge.replace(" ", "") for merge in MERGES)
    return (*_byte_letters(), *merged, *CONTROL_TOKENS)


def token_id(text: str) -> int:
    """Id of a token by its text, such as `<|im_end|>`."""
    return token_texts().index(text)


def quiet_token_ids() -> list[int]:
    """Ids that greedy decoding should not choose: control tokens, odd bytes."""
    texts = token_texts()
    controls = range(len(texts) - len(CONTROL_TOKENS), len(texts))
    return [byte for byte in range(256) if byte not in _PRINTABLE] + list(controls)


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """Put the vocabulary and the template into a model that is being written."""
    texts = token_texts()
    normal = len(texts) - len(CONTROL_TOKENS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(texts))
    writer.add_token_types(
        [NORMAL_TOKEN] * normal + [CONTROL_TOKEN] * len(CONTROL_TOKENS)
    )
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(token_id("<|endoftext|>"))
    writer.add_eos_token_id(token_id("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _byte_letters() -> tuple[str, ...]:
    """The letter that stands for each byte: itself if it is visible, else moved up."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters: list[str] = []
    moved = 0
    for byte in range(256):
        if byte in visible:
            letters.append(chr(byte))
        else:
            letters.append(chr(256 + moved))
            moved += 1
    return tuple(letters)
