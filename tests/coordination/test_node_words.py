from __future__ import annotations

import pytest

from skippyd.coordination.node_words import (
    in_words,
    known_names,
    label,
    refusals_in_words,
)
from skippyd.errors import RefusedError
from skippyd.ids import NodeId
from support.node_reports import report_of
from support.planning_nodes import FixedNodes


A, B, C = NodeId("a1" * 32), NodeId("b2" * 32), NodeId("c3" * 32)
NAMES = {A: "atlas", B: ""}


def test_known_nodes_are_named_and_other_hashes_stay_whole() -> None:
    text = f"lost {A}: no answer; {B}: silent; no file with SHA-256 {C} in 1{A}"
    assert in_words(text, NAMES) == (
        "lost atlas (a1a1a1a1a1a1): no answer; b2b2b2b2b2b2: silent; "
        f"no file with SHA-256 {C} in 1{A}"
    )


def test_a_text_is_named_once() -> None:
    named = in_words(f"lost {A}", NAMES)
    assert in_words(named, NAMES) == named


def test_a_node_without_a_name_has_a_short_id() -> None:
    assert label(A, "") == "a1a1a1a1a1a1"
    assert label(A, "atlas") == "atlas (a1a1a1a1a1a1)"


def test_names_come_from_what_nodes_say() -> None:
    nodes = FixedNodes(A, {A: report_of(A)}, {})
    assert known_names(nodes) == {A: report_of(A).name}
    assert known_names(FixedNodes(B, {}, {})) == {B: ""}


def test_refusals_leave_with_names() -> None:
    nodes = FixedNodes(A, {A: report_of(A)}, {})
    with (
        pytest.raises(RefusedError, match=r"^no room on .* \(a1a1a1a1a1a1\)$"),
        refusals_in_words(nodes),
    ):
        raise RefusedError(f"no room on {A}")
