"""Mutation runs: does any test notice when a decision is turned around?

    python tests/mutation/mutate.py skippyd/core/topology tests/core/topology

Each mutant changes one operator, comparison, condition, constant or `min`/`max` in one
file of a package. It is compiled in memory and put in the module's place by an import
hook in a forked child, which runs the module's own tests, then those of the package,
with a limit of seconds. The files on disk are never touched. Text, annotations,
decorators and assertions are left alone: they decide nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType


COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
PRELOADED = (
    "_pytest.assertion.rewrite",
    "attrs",
    "hypothesis.internal.conjecture.engine",
    "hypothesis.strategies",
    "pytest",
    "pytest_trio.plugin",
    "skippyd.model.fetching",
    "support.leaks",
    "support.watchdog",
)
"""What the tests of any package import; a child that is forked has it already."""
QUICK = (
    *("-x", "-q", "-m", "not slow", "--assert=plain"),
    *("-p", "no:cacheprovider", "-p", "no:anyio"),
    # The parent has imported hypothesis already, which pytest warns about.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
SWAPPED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
BITWISE = (ast.BitOr,)  # unions of types


@attrs.frozen(kw_only=True)
class Mutant:
    """One change: where, what, and the whole changed module."""

    path: Path
    line: int
    change: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of one file, in the order of its lines."""
    source = ast.parse(path.read_text(encoding="utf-8"))
    for index, node in enumerate(_decisions(source)):
        for change, apply in _changes(node):
            tree = copy.deepcopy(source)
            apply(_decisions(tree)[index])
            ast.fix_missing_locations(tree)
            line = getattr(node, "lineno", 0)
            yield Mutant(path=path, line=line, change=change, tree=tree)


def unchanged(path: Path) -> Mutant:
    """The file as it is; the tests must pass with it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return Mutant(path=path, line=0, change="nothing", tree=tree)


def _decisions(tree: ast.Module) -> list[ast.AST]:
    """The nodes that may be changed, in a fixed order."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(reversed(list(_children(node))))
    return found


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Children without what decides nothing."""
    skipped = {"annotation", "returns", "decorator_list", "type_params"}
    for name, value in ast.iter_fields(node):
        if name in skipped:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_silent(child):
                yield child


def _is_silent(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr):
        return True
    if isinstance(node, ast.keyword) and node.arg == "init":
        return True  # whether a constructor takes a field is declared, not decided
    is_typing_only = (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )
    return is_typing_only or (
        isinstance(node, ast.BinOp) and isinstance(node.op, BITWISE)
    )


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """What can be done to a node: a name, and how to do it to its copy."""
    match node:
        case ast.Compare(ops=[comparison]):
            for other in COMPARISONS.get(type(comparison), ()):
                yield _named(comparison, other), _setter("ops", [other()])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            swapped = ARITHMETIC[type(op)]
            yield _named(op, swapped), _setter("op", swapped())
        case ast.BoolOp(op=junction):
            opposite = ast.Or if isinstance(junction, ast.And) else ast.And
            yield _named(junction, opposite), _setter("op", opposite())
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "negate the condition", _setter("test", _negated(test))
        case ast.comprehension(ifs=[test]):
            yield "negate the filter", _setter("ifs", [_negated(test)])
        case _:
            yield from _value_changes(node)


def _value_changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """The same for constants, signs and calls."""
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "drop the sign or not", _replacer(operand)
        case ast.Constant(value=bool(value)):
            yield f"{value} becomes {not value}", _setter("value", not value)
        case ast.Constant(value=int(value)):
            yield f"{value} becomes {value + 1}", _setter("value", value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED_CALLS:
            other = ast.Name(id=SWAPPED_CALLS[name], ctx=ast.Load())
            yield f"{name} becomes {other.id}", _setter("func", other)
        case _:
            return


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(op=ast.Not(), operand=copy.deepcopy(test))


def _named(old: object, new: type) -> str:
    return f"{type(old).__name__} becomes {new.__name__}"


def _setter(field: str, value: object) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        setattr(node, field, value)

    return change


def _replacer(operand: ast.expr) -> Callable[[ast.AST], None]:
    """Turn `-x` into `+x` and `not x` into `not not x`: the same type, other value."""

    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.UnaryOp)
        if isinstance(node.op, ast.USub):
            node.op = ast.UAdd()
        else:
            node.operand = ast.UnaryOp(op=ast.Not(), operand=copy.deepcopy(operand))

    return change


class MutantFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves one module from changed code; all others are found as ever."""

    def __init__(self, module: str, path: Path, code: CodeType) -> None:
        self._module = module
        self._path = path
        self._code = code

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Claim the one module."""
        if fullname != self._module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(self._path))

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed code."""
        exec(self._code, module.__dict__)


@attrs.frozen(kw_only=True)
class Trial:
    """How mutants of one package are tried."""

    tests: Path
    limit_s: int

    def rounds(self, path: Path) -> list[list[Path]]:
        """The file's own tests, then the others: most mutants end in the first."""
        own = self.tests / f"test_{path.name}"
        everything = sorted(self.tests.glob("test_*.py"))
        others = [test for test in everything if test != own]
        return [[own], others] if own in everything else [others]

    def kills(self, mutant: Mutant) -> bool:
        """Tell whether some test fails, or none ends in time."""
        pid = os.fork()
        if pid == 0:
            self._run_child(mutant)
        _, status = os.waitpid(pid, 0)
        return status != 0

    def _run_child(self, mutant: Mutant) -> None:
        """Never returns: 0 when all tests pass, else another exit status."""
        # The default action of the alarm ends the process, whatever it is doing.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(self.limit_s)
        silence = os.open(os.devnull, os.O_RDWR)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        status = 70
        try:
            status = self._try_tests(mutant)
        finally:
            os._exit(status)

    def _try_tests(self, mutant: Mutant) -> int:
        import pytest  # noqa: PLC0415 - the parent has imported it already

        module = ".".join(mutant.path.with_suffix("").parts)
        code = compile(mutant.tree, str(mutant.path), "exec")
        sys.meta_path.insert(0, MutantFinder(module, mutant.path, code))
        for tests in self.rounds(mutant.path):
            status = int(pytest.main([*QUICK, *map(str, tests)]))
            if status != 0:
                return status
        return 0


@attrs.define
class Tally:
    """What came of the mutants, by file."""

    made: Counter[str] = attrs.field(factory=Counter)
    killed: Counter[str] = attrs.field(factory=Counter)
    survivors: list[Mutant] = attrs.field(factory=list)

    def add(self, mutant: Mutant, *, is_killed: bool) -> None:
        """Count one mutant."""
        self.made[mutant.path.name] += 1
        if is_killed:
            self.killed[mutant.path.name] += 1
        else:
            self.survivors.append(mutant)

    def percent(self) -> float:
        """Share of mutants that were killed."""
        return 100 * self.killed.total() / max(1, self.made.total())

    def report(self) -> Iterator[str]:
        """A line for each file, the survivors, and the sum."""
        for name, made in sorted(self.made.items()):
            yield f"{name:20} {self.killed[name]:5} of {made:5} killed"
        yield from (f"survived: {mutant}" for mutant in self.survivors)
        yield (
            f"{self.killed.total()} of {self.made.total()} mutants killed: "
            f"{self.percent():.1f} %"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Try every mutant; 1 when too few are killed, 2 when the tests fail without any."""
    arguments = _parser().parse_args(argv)
    _prepare()
    trial = Trial(tests=arguments.tests, limit_s=arguments.limit_s)
    paths = [
        path
        for path in sorted(arguments.package.glob("*.py"))
        if path.name not in {"__init__.py", *arguments.skip}
        and (not arguments.only or path.name in arguments.only)
    ]
    tally = Tally()
    for path in paths:
        if trial.kills(unchanged(path)):
            sys.stderr.write(f"{path}: the tests fail without a mutant\n")
            return 2
        for mutant in mutants_of(path):
            is_killed = trial.kills(mutant)
            tally.add(mutant, is_killed=is_killed)
            if not is_killed:
                sys.stderr.write(f"survived: {mutant}\n")
    sys.stdout.write("\n".join(tally.report()) + "\n")
    return int(tally.percent() < arguments.at_least)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run mutants against a package.")
    parser.add_argument("package", type=Path, help="folder, relative to the root")
    parser.add_argument("tests", type=Path, help="folder of its tests")
    parser.add_argument("--only", action="append", default=[], help="mutate this file")
    parser.add_argument("--skip", action="append", default=[], help="not this file")
    parser.add_argument("--limit-s", type=int, default=60, help="seconds a mutant has")
    parser.add_argument("--at-least", type=float, default=90.0, help="percent to kill")
    return parser


def _prepare() -> None:
    """Import what every child needs once, and nothing that may be mutated."""
    os.environ.setdefault("SKIPPY_HYPOTHESIS_PROFILE", "ci")
    root = Path.cwd()
    sys.path[:0] = [str(root), str(root / "tests")]
    for name in PRELOADED:
        importlib.import_module(name)


if __name__ == "__main__":
    sys.exit(main())
