from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyctl.planning import Outcome, Wishes, plan_from_files
from skippyctl.reasons import decision_lines, milliseconds, names, nodes_word
from support.nodes_files import BASE, QWEN, nodes, write_nodes
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from pathlib import Path


def lines(folder: Path, text: str) -> list[str]:
    outcome = plan_from_files(write_nodes(folder, text), Wishes())
    return [f"{label}: {sentence}" for label, sentence in decision_lines(outcome)]


def test_the_native_context_needs_no_other_reason(tmp_path: Path) -> None:
    assert lines(tmp_path, QWEN + nodes(*["80GiB"] * 6)) == [
        "context: 262,144 tokens: the model's native context",
        "nodes: 5 of 6: 4 would miss 8.27 GiB on 2 nodes (n0, n1)",
        "lanes: 4 sharing one KV cache, the default",
        "network: no latency known",
        "note: not needed: n5",
    ]


def test_what_stopped_the_larger_context_is_said(tmp_path: Path) -> None:
    found = lines(tmp_path, QWEN + nodes(*["80GiB"] * 4))
    assert found[0] == (
        "context: 65,536 tokens: 131,072 would miss 3.70 MiB on 2 nodes (n0, n1)"
    )


def test_a_slower_larger_context_is_said(tmp_path: Path) -> None:
    text = BASE + "[plan]\nmin_nodes = 2\ntarget_tpot_ms = 33\n"
    found = lines(tmp_path, text + nodes(*["23GiB"] * 4, more="latency_ms = 10"))

    assert found[0] == (
        "context: 65,536 tokens: "
        "131,072 fits on 3 nodes, at 30 ms a token instead of 20 ms"
    )
    assert found[1] == "nodes: 2 of 4: min_nodes asks for 2"
    assert found[3] == "network: 20 ms a token (2 x 10 ms), target 33 ms: met"


def test_a_missed_target_is_loud(tmp_path: Path) -> None:
    text = QWEN + "[plan]\ntarget_tpot_ms = 33\ncontext = 65536\nlanes = 2\n"
    found = lines(tmp_path, text + nodes(*["80GiB"] * 4, more="latency_ms = 10"))

    assert found[0] == "context: 65,536 tokens: as asked for"
    assert found[2] == "lanes: 2 sharing one KV cache, as asked for"
    assert found[3] == "network: 40 ms a token (4 x 10 ms), target 33 ms: MISSED"


def test_a_target_without_latencies_cannot_be_judged(tmp_path: Path) -> None:
    found = lines(tmp_path, BASE + "[plan]\ntarget_tpot_ms = 5\n" + nodes("80GiB"))

    assert found[1] == "nodes: 1 of 1"
    assert found[3] == "network: no latency known, target 5 ms: cannot be judged"


def test_fewer_nodes_may_be_slower_or_fuller(tmp_path: Path) -> None:
    far = '[[nodes]]\nid = "far"\nvram = "80GiB"\nlatency_ms = 90\n'
    slower = lines(tmp_path, BASE + nodes(*["33GiB"] * 2, more="latency_ms = 1") + far)
    fuller = lines(tmp_path, BASE + nodes(*["80GiB"] * 2, more="latency_ms = 0"))

    assert slower[1] == "nodes: 2 of 3: 1 would do, at 90 ms a token instead of 2 ms"
    assert fuller[1] == (
        "nodes: 2 of 2: 1 would do, with less memory left on the fullest node"
    )


def test_an_assumed_latency_is_said(tmp_path: Path) -> None:
    unknown = '[[nodes]]\nid = "quiet"\nvram = "80GiB"\n'
    text = BASE + "[plan]\nmin_nodes = 2\n" + unknown
    found = lines(tmp_path, text + nodes("80GiB", more="latency_ms = 0.5"))

    assert found[-1] == (
        "note: no latency known for quiet: counted as the largest known one"
    )
    assert found[3] == "network: 1 ms a token (2 x 0.5 ms)"


def test_large_matrices_outside_the_layers_are_named(tmp_path: Path) -> None:
    write_random_model(tmp_path / "m.gguf", RandomModel(vocab_size=40_000))
    text = '[model]\npath = "m.gguf"\n[plan]\nmin_nodes = 3\n'
    found = lines(tmp_path, text + nodes(*["64MiB"] * 3))

    assert found[-2:] == [
        "note: stage-0 also holds token_embd.weight (9.76 MiB)",
        "note: stage-2 also holds token_embd.weight (9.76 MiB)",
    ]


def test_a_refusal_has_no_decisions() -> None:
    assert decision_lines(Outcome(model_name="x")) == []


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [(0, "0 ms"), (20_000, "20 ms"), (250, "0.25 ms"), (1, "0.001 ms")],
)
def test_latencies_are_short(microseconds: int, expected: str) -> None:
    assert milliseconds(microseconds) == expected


def test_long_lists_end_in_a_count() -> None:
    assert names(["a", "b", "c", "d"]) == "a, b, c, d"
    assert names(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"
    assert (nodes_word(1), nodes_word(2)) == ("1 node", "2 nodes")
