"""The digest of a model is the contract's, for one file and for several."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.model.gguf_model import open_model
from skippyd.model.identity import model_sha256
from support.gguf_bytes import TinyLlama


if TYPE_CHECKING:
    from pathlib import Path


def test_one_file_has_its_own_digest(tmp_path: Path) -> None:
    path = TinyLlama().write(tmp_path / "m.gguf")
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert model_sha256(open_model(path)) == expected


def test_parts_have_the_digest_of_their_raw_digests_in_order(tmp_path: Path) -> None:
    model = open_model(TinyLlama().write_parts(tmp_path, 3))
    digests = [hashlib.sha256(path.read_bytes()).digest() for path in model.parts]
    assert model_sha256(model) == hashlib.sha256(b"".join(digests)).hexdigest()


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    model = open_model(TinyLlama().write_parts(tmp_path, 3))
    seen: list[tuple[int, int]] = []
    model_sha256(model, lambda done, total: seen.append((done, total)))
    total = sum(path.stat().st_size for path in model.parts)
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_a_replaced_file_has_no_digest(tmp_path: Path) -> None:
    path = TinyLlama().write(tmp_path / "m.gguf")
    model = open_model(path)
    TinyLlama().write(tmp_path / "other").replace(path)
    with pytest.raises(ModelError, match="the file was replaced"):
        model_sha256(model)
