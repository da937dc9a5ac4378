"""The durable memory behind a fence: a small SQLite file that never goes back.

Theory of operation. One daemon holds the store (the state directory is locked); calls
are made one at a time, from threads. `write` returns when the change is on the disk,
in the store and in its witness (`fence_witness`). A write that fails ends the process:
memory and disk must not part, and a failed fsync is not to be tried again.

At start a store is judged. A brand-new identity with a brand-new store votes at once;
a known identity whose store is missing, older or a copy starts in quarantine, under a
new instance id, until the longest lease it may have given has passed.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from typing import TYPE_CHECKING, Self

import attrs

from skippyd.coordination.fence_rows import (
    COLUMNS,
    SCHEMA,
    UPSERT,
    record_of,
    row_of,
)
from skippyd.coordination.fence_witness import (
    BrokenWitness,
    Witness,
    WitnessFile,
    read_witness,
    witness_complaint,
)
from skippyd.core.coordinator.memory import (
    FenceEffect,
    FenceSnapshot,
    PersistFence,
    PersistQuarantine,
)
from skippyd.errors import ExitCode, SkippyError


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BEFORE_COMMIT = "before-commit"
AFTER_COMMIT = "after-commit"
"""Fail points, reached around each commit."""

STORE_NAME = "fence.sqlite3"
STORE_VERSION = 1
BUSY_SECONDS = 5.0
INSTANCE_BYTES = 16
MAX_ROWS = 8_192
"""More than the rules ever store; a larger file is not one of ours."""


class FenceStoreError(SkippyError):
    """The store cannot be written; the daemon must end."""

    exit_code = ExitCode.FENCE_STORE


class CorruptFenceStoreError(FenceStoreError):
    """The store cannot be relied on; a person has to decide."""

    exit_code = ExitCode.BAD_CONFIGURATION


@attrs.define(eq=False, kw_only=True)
class FenceStore:
    """An open store; see the module docstring.

    Args:
        folder: The state directory.
        quarantine_reason: Why this node does not vote yet; None when it does.
    """

    folder: Path
    quarantine_reason: str | None = None
    _connection: sqlite3.Connection
    _instance_id: str
    _counter: int
    _reach: Callable[[str], None]
    _witness: WitnessFile | None = None

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        is_known_identity: bool,
        reach: Callable[[str], None] = lambda _name: None,
    ) -> Self:
        """Open or make the store, judge it and prove that it can be written.

        Args:
            folder: The state directory, locked.
            is_known_identity: Whether this node had an identity before this start.
            reach: Told the name of each fail point.

        Raises:
            CorruptFenceStoreError: It is damaged, or of another version.
            FenceStoreError: It cannot be opened or written.
        """
        path = folder / STORE_NAME
        witness = read_witness(folder)
        with contextlib.ExitStack() as undo, _translated(path, "opened"):
            connection = sqlite3.connect(
                path, BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            undo.callback(connection.close)
            is_new = _prepare(connection, path)
            instance_id, counter, quarantine = _store_row(connection, path)
            store = cls(
                folder=folder,
                quarantine_reason=quarantine,
                connection=connection,
                instance_id=instance_id,
                counter=counter,
                reach=reach,
            )
            store.snapshot()
            store._judge(witness, is_new=is_new, is_known_identity=is_known_identity)
            undo.pop_all()
        return store

    def snapshot(self) -> FenceSnapshot:
        """Return everything that is stored.

        Raises:
            CorruptFenceStoreError: A row is not one that we wrote.
        """
        path = self.folder / STORE_NAME
        with _translated(path, "read"):
            rows = self._connection.execute(
                f"SELECT {COLUMNS} FROM fence LIMIT {MAX_ROWS + 1}"  # noqa: S608 - our own words
            ).fetchall()
        if len(rows) > MAX_ROWS:
            raise _corrupt(path, f"it holds more than {MAX_ROWS} rows")
        try:
            records = tuple(record_of(row) for row in rows)
        except (ValueError, TypeError) as error:
            raise _corrupt(path, f"a row in it is damaged: {error}") from error
        return FenceSnapshot(
            instance_id=self._instance_id,
            is_quarantined=self.quarantine_reason is not None,
            records=records,
        )

    def write(self, effect: FenceEffect) -> None:
        """Make a change durable, in the store and in its witness.

        Raises:
            FenceStoreError: It did not become durable; the process must end.
        """
        match effect:
            case PersistFence(record):
                with self._change() as connection:
                    changed = connection.execute(UPSERT, row_of(record)).rowcount
                    if changed != 1:
                        raise FenceStoreError(
                            f"{self.folder / STORE_NAME} holds a newer term than "
                            f"{record.term} for {record.key.model_id}: another process "
                            "wrote it; let only one daemon use the state directory"
                        )
            case PersistQuarantine():
                with self._change() as connection:
                    connection.execute("UPDATE store SET quarantine = NULL")
                self.quarantine_reason = None
        self._testify()
        self._reach(AFTER_COMMIT)

    def check(self) -> None:
        """Ask the store something, as a watchdog does.

        Raises:
            FenceStoreError: It does not answer.
        """
        with _translated(self.folder / STORE_NAME, "read"):
            self._connection.execute("SELECT counter FROM store").fetchone()

    def close(self) -> None:
        """Close both files; harmless when repeated."""
        self._connection.close()
        if self._witness is not None:
            self._witness.close()
            self._witness = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _judge(
        self,
        witness: Witness | BrokenWitness | None,
        *,
        is_new: bool,
        is_known_identity: bool,
    ) -> None:
        reason: str | None = None
        if is_new:
            if is_known_identity or witness is not None:
                reason = "the fence store of this known node is missing"
        elif is_known_identity or witness is not None:
            reason = witness_complaint(
                witness,
                self.folder,
                instance_id=self._instance_id,
                counter=self._counter,
                store_inode=self._inode(),
            )
        # The write also proves that the disk takes one, before anybody relies on it.
        with self._change() as connection:
            if reason is not None:
                self.quarantine_reason = reason
                self._instance_id = _new_instance_id()
                connection.execute(
                    "UPDATE store SET quarantine = ?, instance_id = ?",
                    (reason, self._instance_id),
                )
        self._testify()

    @contextlib.contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with _translated(self.folder / STORE_NAME, "written"):
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("UPDATE store SET counter = counter + 1")
            self._reach(BEFORE_COMMIT)
            self._connection.execute("COMMIT")
        self._counter += 1

    def _testify(self) -> None:
        witness = Witness(
            instance_id=self._instance_id,
            counter=self._counter,
            term=self._highest_term(),
            store_inode=self._inode(),
            own_inode=0,
        )
        with _translated(self.folder / STORE_NAME, "written"):
            if self._witness is None:
                self._witness = WitnessFile.create(self.folder, witness)
            else:
                self._witness.record(witness)

    def _highest_term(self) -> int:
        row = self._connection.execute("SELECT max(term) FROM fence").fetchone()
        return 0 if row[0] is None else int(row[0])

    def _inode(self) -> int:
        return (self.folder / STORE_NAME).stat().st_ino


def _prepare(connection: sqlite3.Connection, path: Path) -> bool:
    """Check the file or lay it out; return whether it is new."""
    # A journal that is cut instead of removed: the cut is synced, and so the commit is
    # certain, without the two syncs of the folder that a removed one needs. (A write-ahead
    # log would need one sync only, but beside it an older store put back in its place
    # could pass for the newest.)
    connection.execute("PRAGMA journal_mode = TRUNCATE")
    connection.execute("PRAGMA synchronous = FULL")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if version == 0 and tables == 0:
        connection.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO store VALUES (?, 0, NULL)", [_new_instance_id()]
        )
        connection.execute(f"PRAGMA user_version = {STORE_VERSION}")
        connection.execute("COMMIT")
        path.chmod(0o600)
        return True
    if version != STORE_VERSION:
        raise _corrupt(path, f"it is of version {version}, not {STORE_VERSION}")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise _corrupt(path, f"its check says {verdict!r}")
    return False


def _store_row(
    connection: sqlite3.Connection, path: Path
) -> tuple[str, int, str | None]:
    rows = connection.execute(
        "SELECT instance_id, counter, quarantine FROM store LIMIT 2"
    ).fetchall()
    if len(rows) != 1:
        raise _corrupt(path, f"it describes itself {len(rows)} times")
    instance_id, counter, quarantine = rows[0]
    return str(instance_id), int(counter), quarantine


@contextlib.contextmanager
def _translated(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.NotSupportedError, sqlite3.OperationalError) as error:
        if "malformed" in str(error) or "no such" in str(error):
            raise _corrupt(path, str(error)) from error
        raise _failed(path, verb, str(error)) from error
    except sqlite3.DatabaseError as error:
        # "file is not a database", "database disk image is malformed"
        raise _corrupt(path, str(error)) from error
    except OSError as error:
        raise _failed(path, verb, error.strerror or str(error)) from error


def _failed(path: Path, verb: str, reason: str) -> FenceStoreError:
    return FenceStoreError(
        f"fence store {path} cannot be {verb}: {reason}; free space, check the disk "
        "and the owner of the folder, then start skippyd again"
    )


def _corrupt(path: Path, reason: str) -> CorruptFenceStoreError:
    return CorruptFenceStoreError(
        f"fence store {path} cannot be relied on: {reason}; move it aside and start "
        "skippyd again: the node then takes no claim until the longest lease has "
        "passed, or until you say `skippyctl fence init --i-know`"
    )


def _new_instance_id() -> str:
    return secrets.token_hex(INSTANCE_BYTES)
