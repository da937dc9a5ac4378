"""What linters cannot see: sizes, names, and tests that could not fail."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from support.tree import ROOT, SOURCE_FOLDERS, nodes, parsed, python_files, shown


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow  # reads every file

FILE_MAX_LINES = 400
FUNCTION_MAX_LINES = 70
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "base"}
FORBIDDEN_NAMES |= {"manager", "managers"}
# Spelt apart, so that this file is not its own first finding.
UNFINISHED = re.compile(r"\b(TO" "DO|FIX" "ME|XX" "X)\\b")
JUDGING = ("assert_", "check", "expect")
NEVER_RUN = re.compile(r"\bpytest\.(?:mark\.)?(?:skip|xfail|importorskip)")
# File -> what a machine may lack or not let its user do; its skips say so when run.
NEEDS_OF_THE_KERNEL = {
    "tests/e2e/conftest.py": "network namespaces of its own",
    "tests/e2e/test_node_faults_clock.py": "a C compiler",
    "tests/e2e/test_node_faults_disk.py": "a C compiler",
    "tests/e2e/test_node_faults_start.py": "another user's processes, a small mount",
}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_file_is_longer_than_a_sitting() -> None:
    long = {
        shown(path): lines
        for path in python_files()
        if (lines := path.read_text().count("\n")) > FILE_MAX_LINES
    }
    assert long == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{shown(path)}:{node.lineno} {node.name}"
        for path in python_files()
        for node in functions(path)
        if (node.end_lineno or node.lineno) - node.lineno > FUNCTION_MAX_LINES
    ]
    assert long == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [
        shown(path)
        for path in python_files()
        if FORBIDDEN_NAMES & {path.stem.removeprefix("test_"), path.parent.name}
    ]
    assert vague == []


def test_every_package_says_what_it_owns() -> None:
    silent = [
        shown(path)
        for path in python_files(*SOURCE_FOLDERS)
        if path.name == "__init__.py" and not ast.get_docstring(parsed(path))
    ]
    assert silent == []


def test_every_source_folder_is_a_package() -> None:
    folders = {path.parent for path in python_files(*SOURCE_FOLDERS)}
    assert [shown(f) for f in folders if not (f / "__init__.py").exists()] == []


def test_nothing_is_left_unfinished() -> None:
    left = [
        f"{shown(path)}:{number}"
        for path in python_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    left += [
        f"{shown(path)}:{node.lineno}"
        for path in python_files()
        for node in nodes(path)
        if isinstance(node, ast.Raise) and "NotImplemented" in ast.dump(node)
    ]
    assert left == []


def test_no_error_is_swallowed() -> None:
    swallowed = [
        f"{shown(path)}:{node.lineno}"
        for path in python_files()
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and len(node.body) == 1
        and isinstance(node.body[0], ast.Pass)
    ]
    assert swallowed == []


def test_every_test_can_fail() -> None:
    toothless = [
        f"{shown(path)}:{node.lineno} {node.name}"
        for path in python_files("tests")
        for node in functions(path)
        if node.name.startswith("test_") and not any(map(_judges, ast.walk(node)))
    ]
    assert toothless == []


def test_every_test_is_run() -> None:
    never = [
        f"{shown(path)}:{number}"
        for path in python_files("tests")
        if shown(path) not in NEEDS_OF_THE_KERNEL
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NEVER_RUN.search(line) and "NEVER_RUN" not in line
    ]
    assert never == []


def test_what_needs_the_kernel_skips_with_a_reason_and_is_expected_to_pass() -> None:
    for name in NEEDS_OF_THE_KERNEL:
        text = (ROOT / name).read_text()
        assert NEVER_RUN.search(text), f"{name} needs no exception any more"
        assert not re.search(r"xfail|importorskip|pytest\.skip\(\)", text)
        assert not re.search(r"pytest\.mark\.skip\b", text)


def test_llama_cpp_is_named_in_one_room_only() -> None:
    """Its bindings are loaded by name there, which the import contracts cannot see."""
    elsewhere = [
        shown(path)
        for path in python_files(*SOURCE_FOLDERS)
        if "runtime" not in path.parts and _loads(nodes(path), "llama_cpp")
    ]
    assert elsewhere == []


def _judges(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name(id=called) | ast.Attribute(attr=called):
            return called == "raises" or called.startswith(JUDGING)
        case _:
            return False


def _loads(walked: Iterable[ast.AST], package: str) -> bool:
    for node in walked:
        match node:
            case ast.Import(names=names):
                loaded = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module)):
                loaded = [module]
            case ast.Constant(value=str(text)):
                loaded = [text]
            case _:
                continue
        if any(name.partition(".")[0] == package for name in loaded):
            return True
    return False


def test_the_look_at_loaded_packages_sees_each_way_to_load_one() -> None:
    for text in (
        "import llama_cpp.llama",
        "from llama_cpp import llama",
        "x('llama_cpp')",
    ):
        assert _loads(ast.walk(ast.parse(text)), "llama_cpp")
    assert not _loads(ast.walk(ast.parse("'about llama_cpp'")), "llama_cpp")
