"""The second file beside a fence store, by which a lost or older store is recognised.

The store is committed first, then the witness is replaced, then the answer leaves. So
a witness that is ahead of its store means that the store went back in time. It also
holds the inode numbers of both files: a copy put in their place has others.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from pathlib import Path

WITNESS_NAME = "fence.witness"
WITNESS_SCHEMA = "skippy.fence-witness/1"
WITNESS_MAX_BYTES = 4_096
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
    """Read the witness; None when there is none."""
    path = folder / WITNESS_NAME
    try:
        with path.open("rb") as file:
            data = file.read(WITNESS_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return BrokenWitness(f"cannot be read: {error.strerror or error}")
    try:
        return _parsed(json.loads(data))
    except (ValueError, KeyError, TypeError) as error:
        return BrokenWitness(f"is damaged: {error!r}")


def replace_witness(folder: Path, witness: Witness) -> Witness:
    """Write the witness durably in place of the old one; return it as it lies there.

    Raises:
        OSError: It could not be made durable.
    """
    path = folder / WITNESS_NAME
    fresh = path.with_suffix(".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, FILE_MODE)
    try:
        written = attrs.evolve(witness, own_inode=os.fstat(descriptor).st_ino)
        os.write(descriptor, _document(written))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.replace(path)
    _sync_directory(folder)
    return written


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


def _parsed(document: dict[str, object]) -> Witness:
    if document["schema"] != WITNESS_SCHEMA:
        raise ValueError(f"schema is {document['schema']!r}")
    numbers = {
        name: int(str(document[name]))
        for name in ("counter", "term", "store_inode", "own_inode")
    }
    return Witness(instance_id=str(document["instance_id"]), **numbers)


def _document(witness: Witness) -> bytes:
    fields = {name: str(value) for name, value in attrs.asdict(witness).items()}
    return json.dumps({"schema": WITNESS_SCHEMA, **fields}).encode() + b"\n"


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
