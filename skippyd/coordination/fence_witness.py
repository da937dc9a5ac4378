"""The second file beside a fence store, by which a lost or older store is recognised.

The store is committed first, then the witness is written, then the answer leaves. So a
witness that is ahead of its store means that the store went back in time. It also holds
the inode numbers of both files: a copy put in their place has others. The file is made
anew at each start, so a copy written over it is noticed too.

Two slots are written in turn, each with a digest: one that is torn by a power cut leaves
the other whole, and one write to a file that is there costs one sync instead of three.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from pathlib import Path

WITNESS_NAME = "fence.witness"
WITNESS_SCHEMA = "skippy.fence-witness/1"
SLOT_BYTES = 4_096
SLOTS = 2
FILE_MODE = 0o600


@attrs.frozen(kw_only=True)
class Witness:
    """What a witness file says.

    Args:
        instance_id: The store it was written for.
        counter: Changes of that store.
        term: The highest term in it, for people.
        store_inode: Inode number of the store's file.
        own_inode: Inode number of the witness file itself.
    """

    instance_id: str
    counter: int
    term: int
    store_inode: int
    own_inode: int


@attrs.frozen
class BrokenWitness:
    """A witness file that cannot be read; the text says why."""

    reason: str


def read_witness(folder: Path) -> Witness | BrokenWitness | None:
    """Read the newest whole slot of the witness; None when there is no such file."""
    path = folder / WITNESS_NAME
    try:
        with path.open("rb") as file:
            data = file.read(SLOTS * SLOT_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return BrokenWitness(f"cannot be read: {error.strerror or error}")
    slots = (data[n * SLOT_BYTES :][:SLOT_BYTES] for n in range(SLOTS))
    whole = [witness for slot in slots if (witness := _parsed(slot)) is not None]
    if not whole:
        return BrokenWitness("is damaged")
    return max(whole, key=lambda witness: witness.counter)


@attrs.define(eq=False)
class WitnessFile:
    """The open witness of a running daemon."""

    _descriptor: int
    _own_inode: int

    @classmethod
    def create(cls, folder: Path, witness: Witness) -> WitnessFile:
        """Make the file anew with one statement in it, durably in place of the old one.

        Raises:
            OSError: It could not be made durable.
        """
        path = folder / WITNESS_NAME
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(fresh, flags, FILE_MODE)
        try:
            os.ftruncate(descriptor, SLOTS * SLOT_BYTES)
            made = cls(descriptor, os.fstat(descriptor).st_ino)
            made.record(witness)
            os.fsync(descriptor)
            fresh.replace(path)
            _sync_directory(folder)
        except OSError:
            os.close(descriptor)
            raise
        return made

    def record(self, witness: Witness) -> None:
        """Write a statement durably; its inode is the file's.

        Raises:
            OSError: It could not be made durable.
        """
        slot = _slot(attrs.evolve(witness, own_inode=self._own_inode))
        position = witness.counter % SLOTS * SLOT_BYTES
        written = os.pwrite(self._descriptor, slot, position)
        if written != len(slot):
            raise OSError(f"only {written} of {len(slot)} bytes were written")
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def witness_complaint(
    witness: Witness | BrokenWitness | None,
    folder: Path,
    *,
    instance_id: str,
    counter: int,
    store_inode: int,
) -> str | None:
    """Say why a store is not the one this node last wrote, or None when it is."""
    match witness:
        case None:
            return f"{WITNESS_NAME} beside the fence store is missing"
        case BrokenWitness(reason):
            return f"{WITNESS_NAME} beside the fence store {reason}"
        case Witness():
            pass
    if witness.instance_id != instance_id:
        return "the fence store is another one than this node wrote last"
    if witness.counter > counter:
        return (
            f"the fence store is older than it should be: {counter} changes where "
            f"{witness.counter} were made"
        )
    place = (store_inode, (folder / WITNESS_NAME).stat().st_ino)
    if place != (witness.store_inode, witness.own_inode):
        return "the fence store was restored from a copy"
    return None


def _parsed(slot: bytes) -> Witness | None:
    """Return what a slot says, or None when it is empty, torn or not ours."""
    digest, _, text = slot.rstrip(b"\0").partition(b" ")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    document = json.loads(text)
    if document["schema"] != WITNESS_SCHEMA:
        return None
    numbers = {
        name: int(document[name])
        for name in ("counter", "term", "store_inode", "own_inode")
    }
    return Witness(instance_id=document["instance_id"], **numbers)


def _slot(witness: Witness) -> bytes:
    fields = {name: str(value) for name, value in attrs.asdict(witness).items()}
    text = json.dumps({"schema": WITNESS_SCHEMA, **fields}).encode() + b"\n"
    digest = hashlib.sha256(text).hexdigest().encode()
    return (digest + b" " + text).ljust(SLOT_BYTES, b"\0")


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
