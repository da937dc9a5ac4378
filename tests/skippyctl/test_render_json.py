from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from skippyctl.planning import Outcome, Refused, Wishes, plan_from_files
from skippyctl.render_json import plan_json
from support.nodes_files import BASE, QWEN, nodes, write_nodes


if TYPE_CHECKING:
    from pathlib import Path


def document(outcome: Outcome, *, explain: bool = False) -> dict[str, Any]:
    line = plan_json(outcome, explain=explain)
    assert "\n" not in line
    read: dict[str, Any] = json.loads(line)
    return read


def plan(folder: Path, text: str) -> Outcome:
    return plan_from_files(write_nodes(folder, text), Wishes())


def test_a_plan_has_the_keys_that_scripts_rely_on(tmp_path: Path) -> None:
    text = BASE + "[plan]\nmin_nodes = 2\ntarget_tpot_ms = 33\n"
    answer = document(
        plan(tmp_path, text + nodes("23GiB", "23GiB", more="latency_ms = 10"))
    )

    assert answer == {
        "schema": "skippy.plan/1",
        "context_length": 65_536,
        "lanes": 4,
        "stages": [
            {
                "stage_id": f"stage-{index}",
                "stage_index": index,
                "node_id": f"n{index}",
                "layer_start": 20 * index,
                "layer_end": 20 * index + 20,
                "parameter_bytes": 20 * 2**30,
                "kv_bytes": 20 * 1639 * 65_536,
                "remaining_bytes": 3 * 2**30 - 20 * 1639 * 65_536,
            }
            for index in range(2)
        ],
        "estimated_decode_network_ms_per_token": 20,
        "estimated_decode_network_us_per_token": 20_000,
        "target_met": True,
        "assumed_latency_node_ids": [],
        "model_id": "base",
    }


def test_milliseconds_are_whole_and_rounded_up(tmp_path: Path) -> None:
    answer = document(plan(tmp_path, BASE + nodes("80GiB", more="latency_ms = 0.3")))

    assert answer["estimated_decode_network_ms_per_token"] == 1
    assert answer["estimated_decode_network_us_per_token"] == 300


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    answer = document(plan(tmp_path, BASE + nodes("80GiB")))

    assert answer["estimated_decode_network_ms_per_token"] is None
    assert answer["target_met"] is None
    assert "candidates" not in answer


def test_explain_adds_the_candidates(tmp_path: Path) -> None:
    answer = document(plan(tmp_path, QWEN + nodes(*["80GiB"] * 5)), explain=True)

    assert len(answer["candidates"]) == 15
    assert answer["candidates"][4] == {
        "context_length": 262_144,
        "stage_count": 5,
        "node_ids": ["n0", "n1", "n2", "n3", "n4"],
        "smallest_margin_bytes": 80 * 2**30 - 13 * 5_646_047_464,
        "missing_bytes": 0,
        "estimated_decode_network_ms_per_token": None,
        "verdict": "chosen",
    }
    assert answer["candidates"][0]["verdict"] == "does_not_fit"


def test_a_refusal_has_its_name_message_and_numbers() -> None:
    refused = Refused(name="Nope", message="é no", numbers={"requested": 3})
    line = plan_json(Outcome(model_name="m", refused=refused), explain=True)

    assert line.isascii()
    assert json.loads(line) == {
        "schema": "skippy.plan/1",
        "refused": "Nope",
        "message": "é no",
        "requested": 3,
    }
