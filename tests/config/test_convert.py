from __future__ import annotations

from enum import StrEnum
from typing import NewType

import attrs
import pytest

from skippyd.config.complaints import Complaint, InvalidConfigError
from skippyd.config.convert import Edge, structure, unstructure
from skippyd.config.endpoints import Endpoint
from skippyd.config.sizes import SizeBytes


Name = NewType("Name", str)
NO_BYTES = SizeBytes(0)


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@attrs.frozen(kw_only=True)
class Leaf:
    name: Name
    count: int = 0
    ratio: float = 0.0


@attrs.frozen(kw_only=True)
class Tree:
    leaves: tuple[Leaf, ...] = ()
    best: Leaf | None = None
    colour: Colour = Colour.RED
    is_big: bool = False
    secret: bytes | None = None
    place: Endpoint | None = None
    size: SizeBytes = NO_BYTES
    words: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if len(self.leaves) > 2:
            raise InvalidConfigError([Complaint("leaves", "holds more than two")])


def complaints_of(value: object, edge: Edge = Edge.JSON) -> list[str]:
    with pytest.raises(InvalidConfigError) as caught:
        structure(value, Tree, source="s", edge=edge)
    return [str(complaint) for complaint in caught.value.complaints]


def test_a_whole_document_becomes_a_value() -> None:
    tree = structure(
        {
            "leaves": [{"name": "a", "count": 1}, {"name": "b", "ratio": 2}],
            "best": {"name": "c", "ratio": 0.5},
            "colour": "green",
            "is_big": True,
            "secret": "00ff",
            "place": "tcp://h:1",
            "size": 5,
            "words": ["x"],
        },
        Tree,
        source="s",
    )
    assert tree == Tree(
        leaves=(Leaf(name=Name("a"), count=1), Leaf(name=Name("b"), ratio=2.0)),
        best=Leaf(name=Name("c"), ratio=0.5),
        colour=Colour.GREEN,
        is_big=True,
        secret=b"\0\xff",
        place=Endpoint("h", 1),
        size=SizeBytes(5),
        words=("x",),
    )
    assert structure(unstructure(tree), Tree, source="s") == tree


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"is_big": 1}, "is_big: expected true or false, found the number 1"),
        ({"is_big": "true"}, "is_big: expected true or false, found the text 'true'"),
        ({"best": {"name": 3}}, "best.name: expected a text, found the number 3"),
        (
            {"best": {"name": "a", "count": "80"}},
            "best.count: expected a whole number, found the text '80'",
        ),
        (
            {"best": {"name": "a", "count": 1.9}},
            "best.count: expected a whole number, found the number 1.9",
        ),
        (
            {"best": {"name": "a", "count": True}},
            "best.count: expected a whole number, found true",
        ),
        (
            {"best": {"name": "a", "ratio": "1"}},
            "best.ratio: expected a finite number, found the text '1'",
        ),
        (
            {"best": {"name": "a", "ratio": float("inf")}},
            "best.ratio: expected a finite number, found the number inf",
        ),
        ({"best": {}}, "best.name: is required and missing"),
        ({"best": []}, "best: expected an object, found a list"),
        ({"best": {"name": "a\0"}}, "best.name: holds a NUL or half of a surrogate"),
        ({"best": {"name": "\ud800"}}, "best.name: holds a NUL or half of a surrogate"),
        ({"best": {"name": "x" * 70_000}}, "best.name: is longer than 65536"),
        ({"leaves": {}}, "leaves: expected a list, found an object"),
        ({"leaves": "ab"}, "leaves: expected a list, found the text 'ab'"),
        ({"leaves": [3]}, "leaves[0]: expected an object, found the number 3"),
        (
            {"leaves": [{"name": "a"}, {"name": "b", "cuont": 1}]},
            "leaves[1].cuont: unknown key; did you mean count?",
        ),
        ({"words": ["a", None]}, "words[1]: expected a text, found null"),
        (
            {"colour": "blue"},
            "colour: expected one of red, green, found the text 'blue'",
        ),
        ({"colour": None}, "colour: expected one of red, green, found null"),
        ({"secret": "0"}, "secret: expected an even number of hexadecimal digits"),
        ({"place": 80}, "place: expected a text, found the number 80"),
        ({"place": "h"}, "place: the text 'h' is not an endpoint"),
        ({"size": "1GiB"}, "size: expected a whole number, found the text '1GiB'"),
        ({"leavs": []}, "leavs: unknown key; did you mean leaves?"),
        ([], "expected an object, found a list"),
    ],
)
def test_nothing_is_coerced_and_every_complaint_has_its_path(
    document: object, complaint: str
) -> None:
    (found,) = complaints_of(document)
    assert found.startswith(complaint)


def test_all_complaints_come_at_once() -> None:
    found = complaints_of(
        {"is_big": 1, "leaves": [{}, {"name": 1, "x": 2}], "colour": "blue", "z": 1}
    )
    assert [line.split(":")[0] for line in found] == [
        "leaves[0].name",
        "leaves[1].name",
        "leaves[1].x",
        "colour",
        "is_big",
        "z",
    ]


def test_rules_between_fields_come_out_under_their_object() -> None:
    leaf = {"name": "a"}
    assert complaints_of({"leaves": [leaf, leaf, leaf]}) == [
        "leaves: holds more than two"
    ]


def test_complaints_found_before_are_reported_together() -> None:
    before = [Complaint("early", "was wrong")]
    with pytest.raises(InvalidConfigError) as caught:
        structure({"is_big": 1}, Tree, source="s", found=before)
    assert [c.path for c in caught.value.complaints] == ["early", "is_big"]
    with pytest.raises(InvalidConfigError, match="s: early: was wrong"):
        structure({}, Tree, source="s", found=before)


def test_only_toml_writes_sizes_with_units() -> None:
    tree = structure({"size": "1GiB"}, Tree, source="s", edge=Edge.TOML)
    assert tree.size == 2**30
    (complaint,) = complaints_of({"size": "1"}, Edge.TOML)
    assert complaint.startswith("size: the text '1' is not a size")


def test_a_secret_that_is_wrong_is_not_shown() -> None:
    (complaint,) = complaints_of({"secret": "deadbeefX"})
    assert "deadbeef" not in complaint
