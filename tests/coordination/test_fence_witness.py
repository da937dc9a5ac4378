"""The witness beside the store: what it says, and when it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.fence_witness import (
    SLOT_BYTES,
    WITNESS_NAME,
    BrokenWitness,
    Witness,
    WitnessFile,
    read_witness,
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


def state(folder: Path, *witnesses: Witness) -> None:
    file = WitnessFile.create(folder, witnesses[0])
    for witness in witnesses[1:]:
        file.record(witness)
    file.close()


def counted(counter: int) -> Witness:
    return attrs.evolve(WITNESS, counter=counter)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_witness(tmp_path) is None

    state(tmp_path, WITNESS)

    own_inode = (tmp_path / WITNESS_NAME).stat().st_ino
    assert read_witness(tmp_path) == attrs.evolve(WITNESS, own_inode=own_inode)
    assert [path.name for path in tmp_path.iterdir()] == [WITNESS_NAME]


def test_the_newest_statement_counts_and_the_file_does_not_grow(tmp_path: Path) -> None:
    for last in range(1, 6):
        state(tmp_path, *map(counted, range(last + 1)))
        witness = read_witness(tmp_path)
        assert isinstance(witness, Witness)
        assert witness.counter == last
    assert (tmp_path / WITNESS_NAME).stat().st_size == 2 * SLOT_BYTES


def test_a_torn_slot_leaves_the_one_before(tmp_path: Path) -> None:
    state(tmp_path, counted(4), counted(5))
    data = bytearray((tmp_path / WITNESS_NAME).read_bytes())
    data[SLOT_BYTES + 100 : SLOT_BYTES + 200] = bytes(100)
    (tmp_path / WITNESS_NAME).write_bytes(data)

    assert complaint(tmp_path) is None
    assert "4 changes" not in str(complaint(tmp_path, 4))
    assert "older than it should be" in str(complaint(tmp_path, 3))


def test_each_start_makes_the_file_anew(tmp_path: Path) -> None:
    state(tmp_path, counted(4))
    before = (tmp_path / WITNESS_NAME).read_bytes()
    state(tmp_path, counted(6))

    # An old copy written over it: the inode is today's, the statement is not.
    (tmp_path / WITNESS_NAME).write_bytes(before)

    assert "restored from a copy" in str(complaint(tmp_path, 4))


def test_a_store_that_is_as_far_or_one_commit_ahead_fits(tmp_path: Path) -> None:
    """A crash between the two writes leaves the store ahead: nothing was answered."""
    state(tmp_path, WITNESS)

    assert complaint(tmp_path) is None
    assert complaint(tmp_path, counter=6) is None


def test_an_older_another_or_a_copied_store_does_not_fit(tmp_path: Path) -> None:
    state(tmp_path, WITNESS)

    assert "older than it should be: 4 changes where 5" in str(complaint(tmp_path, 4))
    assert "restored from a copy" in str(complaint(tmp_path, inode=78))
    state(tmp_path, attrs.evolve(WITNESS, instance_id="other"))
    assert "another one" in str(complaint(tmp_path))


def test_a_copied_witness_does_not_fit(tmp_path: Path) -> None:
    state(tmp_path, WITNESS)
    text = (tmp_path / WITNESS_NAME).read_bytes()
    (tmp_path / "copy").write_bytes(text)
    (tmp_path / "copy").replace(tmp_path / WITNESS_NAME)

    assert "restored from a copy" in str(complaint(tmp_path))


@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", "\x00" * 9, "9" * 10_000, "a b", " "]
)
def test_a_damaged_one_is_a_complaint_and_no_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / WITNESS_NAME).write_text(text)

    assert isinstance(read_witness(tmp_path), BrokenWitness)
    assert "is damaged" in str(complaint(tmp_path))


def test_a_missing_one_is_a_complaint(tmp_path: Path) -> None:
    assert "is missing" in str(complaint(tmp_path))
    (tmp_path / WITNESS_NAME).mkdir()
    assert "cannot be read" in str(complaint(tmp_path))
