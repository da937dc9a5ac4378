"""Tests mirror the tree: a reader of a module knows where its promises are written."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

import pytest

from support.tree import ROOT, SOURCE_FOLDERS, nodes, parsed, python_files, shown


if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.slow  # reads every file

# Module -> the test file that holds its promises, where that is not its mirror image.
TESTED_ELSEWHERE = {
    "skippyd/config/stage_rules.py": "tests/config/test_stage.py",
}
# Module -> why there is nothing to test.
NOTHING_TO_TEST: dict[str, str] = {
    "skippyd/ids.py": "names for types; the type checker is the test",
}


def own_tests(module: str) -> list[str]:
    """Test files in the mirrored folder that are named for a module or import it.

    `skippyd/a/b.py` is mirrored in `tests/a/`, `skippyctl/c.py` in `tests/skippyctl/`.
    """
    dotted = module.removesuffix(".py").replace("/", ".")
    folder, _, name = module.removesuffix(".py").removeprefix("skippyd").rpartition("/")
    return [
        shown(path)
        for path in (ROOT / "tests" / folder.strip("/")).glob("test_*.py")
        if path.stem == f"test_{name}" or dotted in _imported(path)
    ]


def modules() -> list[str]:
    return [
        shown(path)
        for path in python_files(*SOURCE_FOLDERS)
        if path.name not in {"__init__.py", "__main__.py"}
    ]


def test_every_module_has_its_tests_in_the_mirrored_place() -> None:
    known = TESTED_ELSEWHERE.keys() | NOTHING_TO_TEST.keys()
    assert [m for m in modules() if m not in known and not own_tests(m)] == []


def test_every_exception_is_still_one() -> None:
    present = set(modules())
    stale = [m for m in TESTED_ELSEWHERE if m not in present or own_tests(m)]
    stale += [m for m in NOTHING_TO_TEST if m not in present or own_tests(m)]
    stale += [t for t in TESTED_ELSEWHERE.values() if not (ROOT / t).exists()]
    assert stale == []


def test_every_test_folder_mirrors_a_room() -> None:
    ours = {"contracts", "support", "skippyctl", "bench", "scenarios", "simulation"}
    ours |= {"mutation", "vectors", "processes", "e2e", "soak"}
    rooms = {path.parent for path in python_files("skippyd")}
    strangers = [
        shown(path)
        for path in python_files("tests")
        if path.parent != ROOT / "tests"
        and path.relative_to(ROOT / "tests").parts[0] not in ours
        and ROOT / "skippyd" / path.parent.relative_to(ROOT / "tests") not in rooms
    ]
    assert strangers == []


def test_only_support_is_a_package_among_the_tests() -> None:
    """Test files are found by path; two of one name in two folders are no clash."""
    packages = {
        shown(path.parent)
        for path in python_files("tests")
        if path.name == "__init__.py"
    }
    assert packages == {"tests/support"}


def test_every_test_file_holds_tests() -> None:
    empty = [
        shown(path)
        for path in python_files("tests")
        if path.name.startswith("test_")
        and not any(
            getattr(node, "name", "").startswith(("test_", "Test"))
            for node in parsed(path).body
        )
        and "TestCase" not in path.read_text()
    ]
    assert empty == []


@functools.cache
def _imported(path: Path) -> frozenset[str]:
    """Modules that a file names in its imports, and names taken out of packages."""
    found: set[str] = set()
    for node in nodes(path):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found.add(module)
                found.update(f"{module}.{alias.name}" for alias in names)
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case _:
                continue
    return frozenset(found)
