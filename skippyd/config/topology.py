"""The topology document: every stage of one chain, and whether a stage fits into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.config.complaints import Complaint, InvalidConfigError, show
from skippyd.config.convert import structure, unstructure
from skippyd.config.documents import parse_json, read_document
from skippyd.config.endpoints import Endpoint
from skippyd.config.stage import LoadMode, PeerConfig, StageConfig, schema_complaints
from skippyd.config.stage_rules import LAYERS_MAX, STAGES_MAX, name_complaints
from skippyd.errors import ConfigError
from skippyd.ids import ModelId, StageId, TopologyId


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPOLOGY_SCHEMA = "skippy.topology/1"


@attrs.frozen(kw_only=True)
class TopologyStage:
    """One stage of the chain: its place, its layers and where it is reached."""

    stage_id: StageId
    stage_index: int
    endpoint: Endpoint
    layer_start: int
    layer_end: int
    load_mode: LoadMode
    host: str | None = None


@attrs.frozen(kw_only=True)
class StageTopology:
    """A whole chain; ranges are contiguous from layer 0, in the order of the stages.

    Raises:
        InvalidConfigError: When stages overlap, leave a gap, repeat or are out of order.
    """

    topology_id: TopologyId
    model_id: ModelId
    stages: tuple[TopologyStage, ...]

    def __attrs_post_init__(self) -> None:
        """Check the rules between stages."""
        complaints = list(_topology_complaints(self))
        if complaints:
            raise InvalidConfigError(complaints)

    @property
    def final_stage(self) -> TopologyStage:
        """The stage that samples."""
        return self.stages[-1]

    def stage(self, stage_id: StageId) -> TopologyStage | None:
        """The entry with this id, if there is one."""
        return next((s for s in self.stages if s.stage_id == stage_id), None)


def load_topology(path: Path) -> StageTopology:
    """Read `topology.json`.

    Raises:
        ConfigError: With every complaint and its path in the document.
    """
    source = str(path)
    document = parse_json(read_document(path), source=source)
    return stage_topology(document, source=source)


def stage_topology(document: object, *, source: str) -> StageTopology:
    """Build the topology from a parsed document.

    Raises:
        InvalidConfigError: With every complaint and its path in the document.
    """
    if not isinstance(document, dict):
        raise InvalidConfigError(
            [Complaint("", f"expected an object, found {show(document)}")], source
        )
    rest = dict(document)
    found = schema_complaints(rest.pop("schema", TOPOLOGY_SCHEMA), TOPOLOGY_SCHEMA)
    return structure(rest, StageTopology, source=source, found=found)


def topology_document(topology: StageTopology) -> dict[str, object]:
    """The JSON document that reads back as `topology`."""
    return {"schema": TOPOLOGY_SCHEMA} | unstructure(topology)


def check_stage_in_topology(config: StageConfig, topology: StageTopology) -> None:
    """Refuse a stage that is not the one its topology describes.

    Raises:
        ConfigError: Naming each difference with both values.
    """
    entry = topology.stage(config.stage_id)
    if entry is None:
        known = ", ".join(stage.stage_id for stage in topology.stages)
        raise ConfigError(
            f"stage {config.stage_id} is not in topology {topology.topology_id}, "
            f"which has {known}"
        )
    differences = [
        *_value_differences(config, topology, entry),
        *_peer_differences(config, topology),
    ]
    if differences:
        raise ConfigError(
            f"{config.stage_id}: stage config does not match topology entry: "
            + "; ".join(differences)
        )


def _value_differences(
    config: StageConfig, topology: StageTopology, entry: TopologyStage
) -> Iterator[str]:
    pairs: tuple[tuple[str, object, object], ...] = (
        ("topology_id", config.topology_id, topology.topology_id),
        ("model_id", config.model_id, topology.model_id),
        ("stage_index", config.stage_index, entry.stage_index),
        ("layer_start", config.layer_start, entry.layer_start),
        ("layer_end", config.layer_end, entry.layer_end),
        ("load_mode", config.load_mode.value, entry.load_mode.value),
    )
    for name, ours, theirs in pairs:
        if ours != theirs:
            yield f"{name} is {ours} in the config and {theirs} in the topology"


def _peer_differences(config: StageConfig, topology: StageTopology) -> Iterator[str]:
    expected_down = _stage_id_at(topology, config.stage_index + 1)
    if _peer_id(config.downstream) != expected_down:
        yield (
            f"downstream is {_peer_id(config.downstream) or 'null'} in the config "
            f"and {expected_down or 'null'} in the topology"
        )
    expected_up = _stage_id_at(topology, config.stage_index - 1)
    if config.upstream is not None and config.upstream.stage_id != expected_up:
        yield (
            f"upstream is {config.upstream.stage_id} in the config "
            f"and {expected_up or 'null'} in the topology"
        )


def _peer_id(peer: PeerConfig | None) -> StageId | None:
    return None if peer is None else peer.stage_id


def _stage_id_at(topology: StageTopology, index: int) -> StageId | None:
    in_chain = 0 <= index < len(topology.stages)
    return topology.stages[index].stage_id if in_chain else None


def _topology_complaints(topology: StageTopology) -> Iterator[Complaint]:
    yield from name_complaints("topology_id", topology.topology_id)
    yield from name_complaints("model_id", topology.model_id)
    if not 1 <= len(topology.stages) <= STAGES_MAX:
        yield Complaint(
            "stages", f"holds {len(topology.stages)} stages; write 1 to {STAGES_MAX}"
        )
    seen: set[str] = set()
    next_layer = 0
    for index, stage in enumerate(topology.stages):
        for complaint in _stage_complaints(stage, index, next_layer):
            yield complaint.below(f"stages[{index}]")
        if stage.stage_id in seen:
            yield Complaint(f"stages[{index}].stage_id", "is given twice")
        seen.add(stage.stage_id)
        next_layer = stage.layer_end


def _stage_complaints(
    stage: TopologyStage, index: int, next_layer: int
) -> Iterator[Complaint]:
    yield from name_complaints("stage_id", stage.stage_id)
    if stage.stage_index != index:
        yield Complaint(
            "stage_index", f"is {stage.stage_index} at position {index}; write {index}"
        )
    if stage.endpoint.port == 0:
        yield Complaint("endpoint", "port 0 cannot be dialled")
    if not 0 <= stage.layer_start < stage.layer_end <= LAYERS_MAX:
        yield Complaint(
            "layer_start",
            "layer_start must be less than layer_end "
            f"({stage.layer_start} and {stage.layer_end}, at most {LAYERS_MAX})",
        )
    if stage.layer_start != next_layer:
        kind = "overlaps" if stage.layer_start < next_layer else "leaves a gap after"
        yield Complaint(
            "layer_start",
            f"{stage.layer_start} {kind} the stage before; write {next_layer}",
        )
