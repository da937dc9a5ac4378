"""Digests that were worked out before: kept, and dropped when files change."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

from skippyd.coordination import model_digests
from skippyd.coordination.model_digests import ModelDigests, are_unchanged, identity_of
from skippyd.model.header_window import PartFile
from support.claims import changed


DIGEST = "ab" * 32
PART = PartFile(path=Path("a"), file_bytes=2**40, device=1, inode=2, modified_ns=2**62)


def test_a_digest_comes_back_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "model-digests.json"
    before = ModelDigests(path)
    before.load()
    before.put((PART,), DIGEST)
    before.put((PART, PART), "cd" * 32)

    after = ModelDigests(path)
    after.load()

    assert after.get((PART,)) == DIGEST
    assert after.get((PART, PART)) == "cd" * 32
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("field", ["file_bytes", "device", "inode", "modified_ns"])
def test_a_file_that_changed_in_any_way_has_no_digest(field: str) -> None:
    known = ModelDigests(None)
    known.put((PART,), DIGEST)

    assert known.get((attrs.evolve(PART, path=Path("b")),)) == DIGEST
    assert known.get((changed(PART, **{field: 7}),)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": "skippy.other/1", "items": []}',
        '{"schema": "skippy.model-digests/1"}',
        '{"schema": "skippy.model-digests/1", "items": 1}',
        '{"schema": "skippy.model-digests/1", "items": [{"sha256": "x", "parts": []}]}',
        '{"schema": "skippy.model-digests/1", "items": [[]]}',
    ],
)
def test_a_damaged_cache_is_dropped(tmp_path: Path, text: str) -> None:
    (tmp_path / "digests").write_text(text)
    known = ModelDigests(tmp_path / "digests")

    known.load()

    assert known.get((PART,)) is None


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_digests, "MAX_DIGESTS", 2)
    known = ModelDigests(None)
    parts = [attrs.evolve(PART, inode=number) for number in range(3)]

    for part in parts:
        known.put((part,), DIGEST)

    assert [known.get((part,)) for part in parts] == [None, DIGEST, DIGEST]


def test_files_are_told_apart_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    status = path.stat()
    part = PartFile(
        path=path,
        file_bytes=3,
        device=status.st_dev,
        inode=status.st_ino,
        modified_ns=status.st_mtime_ns,
    )
    assert identity_of((part,))[0][2] == 3
    assert are_unchanged((part,))

    os.utime(path, ns=(1, 1))
    assert not are_unchanged((part,))
    path.unlink()
    assert not are_unchanged((part,))
