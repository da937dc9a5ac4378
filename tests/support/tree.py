"""The repository's own files, as the contract tests look at them."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ("skippyd", "skippyctl")
_FOLDERS = (*SOURCE_FOLDERS, "tests", "etc", "packaging", ".ci")
_BUILT = {".so", ".pyc"}


def text_files() -> list[Path]:
    """Everything that is written by hand: folders of the layout and root files."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in _FOLDERS:
        found += (path for path in (ROOT / folder).rglob("*") if path.is_file())
    return sorted(path for path in found if path.suffix not in _BUILT)


@functools.cache
def python_files(*folders: str) -> tuple[Path, ...]:
    """Python files of the given folders, of all three trees by default."""
    chosen = folders or (*SOURCE_FOLDERS, "tests")
    found = (path for name in chosen for path in (ROOT / name).rglob("*.py"))
    return tuple(sorted(found))


@functools.cache  # two dozen tests ask for the same trees
def parsed(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path) -> str:
    """A path as a reader of the repository writes it."""
    return path.relative_to(ROOT).as_posix()
