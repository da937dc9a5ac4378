"""The model files of a node: found, identified once, and missed in words."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination import inventory as inventory_module
from skippyd.coordination.inventory import Inventory, UnknownModelError
from skippyd.coordination.model_digests import ModelDigests
from skippyd.errors import ExitCode, ModelError, RefusedError
from skippyd.model.gguf_model import open_model
from skippyd.model.identity import model_sha256
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = RandomModel(layers=2, width=32, feed_forward=32)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that tests copy."""
    return write_random_model(tmp_path_factory.mktemp("original") / "m.gguf", SMALL)


@pytest.fixture
def folder(tmp_path: Path, original: Path) -> Path:
    """A folder with the model, deep inside, and things that are none."""
    deep = tmp_path / "models" / "a" / "b"
    deep.mkdir(parents=True)
    shutil.copy(original, deep / "deep.gguf")
    (tmp_path / "models" / "notes.txt").write_text("no model")
    (tmp_path / "models" / "broken.gguf").write_bytes(b"GGUF\xff\xff")
    os.mkfifo(tmp_path / "models" / "pipe.gguf")
    return tmp_path / "models"


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


async def known(*paths: Path, digests: ModelDigests | None = None) -> Inventory:
    """An inventory that has looked once and read nothing yet."""
    found = Inventory(paths, digests or ModelDigests(None))
    await found.rescan()
    return found


async def test_models_are_found_below_a_folder_and_the_rest_is_explained(
    folder: Path,
) -> None:
    found = await known(folder, folder / "nothing")

    (entry,) = found.entries()
    assert entry.name == "deep"
    assert entry.path == str(folder / "a" / "b" / "deep.gguf")
    assert entry.bytes == (folder / "a" / "b" / "deep.gguf").stat().st_size
    assert entry.sha256 is None
    problems = {path.name: text for path, text in found.problems().items()}
    assert set(problems) == {"broken.gguf", "pipe.gguf", "nothing"}
    assert "not a regular file" in problems["pipe.gguf"]
    assert problems["nothing"] == "No such file or directory"


async def test_a_split_model_is_one_entry(tmp_path: Path) -> None:
    split = RandomModel(layers=2, width=32, feed_forward=32, tensors_per_part=8)
    first = write_random_model(tmp_path / "split.gguf", split)
    found = await known(tmp_path)

    (entry,) = found.entries()
    assert entry.name == "split"
    assert entry.path == str(first)
    assert entry.bytes == folder_bytes(tmp_path)


async def test_digests_are_worked_out_once_and_kept(
    folder: Path, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "model-digests.json"
    first = Inventory((folder,), ModelDigests(cache))
    identified = trio.Event()

    def look() -> None:
        if first.entries()[0].sha256 is not None:
            identified.set()

    first.on_change = look
    async with trio.open_nursery() as nursery:
        await nursery.start(first.run)
        await identified.wait()
        nursery.cancel_scope.cancel()
    assert first.entries()[0].sha256 == model_sha256(open_model(original))

    def never(*_arguments: object) -> str:
        raise AssertionError("the file is read again")

    monkeypatch.setattr(inventory_module, "model_sha256", never)
    second = Inventory((folder,), ModelDigests(cache))
    async with trio.open_nursery() as nursery:
        await nursery.start(second.run)
        nursery.cancel_scope.cancel()
    assert second.entries() == first.entries()


async def test_folders_that_cannot_be_looked_into_are_problems(tmp_path: Path) -> None:
    absent, ring = tmp_path / "absent", tmp_path / "ring"
    ring.symlink_to(ring)
    found = await known(absent)
    assert found.problems()[absent].startswith("No such file or directory")
    found = await known(ring)
    assert found.problems()[ring].startswith("Too many levels of symbolic links")


async def test_files_that_come_and_go_are_noticed(folder: Path, original: Path) -> None:
    found = await known(folder)
    shutil.copy(original, folder / "new.gguf")
    shutil.rmtree(folder / "a")

    await found.rescan()

    assert [entry.name for entry in found.entries()] == ["new"]


async def test_a_model_is_meant_by_name_path_or_digest(
    folder: Path, original: Path
) -> None:
    found = await known(folder)
    digest = model_sha256(open_model(original))

    by_name = await found.resolve("deep")
    by_digest = await found.resolve(digest[:8])
    by_path = await found.resolve(str(original))

    assert by_name == by_digest
    assert by_name.sha256 == by_path.sha256 == digest
    assert by_path.path == str(original)


async def test_what_means_nothing_is_refused_with_a_list(folder: Path) -> None:
    found = await known(folder)

    with pytest.raises(UnknownModelError, match=r"'other' is no model.*deep \(digest"):
        await found.resolve("other")
    with pytest.raises(
        UnknownModelError, match=r"no such file on this node; it has dee"
    ):
        await found.resolve("./other.gguf")
    (folder / "text.gguf").write_text("no model")
    with pytest.raises(ModelError, match=r"text\.gguf"):
        await found.resolve(str(folder / "text.gguf"))
    with pytest.raises(UnknownModelError, match="it has no model at all") as refused:
        await (await known()).resolve("other")
    assert refused.value.exit_code is ExitCode.USAGE


async def test_two_models_of_one_name_are_told_apart(
    folder: Path, original: Path
) -> None:
    (folder / "c").mkdir()
    shutil.copy(original, folder / "c" / "deep.gguf")
    found = await known(folder)
    assert (await found.resolve("deep")).name == "deep"  # two copies of one content

    write_random_model(folder / "c" / "deep.gguf", RandomModel(layers=3, seed=2))
    with pytest.raises(UnknownModelError, match="means several models"):
        await found.resolve("deep")


async def test_a_wanted_content_is_found_or_missed_exactly(
    folder: Path, original: Path
) -> None:
    found = await known(folder)
    digest = model_sha256(open_model(original))

    path = await found.obtain(digest, wanted="layers 0 to 1 of m")
    with pytest.raises(RefusedError) as missing:
        await found.obtain("cd" * 32, wanted="layers 0 to 1 of m (a model of 7 bytes)")

    assert path.name == "deep.gguf"
    assert (
        f"lacks layers 0 to 1 of m (a model of 7 bytes): no file with SHA-256 {'cd' * 32} in {folder}"
        in str(missing.value)
    )
    assert f"it has deep ({digest[:12]})" in str(missing.value)


async def test_a_file_that_vanished_is_not_handed_out(
    folder: Path, original: Path
) -> None:
    found = await known(folder)
    digest = model_sha256(open_model(original))
    await found.obtain(digest, wanted="it")
    shutil.rmtree(folder / "a")

    with pytest.raises(RefusedError, match="lacks it"):
        await found.obtain(digest, wanted="it")


async def test_a_file_that_cannot_be_read_whole_does_not_end_the_daemon(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> str:
        raise ModelError("the file was replaced")

    monkeypatch.setattr(inventory_module, "model_sha256", fail)
    found = await known(folder)

    with pytest.raises(RefusedError, match="lacks it"):
        await found.obtain("ab" * 32, wanted="it")
    assert "the file was replaced" in found.problems().values()


async def test_the_end_does_not_wait_for_a_large_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest of a big file takes minutes; its thread stops at its next look."""
    reading, stopped = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def endless(_model: object, progress: Callable[[int, int], None]) -> str:
        progress(1, 2)
        token.run_sync_soon(reading.set)
        try:
            while True:
                progress(1, 2)
        finally:
            token.run_sync_soon(stopped.set)

    monkeypatch.setattr(inventory_module, "model_sha256", endless)
    found = Inventory((folder,), ModelDigests(None))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(found.run)
            await reading.wait()
            assert found.progress == "reading deep: 1 B of 2 B"
            nursery.cancel_scope.cancel()
        await stopped.wait()

    assert found.progress == ""


async def test_too_many_models_are_bounded_and_said(
    folder: Path, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory_module, "MAX_MODELS", 1)
    shutil.copy(original, folder / "z.gguf")

    found = await known(folder)

    assert len(found.entries()) == 1
    assert any("more than 1 models" in text for text in found.problems().values())
    with pytest.raises(ModelError, match="keeps 1 models already"):
        await found.add(original)
