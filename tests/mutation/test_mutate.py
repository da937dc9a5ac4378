from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mutation.mutate import Tally, mutants_of, unchanged


if TYPE_CHECKING:
    from pathlib import Path


SOURCE = '''
from __future__ import annotations

LIMIT: int = 3


def decide(size: int, names: list[str] | None = None) -> bool:
    """Text is left alone."""
    assert size > 0
    if size < LIMIT and not names:
        return True
    return max(size - 1, 0) in range(5)
'''


def write(tmp_path: Path) -> Path:
    path = tmp_path / "decide.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_every_decision_is_turned_around_once(tmp_path: Path) -> None:
    changes = [mutant.change for mutant in mutants_of(write(tmp_path))]

    assert changes == [
        "3 becomes 4",
        "negate the condition",
        "And becomes Or",
        "Lt becomes LtE",
        "Lt becomes GtE",
        "drop the sign or not",
        "True becomes False",
        "In becomes NotIn",
        "max becomes min",
        "Sub becomes Add",
        "1 becomes 2",
        "0 becomes 1",
        "5 becomes 6",
    ]


def test_each_mutant_differs_from_the_source_and_from_the_others(
    tmp_path: Path,
) -> None:
    path = write(tmp_path)
    texts = [ast.unparse(mutant.tree) for mutant in mutants_of(path)]

    assert ast.unparse(unchanged(path).tree) not in texts
    assert len(set(texts)) == len(texts)


def test_a_report_names_the_survivors(tmp_path: Path) -> None:
    first, second, *_ = mutants_of(write(tmp_path))
    tally = Tally()
    tally.add(first, is_killed=True)
    tally.add(second, is_killed=False)

    *_, survivor, total = tally.report()
    assert survivor.endswith("decide.py:10: negate the condition")
    assert total == "1 of 2 mutants killed: 50.0 %"
    assert tally.percent() == 50.0
