"""The fence store on real files: what is answered is on the disk, and stays there."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from skippyd.coordination.fence_store import (
    AFTER_COMMIT,
    BEFORE_COMMIT,
    STORE_NAME,
    CorruptFenceStoreError,
    FenceStore,
    FenceStoreError,
)
from skippyd.coordination.fence_witness import WITNESS_NAME
from skippyd.core.coordinator.memory import (
    FenceRecord,
    PersistFence,
    PersistQuarantine,
    Tombstone,
)
from skippyd.errors import ExitCode
from skippyd.ids import RunId, Term
from support.claims import KEY, changed, claim


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOAK = os.environ.get("SKIPPY_SOAK") == "1"
KILLS = 200 if SOAK else 8
READY = b"ready"


def persist(term: int, key: str = "org/model") -> PersistFence:
    other = changed(KEY, model_id=key)
    return PersistFence(FenceRecord(key=other, claim=claim(term, key=other)))


def opened(folder: Path, *, known: bool = True) -> FenceStore:
    return FenceStore.open(folder, is_known_identity=known)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The state directory of a node that has accepted term 10."""
    with opened(tmp_path, known=False) as store:
        store.write(persist(10))
    return tmp_path


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """A disk on which no file grows any more; the run's own output is one of them."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_024, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)


# What is written comes back.


def test_a_brand_new_node_votes_at_once(tmp_path: Path) -> None:
    with opened(tmp_path, known=False) as store:
        snapshot = store.snapshot()

    assert not snapshot.is_quarantined
    assert len(snapshot.instance_id) == 32
    assert snapshot.records == ()
    assert oct((tmp_path / STORE_NAME).stat().st_mode & 0o777) == "0o600"


def test_records_come_back_after_a_restart(folder: Path) -> None:
    stopped = FenceRecord(
        key=KEY, claim=claim(10), tombstones=(Tombstone(Term(10), RunId("run-a-10")),)
    )
    with opened(folder) as store:
        first = store.snapshot()
        store.write(PersistFence(stopped))
        store.write(persist(2**63 - 1, "org/other"))

    with opened(folder) as store:
        second = store.snapshot()

    assert second.instance_id == first.instance_id
    assert not second.is_quarantined
    assert {record.term for record in second.records} == {10, 2**63 - 1}
    assert stopped in second.records


def test_an_older_term_never_replaces_a_newer_one(folder: Path) -> None:
    store = opened(folder)
    with pytest.raises(FenceStoreError, match="holds a newer term than 9"):
        store.write(persist(9))
    store.close()
    with opened(folder) as store:
        assert store.snapshot().records == (persist(10).record,)


def test_a_store_that_answers_passes_the_check_of_the_watchdog(folder: Path) -> None:
    store = opened(folder)
    store.check()
    store.close()
    with pytest.raises(FenceStoreError):
        store.check()


# Amnesia.


def reason_of(folder: Path, *, known: bool = True) -> str | None:
    with opened(folder, known=known) as store:
        assert store.snapshot().is_quarantined == (store.quarantine_reason is not None)
        return store.quarantine_reason


def test_a_known_node_without_its_store_is_quarantined(folder: Path) -> None:
    (folder / STORE_NAME).unlink()

    assert reason_of(folder) == "the fence store of this known node is missing"
    assert reason_of(folder) == "the fence store of this known node is missing"


def test_a_known_node_that_lost_everything_is_quarantined(tmp_path: Path) -> None:
    assert "is missing" in str(reason_of(tmp_path, known=True))


def test_a_store_put_back_one_claim_is_noticed(folder: Path) -> None:
    backup = folder / "backup"
    shutil.copy2(folder / STORE_NAME, backup)
    with opened(folder) as store:
        store.write(persist(11))
        instance_id = store.snapshot().instance_id
    # Over the old content: the file keeps its inode, only its memory is older.
    shutil.copyfile(backup, folder / STORE_NAME)

    with opened(folder) as store:
        assert "older than it should be" in str(store.quarantine_reason)
        assert store.snapshot().instance_id != instance_id


def test_a_copy_of_the_whole_directory_put_back_is_noticed(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "copy")
    with opened(folder) as store:
        store.write(persist(11))
    shutil.move(folder, folder.parent / "old")
    shutil.move(folder.parent / "copy", folder)

    assert reason_of(folder) == "the fence store was restored from a copy"


def test_a_store_of_another_node_is_noticed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    opened(other, known=False).close()
    (other / STORE_NAME).replace(folder / STORE_NAME)

    assert "another one" in str(reason_of(folder))


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_a_lost_or_damaged_witness_is_noticed(folder: Path, text: str | None) -> None:
    (folder / WITNESS_NAME).unlink()
    if text is not None:
        (folder / WITNESS_NAME).write_text(text)

    assert "fence.witness beside the fence store" in str(reason_of(folder))


def test_a_first_start_cut_short_is_no_amnesia(tmp_path: Path) -> None:
    """The store is made before the identity: without one there is nothing to forget."""
    opened(tmp_path, known=False).close()
    (tmp_path / WITNESS_NAME).unlink()
    assert reason_of(tmp_path, known=False) is None

    (tmp_path / STORE_NAME).unlink()
    (tmp_path / WITNESS_NAME).unlink()
    (tmp_path / STORE_NAME).touch()
    assert reason_of(tmp_path, known=False) is None


def test_a_quarantine_ends_for_good_when_it_is_lifted(folder: Path) -> None:
    (folder / STORE_NAME).unlink()
    with opened(folder) as store:
        store.write(PersistQuarantine(store.snapshot().instance_id))
        assert not store.snapshot().is_quarantined

    assert reason_of(folder) is None


# Stores that cannot be relied on.


def refusal_of(folder: Path) -> FenceStoreError:
    with pytest.raises(FenceStoreError) as caught:
        opened(folder)
    assert STORE_NAME in str(caught.value)
    return caught.value


@pytest.mark.parametrize("offset", [0, 20, 4_096, 8_192])
def test_a_damaged_store_refuses_to_start(folder: Path, offset: int) -> None:
    with (folder / STORE_NAME).open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 2_000)

    refusal = refusal_of(folder)

    assert isinstance(refusal, CorruptFenceStoreError)
    assert refusal.exit_code is ExitCode.BAD_CONFIGURATION
    assert "move it aside" in str(refusal)
    assert "skippyctl fence init" in str(refusal)


def test_a_cut_off_store_refuses_to_start(folder: Path) -> None:
    os.truncate(folder / STORE_NAME, 5_000)

    assert refusal_of(folder).exit_code is ExitCode.BAD_CONFIGURATION


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 2",
        "DELETE FROM store",
        "DROP TABLE fence",
        "UPDATE fence SET tombstones = '[['",
        'UPDATE fence SET tombstones = \'[["x", "run"]]\'',
        "UPDATE fence SET run_id = NULL",
    ],
)
def test_a_store_that_we_did_not_write_refuses_to_start(
    folder: Path, statement: str
) -> None:
    connection = sqlite3.connect(folder / STORE_NAME)
    connection.execute(statement)
    connection.commit()
    connection.close()

    assert refusal_of(folder).exit_code is ExitCode.BAD_CONFIGURATION


def test_a_folder_in_place_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / STORE_NAME).mkdir()

    refusal = refusal_of(tmp_path)

    assert refusal.exit_code is ExitCode.FENCE_STORE
    assert "free space, check the disk and the owner" in str(refusal)


def test_a_full_disk_refuses_to_start(folder: Path) -> None:
    with full_disk():
        refusal = refusal_of(folder)

    assert refusal.exit_code is ExitCode.FENCE_STORE


def test_a_disk_that_fills_up_fails_the_write_and_keeps_the_past(folder: Path) -> None:
    with (
        opened(folder) as store,
        full_disk(),
        pytest.raises(FenceStoreError) as caught,
    ):
        store.write(persist(11))

    assert caught.value.exit_code is ExitCode.FENCE_STORE
    assert "cannot be written" in str(caught.value)
    with opened(folder) as store:
        assert store.snapshot().records == (persist(10).record,)


def test_a_failing_sync_fails_the_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with opened(folder) as store:
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(FenceStoreError, match="Input/output error") as caught:
            store.write(persist(11))

    assert caught.value.exit_code is ExitCode.FENCE_STORE


# Dying in the middle.


def test_fail_points_stand_on_both_sides_of_the_commit(folder: Path) -> None:
    seen: list[tuple[str, int]] = []

    def look(name: str) -> None:
        connection = sqlite3.connect(f"file:{folder / STORE_NAME}?mode=ro", uri=True)
        (term,) = connection.execute("SELECT term FROM fence").fetchone()
        connection.close()
        seen.append((name, term))

    with FenceStore.open(folder, is_known_identity=True, reach=look) as store:
        seen.clear()
        store.write(persist(11))

    assert seen == [(BEFORE_COMMIT, 10), (AFTER_COMMIT, 11)]


WRITER = """
import os, sys
from pathlib import Path
from skippyd.coordination.fence_store import FenceStore
from skippyd.core.coordinator.memory import FenceRecord, PersistFence
from support.claims import KEY, claim

store = FenceStore.open(Path(sys.argv[1]), is_known_identity=True)
assert store.quarantine_reason is None, store.quarantine_reason
term = max((record.term for record in store.snapshot().records), default=10)
while True:
    term += 1
    store.write(PersistFence(FenceRecord(key=KEY, claim=claim(term))))
    os.write(1, f"{term}\\n".encode())
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.watchdog(1200 if SOAK else 240)
def test_the_term_never_falls_however_often_the_writer_is_killed(folder: Path) -> None:
    """Each time at another moment: what was said is stored, and no kill looks like
    amnesia."""
    said = 10
    for attempt in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        with writer:
            assert writer.stdout is not None
            for _ in range(1 + attempt % 5):
                said = max(said, int(writer.stdout.readline()))
            writer.kill()
            rest = writer.stdout.read().split()
        said = max([said, *map(int, rest)])
        with opened(folder) as store:
            assert store.quarantine_reason is None
            stored = max(record.term for record in store.snapshot().records)
        assert stored >= said
