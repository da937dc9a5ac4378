"""The witness beside the store: what it says, and when it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.fence_witness import (
    WITNESS_NAME,
    BrokenWitness,
    Witness,
    read_witness,
    replace_witness,
    witness_complaint,
)


if TYPE_CHECKING:
    from pathlib import Path

WITNESS = Witness(
    instance_id="store", counter=5, term=2**63 - 1, store_inode=77, own_inode=0
)


def complaint(folder: Path, counter: int = 5, inode: int = 77) -> str | None:
    return witness_complaint(
        read_witness(folder),
        folder,
        instance_id="store",
        counter=counter,
        store_inode=inode,
    )


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_witness(tmp_path) is None

    written = replace_witness(tmp_path, WITNESS)

    assert read_witness(tmp_path) == written
    assert written == attrs.evolve(WITNESS, own_inode=written.own_inode)
    assert written.own_inode == (tmp_path / WITNESS_NAME).stat().st_ino
    assert [path.name for path in tmp_path.iterdir()] == [WITNESS_NAME]


def test_a_store_that_is_as_far_or_one_commit_ahead_fits(tmp_path: Path) -> None:
    """A crash between the two writes leaves the store ahead: nothing was answered."""
    replace_witness(tmp_path, WITNESS)

    assert complaint(tmp_path) is None
    assert complaint(tmp_path, counter=6) is None


def test_an_older_another_or_a_copied_store_does_not_fit(tmp_path: Path) -> None:
    replace_witness(tmp_path, WITNESS)

    assert "older than it should be: 4 changes where 5" in str(complaint(tmp_path, 4))
    assert "restored from a copy" in str(complaint(tmp_path, inode=78))
    replace_witness(tmp_path, attrs.evolve(WITNESS, instance_id="other"))
    assert "another one" in str(complaint(tmp_path))


def test_a_copied_witness_does_not_fit(tmp_path: Path) -> None:
    replace_witness(tmp_path, WITNESS)
    text = (tmp_path / WITNESS_NAME).read_bytes()
    (tmp_path / "copy").write_bytes(text)
    (tmp_path / "copy").replace(tmp_path / WITNESS_NAME)

    assert "restored from a copy" in str(complaint(tmp_path))


@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", '{"schema": "skippy.other/1"}', "\x00" * 9, "9" * 5_000]
)
def test_a_damaged_one_is_a_complaint_and_no_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / WITNESS_NAME).write_text(text)

    assert isinstance(read_witness(tmp_path), BrokenWitness)
    assert "fence.witness beside the fence store is damaged" in str(complaint(tmp_path))


def test_a_missing_one_is_a_complaint(tmp_path: Path) -> None:
    assert "is missing" in str(complaint(tmp_path))
    (tmp_path / WITNESS_NAME).mkdir()
    assert "cannot be read" in str(complaint(tmp_path))
