from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.config.complaints import InvalidConfigError
from skippyd.config.endpoints import Endpoint
from skippyd.config.stage import PeerConfig, StageConfig, stage_config
from skippyd.config.topology import (
    StageTopology,
    check_stage_in_topology,
    load_topology,
    stage_topology,
    topology_document,
)
from skippyd.errors import ConfigError
from skippyd.ids import ModelId, StageId, TopologyId


if TYPE_CHECKING:
    from pathlib import Path


def document(*cuts: int) -> dict[str, Any]:
    """A topology of len(cuts) stages; stage i ends before layer cuts[i]."""
    starts = (0, *cuts[:-1])
    return {
        "topology_id": "topology-1",
        "model_id": "model-1",
        "stages": [
            {
                "stage_id": f"stage-{index}",
                "stage_index": index,
                "endpoint": f"127.0.0.1:{19000 + index}",
                "layer_start": start,
                "layer_end": end,
                "load_mode": "runtime-slice",
            }
            for index, (start, end) in enumerate(zip(starts, cuts, strict=True))
        ],
    }


def topology(*cuts: int) -> StageTopology:
    return stage_topology(document(*cuts), source="topology.json")


def middle_stage() -> StageConfig:
    return stage_config(
        {
            "run_id": "run-1",
            "topology_id": "topology-1",
            "model_id": "model-1",
            "stage_id": "stage-1",
            "stage_index": 1,
            "layer_start": 10,
            "layer_end": 20,
            "load_mode": "runtime-slice",
            "bind_addr": "127.0.0.1:19001",
            "upstream": {
                "stage_id": "stage-0",
                "stage_index": 0,
                "endpoint": "127.0.0.1:19000",
            },
            "downstream": {
                "stage_id": "stage-2",
                "stage_index": 2,
                "endpoint": "127.0.0.1:19002",
            },
        },
        source="stage.json",
    )


def test_a_chain_is_read_with_its_final_stage() -> None:
    chain = topology(10, 20, 30)
    assert [stage.layer_end for stage in chain.stages] == [10, 20, 30]
    assert chain.final_stage.stage_id == "stage-2"
    assert chain.final_stage.endpoint == Endpoint("127.0.0.1", 19002)
    assert chain.stage(StageId("stage-1")) == chain.stages[1]
    assert chain.stage(StageId("other")) is None


@pytest.mark.parametrize(
    ("path", "change", "complaint"),
    [
        (1, {"layer_start": 9}, "stages[1].layer_start: 9 overlaps the stage before"),
        (1, {"layer_start": 11}, "stages[1].layer_start: 11 leaves a gap after"),
        (0, {"layer_start": 1}, "stages[0].layer_start: 1 leaves a gap after"),
        (
            2,
            {"layer_end": 20},
            "stages[2].layer_start: layer_start must be less than layer_end (20 and 20",
        ),
        (2, {"layer_end": 9999}, "stages[2].layer_start: layer_start must be less"),
        (1, {"stage_index": 2}, "stages[1].stage_index: is 2 at position 1; write 1"),
        (1, {"stage_id": "stage-0"}, "stages[1].stage_id: is given twice"),
        (1, {"stage_id": ""}, "stages[1].stage_id: the text '' is not an identifier"),
        (1, {"endpoint": "h:0"}, "stages[1].endpoint: port 0 cannot be dialled"),
        (1, {"hots": "x"}, "stages[1].hots: unknown key; did you mean host?"),
    ],
)
def test_a_chain_with_a_fault_is_refused_with_the_place(
    path: int, change: dict[str, object], complaint: str
) -> None:
    broken = document(10, 20, 30)
    broken["stages"][path] |= change
    with pytest.raises(InvalidConfigError) as caught:
        stage_topology(broken, source="topology.json")
    (found,) = caught.value.complaints
    assert str(found).startswith(complaint)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stages": []}, "stages: holds 0 stages; write 1 to 1024"),
        ({"topology_id": ""}, "topology_id: the text '' is not an identifier"),
        ({"model_id": ""}, "model_id: the text '' is not an identifier"),
        ({"schema": "skippy.stage/1"}, "schema: expected 'skippy.topology/1'"),
        ({"stage": []}, "stage: unknown key; did you mean stages?"),
    ],
)
def test_the_document_itself_is_checked(
    change: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        stage_topology(document(10) | change, source="topology.json")
    (found,) = caught.value.complaints
    assert str(found).startswith(complaint)


def test_more_stages_than_the_format_has_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="stages: holds 1025 stages"):
        topology(*range(1, 1026))


@pytest.mark.parametrize("value", [None, [], "x"])
def test_a_topology_that_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfigError, match="expected an object"):
        stage_topology(value, source="topology.json")


def test_a_topology_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(document(10, 20)))
    assert load_topology(path) == topology(10, 20)


def test_a_stage_that_the_topology_describes_is_accepted() -> None:
    check_stage_in_topology(middle_stage(), topology(10, 20, 30))
    alone = attrs.evolve(middle_stage(), upstream=None)
    check_stage_in_topology(alone, topology(10, 20, 30))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"topology_id": TopologyId("t")}, "topology_id is t in the config and topo"),
        ({"model_id": ModelId("m")}, "model_id is m in the config and model-1 in the"),
        ({"layer_start": 9}, "layer_start is 9 in the config and 10 in the topology"),
        ({"layer_end": 21}, "layer_end is 21 in the config and 20 in the topology"),
        ({"downstream": None}, "downstream is null in the config and stage-2 in the"),
        (
            {
                "downstream": PeerConfig(
                    stage_id=StageId("x"), stage_index=2, endpoint=Endpoint("h", 1)
                )
            },
            "downstream is x in the config and stage-2 in the topology",
        ),
        (
            {
                "upstream": PeerConfig(
                    stage_id=StageId("x"), stage_index=0, endpoint=Endpoint("h", 1)
                )
            },
            "upstream is x in the config and stage-0 in the topology",
        ),
    ],
)
def test_each_difference_is_named_with_both_values(
    change: dict[str, Any], difference: str
) -> None:
    config = attrs.evolve(middle_stage(), **change)
    with pytest.raises(ConfigError) as caught:
        check_stage_in_topology(config, topology(10, 20, 30))
    assert str(caught.value).startswith(
        f"stage-1: stage config does not match topology entry: {difference}"
    )


def test_a_stage_index_elsewhere_in_the_chain_is_a_difference() -> None:
    config = attrs.evolve(middle_stage(), stage_index=2, upstream=None, downstream=None)
    with pytest.raises(ConfigError, match="stage_index is 2 in the config and 1 in"):
        check_stage_in_topology(config, topology(10, 20, 30))


def test_a_final_stage_with_a_downstream_is_a_difference() -> None:
    with pytest.raises(ConfigError, match=r"downstream is stage-2 in .* and null in"):
        check_stage_in_topology(middle_stage(), topology(10, 20))


def test_a_stage_that_is_not_in_the_topology_is_told_who_is() -> None:
    config = attrs.evolve(middle_stage(), stage_id=StageId("other"))
    with pytest.raises(ConfigError, match=r"stage other is not in .* stage-0, stage-1"):
        check_stage_in_topology(config, topology(10, 20))


@given(st.lists(st.integers(1, 4096), min_size=1, max_size=20, unique=True).map(sorted))
def test_contiguous_ranges_read_back_and_cover_every_layer(cuts: list[int]) -> None:
    chain = topology(*cuts)
    assert stage_topology(topology_document(chain), source="t") == chain
    covered = [n for s in chain.stages for n in range(s.layer_start, s.layer_end)]
    assert covered == list(range(cuts[-1]))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4)
)
def test_a_topology_is_accepted_exactly_when_its_ranges_tile_the_layers(
    ranges: list[tuple[int, int]],
) -> None:
    written = copy.deepcopy(document(*range(1, len(ranges) + 1)))
    for stage, (start, end) in zip(written["stages"], ranges, strict=True):
        stage["layer_start"], stage["layer_end"] = start, end
    covered = [n for start, end in ranges for n in range(start, end)]
    tiles = covered == list(range(len(covered))) and all(s < e for s, e in ranges)
    accepted = True
    try:
        stage_topology(written, source="t")
    except InvalidConfigError:
        accepted = False
    assert accepted is tiles
