"""The model files of this node: found by scanning folders, known by their content.

Headers and contents are read in a thread, one file at a time. A digest is worked out
once per file and kept in the state directory, so a restart reads nothing anew.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.model_digests import are_unchanged
from skippyd.coordination.ports import ModelEntry
from skippyd.errors import ModelError, RefusedError, UsageError
from skippyd.model.gguf_model import open_model
from skippyd.model.identity import model_sha256
from skippyd.units import format_bytes


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from skippyd.coordination.model_digests import ModelDigests
    from skippyd.model.gguf_model import GgufModel
    from skippyd.model.header_window import PartFile

logger = logging.getLogger("skippyd.inventory")

ENDING = ".gguf"
LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
PART = re.compile(r"-00001-of-\d{5}$")
MAX_MODELS = 1_024
MAX_DEPTH = 4
MAX_VISITED = 100_000
RESCAN_SECONDS = 60.0
SHORTEST_DIGEST = 8
SHOWN_MODELS = 5


class UnknownModelError(UsageError):
    """What an operator named is no model of this node, or means several."""


class _StoppedError(Exception):
    """The daemon ends while a file is being read."""


@attrs.define(kw_only=True)
class _Found:
    parts: tuple[PartFile, ...]
    entry: ModelEntry
    problem: str = ""


@attrs.define(eq=False)
class Inventory:
    """What model files are here; `run` keeps it up to date.

    Args:
        paths: Folders to scan, and files.
        digests: Digests known from before.
        on_change: Called when `entries` has changed.
    """

    paths: Sequence[Path]
    digests: ModelDigests
    on_change: Callable[[], None] = attrs.field(default=lambda: None, kw_only=True)
    hashing: str = attrs.field(default="", init=False)
    hashed_bytes: tuple[int, int] = attrs.field(default=(0, 0), init=False)
    _found: dict[Path, _Found] = attrs.field(factory=dict, init=False)
    _added: list[Path] = attrs.field(factory=list, init=False)
    _problems: dict[Path, str] = attrs.field(factory=dict, init=False)
    _reading: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _is_stopped: bool = attrs.field(default=False, init=False)

    def entries(self) -> tuple[ModelEntry, ...]:
        """Every model, sorted by name and path."""
        entries = (found.entry for found in self._found.values())
        return tuple(sorted(entries, key=lambda entry: (entry.name, entry.path)))

    @property
    def progress(self) -> str:
        """How far the digest that is worked out now is; empty when none is."""
        if not self.hashing:
            return ""
        done, total = map(format_bytes, self.hashed_bytes)
        return f"reading {self.hashing}: {done} of {total}"

    def problems(self) -> dict[Path, str]:
        """Files that look like models and are none, with the reason."""
        return dict(self._problems)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Scan, work out digests, and look again from time to time."""
        try:
            await trio.to_thread.run_sync(self.digests.load)
            await self.rescan()
            task_status.started()
            while True:
                await self._digest_all()
                await trio.sleep(RESCAN_SECONDS)
                await self.rescan()
        finally:
            self._is_stopped = True

    async def rescan(self) -> None:
        """Look which files are there now; new ones get their digest later."""
        before = self.entries()
        async with self._reading:
            paths = [*self.paths, *self._added]
            self._found, self._problems = await trio.to_thread.run_sync(
                _scan, paths, dict(self._found), self.digests
            )
        if self.entries() != before:
            self.on_change()

    async def add(self, path: Path) -> ModelEntry:
        """Take a file in that no folder holds, and work out its digest.

        Raises:
            ModelError: It is no model.
        """
        path = Path(await trio.Path(path).absolute())
        if path not in self._found:
            await trio.to_thread.run_sync(open_model, path)
            if path not in self._added:
                self._added.append(path)
            await self.rescan()
        if path not in self._found:
            raise ModelError(f"{path}: this node keeps {MAX_MODELS} models already")
        await self._digest(path)
        return self._found[path].entry

    async def resolve(self, model: str) -> ModelEntry:
        """Find what an operator means: a path, a name, or the start of a digest.

        Raises:
            UnknownModelError: Nothing or several things are meant; the message lists
                what is here.
            ModelError: The path is no model.
        """
        if "/" in model or model.endswith(ENDING):
            if not await trio.to_thread.run_sync(os.path.lexists, model):
                raise UnknownModelError(
                    f"{model}: there is no such file on this node; it has "
                    f"{self._listing()}"
                )
            return await self.add(Path(model))
        await self.rescan()
        named = [
            path for path, found in self._found.items() if found.entry.name == model
        ]
        if not named and len(model) >= SHORTEST_DIGEST:
            await self._digest_all()
            named = [p for p, f in self._found.items() if _starts(f.entry, model)]
        digests = {await self._digest(path) for path in named}
        if len(digests) == 1:
            return self._found[named[0]].entry
        what = "is no model of this node" if not named else "means several models"
        raise UnknownModelError(f"{model!r} {what}; it has {self._listing()}")

    def find(self, sha256: str) -> Path | None:
        """Return the file with this content, if one is known."""
        for path, found in self._found.items():
            if found.entry.sha256 == sha256:
                return path
        return None

    async def obtain(self, sha256: str, *, wanted: str) -> Path:
        """Return the file with this content; looks again, and waits for digests.

        Args:
            sha256: The content.
            wanted: What it is for, with its size, for the message.

        Raises:
            RefusedError: It is not here; the message says exactly what is missing.
        """
        if (path := self.find(sha256)) is not None and path.exists():
            return path
        await self.rescan()
        await self._digest_all()
        if (path := self.find(sha256)) is not None:
            return path
        folders = ", ".join(str(path) for path in self.paths) or "no folder"
        raise RefusedError(
            f"this node lacks {wanted}: no file with SHA-256 {sha256} in {folders}; it "
            f"has {self._listing()}; copy the file there, or name its folder in "
            "[models] paths"
        )

    async def _digest_all(self) -> None:
        for path in list(self._found):
            if path in self._found:
                await self._digest(path)

    async def _digest(self, path: Path) -> str | None:
        """Return a file's digest, reading it if need be; None when that fails."""
        async with self._reading:
            found = self._found.get(path)
            if found is None or found.entry.sha256 is not None or found.problem:
                return None if found is None else found.entry.sha256
            self.hashing = found.entry.name
            try:
                # Abandoned when the daemon ends: a big file takes minutes to read.
                await trio.to_thread.run_sync(
                    self._read_digest, path, found, abandon_on_cancel=True
                )
            except (ModelError, OSError) as error:
                found.problem = self._problems[path] = str(error)
                logger.warning("no digest of %s: %s", path, error)
            finally:
                self.hashing = ""
        self.on_change()
        return found.entry.sha256

    def _read_digest(self, path: Path, found: _Found) -> None:
        model = open_model(path)
        digest = model_sha256(model, self._progress)
        found.parts = model.part_files
        found.entry = attrs.evolve(_entry(path, model), sha256=digest)
        try:
            self.digests.put(model.part_files, digest)
        except OSError as error:
            logger.warning("the digest of %s is not kept: %s", path, error)

    def _progress(self, done: int, total: int) -> None:
        if self._is_stopped:
            raise _StoppedError
        self.hashed_bytes = (done, total)

    def _listing(self) -> str:
        entries = self.entries()
        if not entries:
            return "no model at all"
        named = [
            f"{entry.name} ({entry.sha256[:12] if entry.sha256 else 'digest unknown'})"
            for entry in entries[:SHOWN_MODELS]
        ]
        more = len(entries) - len(named)
        return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _scan(
    paths: Iterable[Path], known: dict[Path, _Found], digests: ModelDigests
) -> tuple[dict[Path, _Found], dict[Path, str]]:
    found: dict[Path, _Found] = {}
    problems: dict[Path, str] = {}
    for path in _model_files(paths, problems):
        if len(found) >= MAX_MODELS:
            problems[path] = f"more than {MAX_MODELS} models: this one is left out"
            break
        before = known.get(path)
        if before is not None and are_unchanged(before.parts):
            found[path] = before
            continue
        try:
            model = open_model(path)
        except ModelError as error:
            problems[path] = str(error)
            continue
        entry = attrs.evolve(_entry(path, model), sha256=digests.get(model.part_files))
        found[path] = _Found(parts=model.part_files, entry=entry)
    return found, problems


def _model_files(paths: Iterable[Path], problems: dict[Path, str]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        absolute = path.absolute()
        try:
            candidates = _candidates(absolute)
        except OSError as error:
            problems[absolute] = error.strerror or str(error)
            continue
        for candidate in candidates:
            if candidate not in seen:
                seen.add(candidate)
                yield candidate


def _candidates(path: Path) -> Iterable[Path]:
    """The file itself, or what lies in the folder.

    Raises:
        OSError: It is not there, or not for us to look at.
    """
    if not stat.S_ISDIR(path.stat().st_mode):
        return [path]
    # `os.walk` would pass a folder over that it may not read.
    os.scandir(path).close()
    return _below(path)


def _below(top: Path) -> Iterator[Path]:
    visited = 0
    for folder, folders, files in os.walk(top):
        depth = len(Path(folder).relative_to(top).parts)
        folders[:] = sorted(folders) if depth < MAX_DEPTH else []
        visited += len(files) + len(folders)
        if visited > MAX_VISITED:
            logger.warning("%s holds more than %d files", top, MAX_VISITED)
            return
        for name in sorted(files):
            if name.endswith(ENDING) and not LATER_PART.search(name):
                yield Path(folder) / name


def _entry(path: Path, model: GgufModel) -> ModelEntry:
    return ModelEntry(
        name=PART.sub("", path.name.removesuffix(ENDING)),
        path=str(path),
        bytes=sum(part.file_bytes for part in model.part_files),
        sha256=None,
    )


def _starts(entry: ModelEntry, digest: str) -> bool:
    return entry.sha256 is not None and entry.sha256.startswith(digest.lower())
