"""What a coordinator keeps: replaced whole, read strictly, refused with a remedy."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.rollout_wishes import (
    FILE_MAX_BYTES,
    MAX_WISHES,
    CoordinatorFile,
    CoordinatorFileError,
    Wish,
)
from skippyd.errors import ConfigError
from skippyd.ids import NodeId, Term


if TYPE_CHECKING:
    from pathlib import Path

WISH = Wish(
    model_id="m",
    model_sha256="ab" * 32,
    deployed_by=NodeId("a"),
    context=4_096,
    node_ids=(NodeId("a"), NodeId("b")),
    ran_on=(NodeId("a"),),
)


async def test_terms_and_wishes_come_back_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.json"
    memory = CoordinatorFile.open(path)
    assert (memory.highest_term, memory.wishes()) == (0, ())
    await memory.remember_term(Term(2**62))
    await memory.remember_wish(WISH)
    again = CoordinatorFile.open(path)
    assert (again.highest_term, again.wishes()) == (2**62, (WISH,))
    await again.forget_wish("m")
    await again.forget_wish("m")
    assert CoordinatorFile.open(path).wishes() == ()


async def test_a_term_is_a_decimal_string_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.json"
    await CoordinatorFile.open(path).remember_term(Term(2**60))
    assert json.loads(path.read_bytes())["highest_term"] == str(2**60)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_term_never_falls(tmp_path: Path) -> None:
    memory = CoordinatorFile.open(tmp_path / "coordinator.json")
    await memory.remember_term(Term(7))
    await memory.remember_term(Term(5))
    assert memory.highest_term == 7


async def test_a_newer_wish_replaces_the_older_one_of_its_model(tmp_path: Path) -> None:
    memory = CoordinatorFile.open(tmp_path / "coordinator.json")
    await memory.remember_wish(WISH)
    await memory.remember_wish(attrs.evolve(WISH, context=512))
    assert [wish.context for wish in memory.wishes()] == [512]


@pytest.mark.slow
async def test_wishes_are_bounded(tmp_path: Path) -> None:
    memory = CoordinatorFile.open(tmp_path / "coordinator.json")
    for number in range(MAX_WISHES):
        await memory.remember_wish(attrs.evolve(WISH, model_id=f"m{number}"))
    with pytest.raises(CoordinatorFileError, match="withdraw one"):
        await memory.remember_wish(WISH)


async def test_what_cannot_be_written_is_not_remembered(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    memory = CoordinatorFile.open(folder / "coordinator.json")
    folder.rmdir()
    with pytest.raises(CoordinatorFileError, match="claims nothing until it can"):
        await memory.remember_term(Term(7))
    assert memory.highest_term == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "missing"),
        (b'{"schema": "other/1", "highest_term": "1"}', "schema"),
        (b'{"schema": "skippy.coordinator/1", "highest_term": "-1"}', "not a number"),
        (b'{"schema": "skippy.coordinator/1", "highest_term": 1}', "expected a text"),
        (b" " * (FILE_MAX_BYTES + 1), "longer than"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(
    tmp_path: Path, text: bytes, complaint: str
) -> None:
    path = tmp_path / "coordinator.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=complaint):
        CoordinatorFile.open(path)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.json"
    path.mkdir()
    with pytest.raises(ConfigError, match="move it aside"):
        CoordinatorFile.open(path)
