"""Hashes of participants, topologies and plans; golden values were made with struct."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.coordinator.hashes import (
    PlannedLayers,
    participant_set_hash,
    plan_id,
    topology_hash,
)
from skippyd.core.coordinator.participants import Participant
from skippyd.ids import NodeId, StageId
from support.claims import changed


NODES = (
    Participant(
        node_id=NodeId("node-a"),
        vram_bytes=85_899_345_920,
        cached_slice_bytes=1,
        missing_artifact_bytes=2,
        rtt_ms=3,
        is_artifact_transfer_supported=True,
        availability_score=4,
    ),
    Participant(node_id=NodeId("node-b"), vram_bytes=80),
)
STAGES = (
    PlannedLayers(
        stage_id=StageId("stage-0"),
        stage_index=0,
        node_id=NodeId("node-a"),
        layer_start=0,
        layer_end=10,
        parameter_bytes=100,
    ),
    PlannedLayers(
        stage_id=StageId("stage-1"),
        stage_index=1,
        node_id=NodeId("node-b"),
        layer_start=10,
        layer_end=30,
        parameter_bytes=200,
    ),
)


def plan_id_of(stages: tuple[PlannedLayers, ...], *, lanes: int = 4) -> str:
    return plan_id(
        stages,
        context_length=65_536,
        lanes=lanes,
        cache_type_k="f16",
        cache_type_v="q8_0",
    )


def test_the_golden_hash_of_participants() -> None:
    assert participant_set_hash(NODES) == (
        "fef9fd4660fbf8164d017966c8f52e17a82ad790863e6de9299676f92add0a59"
    )


def test_the_golden_hash_of_a_topology() -> None:
    assert topology_hash(STAGES) == (
        "770197b2a9e91bb83ab6edbd62838f744917c707f9d42a0d091422fb1b2f8aff"
    )


def test_the_golden_plan_id() -> None:
    assert plan_id_of(STAGES) == (
        "skippy-plan:v1:"
        "0fa33feb231ac2e593f65fabc5d6477b9b18fc1587d3da123162ba11fa53418f"
    )


def test_participants_are_a_set_and_stages_are_a_row() -> None:
    assert participant_set_hash((*NODES[::-1], NODES[0])) == participant_set_hash(NODES)
    assert topology_hash(STAGES[::-1]) != topology_hash(STAGES)


def test_every_field_of_a_participant_counts() -> None:
    changes: list[dict[str, object]] = [
        {"node_id": "node-c"},
        {"vram_bytes": 1},
        {"cached_slice_bytes": 9},
        {"missing_artifact_bytes": 9},
        {"rtt_ms": 9},
        {"is_artifact_transfer_supported": False},
        {"availability_score": 9},
    ]
    hashes = {
        participant_set_hash((changed(NODES[0], **change), NODES[1]))
        for change in changes
    }

    assert len(hashes | {participant_set_hash(NODES)}) == len(changes) + 1


def test_every_field_of_a_stage_counts() -> None:
    changes: list[dict[str, object]] = [
        {"stage_id": "other"},
        {"stage_index": 9},
        {"node_id": "other"},
        {"layer_start": 9},
        {"layer_end": 9},
        {"parameter_bytes": 9},
    ]
    altered = [(changed(STAGES[0], **change), STAGES[1]) for change in changes]

    assert len({topology_hash(s) for s in (STAGES, *altered)}) == len(changes) + 1
    without_bytes = {plan_id_of(stages) for stages in altered[:-1]}
    assert len(without_bytes | {plan_id_of(STAGES)}) == len(changes)
    assert plan_id_of(STAGES) != plan_id_of(STAGES, lanes=3)


@given(
    st.text(max_size=4), st.text(max_size=4), st.text(max_size=4), st.text(max_size=4)
)
def test_moving_a_letter_between_ids_changes_the_hash(
    one: str, two: str, three: str, four: str
) -> None:
    first = changed(STAGES[0], stage_id=StageId(one), node_id=NodeId(two))
    second = changed(STAGES[0], stage_id=StageId(three), node_id=NodeId(four))

    is_same = (one, two) == (three, four)
    assert (topology_hash([first]) == topology_hash([second])) == is_same
