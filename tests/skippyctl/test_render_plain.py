from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.planning import Outcome, Refused, Wishes, plan_from_files
from skippyctl.render_plain import columns, plan_text
from support.nodes_files import BASE, QWEN, nodes, write_nodes


if TYPE_CHECKING:
    from pathlib import Path


def text(folder: Path, content: str, *, explain: bool = False) -> list[str]:
    outcome = plan_from_files(write_nodes(folder, content), Wishes())
    return plan_text(outcome, explain=explain).splitlines()


def test_a_plan_is_a_table_and_its_reasons(tmp_path: Path) -> None:
    assert text(tmp_path, QWEN + nodes(*["80GiB"] * 5)) == [
        "qwen-480b: 62 layers, 293 GiB weights, 128 KiB KV a token",
        "stage    node  layers  count  used  weights   KV        margin",
        "stage-0  n0    0..13   13     86%   61.6 GiB  6.71 GiB  11.6 GiB",
        "stage-1  n1    13..26  13     86%   61.6 GiB  6.71 GiB  11.6 GiB",
        "stage-2  n2    26..38  12     79%   56.9 GiB  6.19 GiB  16.9 GiB",
        "stage-3  n3    38..50  12     79%   56.9 GiB  6.19 GiB  16.9 GiB",
        "stage-4  n4    50..62  12     79%   56.9 GiB  6.19 GiB  16.9 GiB",
        "context: 262,144 tokens: the model's native context",
        "nodes: 5 of 5: 4 would miss 8.27 GiB on 2 nodes (n0, n1)",
        "lanes: 4 sharing one KV cache, the default",
        "network: no latency known",
    ]


def test_a_refusal_shows_what_came_nearest(tmp_path: Path) -> None:
    lines = text(tmp_path, QWEN + nodes(*["70GiB"] * 4))

    assert lines[1].startswith("refused (NoValidTopology): the model does not fit")
    assert lines[2] == "nearest arrangement:"
    assert lines[4].split()[-2:] == ["-7.93", "GiB"]
    assert len(lines) == 8


def test_a_refusal_with_nothing_to_show_is_two_lines() -> None:
    refused = Refused(name="NotOffered", message="no")
    lines = plan_text(Outcome(model_name="m", refused=refused), explain=True)
    assert lines.splitlines() == ["m", "refused (NotOffered): no"]


def test_explain_lists_the_candidates(tmp_path: Path) -> None:
    content = BASE + nodes("23GiB", "23GiB", more="latency_ms = 10")
    lines = text(tmp_path, content, explain=True)

    assert lines[-8:-6] == [
        "candidates:",
        "context  nodes  verdict       smallest margin  missing   network",
    ]
    rows = [" ".join(line.split()) for line in lines[-6:]]
    assert rows[0].startswith("262,144 1 does not fit -")
    assert rows[5] == "65,536 2 chosen 1023 MiB - 20 ms"


def test_nothing_is_cut_off() -> None:
    name = "x" * 300
    assert columns([("a", name), ("bbb", "c")]) == [f"a    {name}", "bbb  c"]
