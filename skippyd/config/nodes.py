"""The planner's input, `nodes.toml`: a model, wishes, and the nodes' memory.

`[model]` is either a `path` to a GGUF file or the facts themselves. Every key is known
or refused; every number has a bound, so that a slip of units is told from a machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.config.complaints import Complaint, InvalidConfigError
from skippyd.config.convert import Edge, structure
from skippyd.config.documents import parse_toml, read_document
from skippyd.config.sizes import SizeBytes
from skippyd.config.stage import CacheType, schema_complaints
from skippyd.config.stage_rules import LAYERS_MAX, STAGES_MAX, name_complaints
from skippyd.ids import ModelId, NodeId
from skippyd.units import GIB, I32_MAX, TIB, format_bytes


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NODES_SCHEMA = "skippy.nodes/1"
MEMORY_MAX_BYTES = 1024 * TIB
KV_MAX_BYTES = GIB
MILLISECONDS_MAX = 3_600_000
NO_HEADROOM = SizeBytes(0)
_FACTS = ("native_context", "layers", "weight_bytes", "kv_bytes_per_token")


@attrs.frozen(kw_only=True)
class ModelSection:
    """`[model]`: where the facts are, or the facts."""

    path: str | None = None
    id: ModelId | None = None
    native_context: int | None = None
    layers: int | None = None
    weight_bytes: SizeBytes | None = None
    kv_bytes_per_token: SizeBytes | None = None
    layer_weight_bytes: tuple[SizeBytes, ...] | None = None

    def __attrs_post_init__(self) -> None:
        """Check the rules between the keys."""
        _raise_any([*_source_complaints(self), *_fact_complaints(self)])


@attrs.frozen(kw_only=True)
class PlanSection:
    """`[plan]`: what the operator wants; None leaves it to the planner."""

    min_nodes: int = 1
    context: int | None = None
    lanes: int | None = None
    target_tpot_ms: float | None = None
    cache_type_k: CacheType | None = None
    cache_type_v: CacheType | None = None

    def __attrs_post_init__(self) -> None:
        """Check the bounds; the planner judges what is small but possible."""
        _raise_any(
            [
                *_outside("min_nodes", self.min_nodes, 1, STAGES_MAX),
                *_outside("context", self.context, 0, I32_MAX),
                *_outside("lanes", self.lanes, 0, I32_MAX),
                *_outside("target_tpot_ms", self.target_tpot_ms, 0, MILLISECONDS_MAX),
            ]
        )


@attrs.frozen(kw_only=True)
class NodeSection:
    """One `[[nodes]]`: what a machine has and what of it may be used."""

    id: NodeId
    vram: SizeBytes
    max_vram: SizeBytes | None = None
    headroom: SizeBytes = NO_HEADROOM
    latency_ms: float | None = None

    def __attrs_post_init__(self) -> None:
        """Check name and bounds."""
        _raise_any(
            [
                *name_complaints("id", self.id),
                *_absurd("vram", self.vram, MEMORY_MAX_BYTES, smallest=1),
                *_absurd("max_vram", self.max_vram, MEMORY_MAX_BYTES, smallest=1),
                *_absurd("headroom", self.headroom, MEMORY_MAX_BYTES),
                *_outside("latency_ms", self.latency_ms, 0, MILLISECONDS_MAX),
            ]
        )


@attrs.frozen(kw_only=True)
class NodesDocument:
    """The whole file."""

    model: ModelSection | None = None
    plan: PlanSection = attrs.field(factory=PlanSection)
    nodes: tuple[NodeSection, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Check that there are nodes, each with an id of its own."""
        _raise_any([*_node_complaints(self.nodes)])


def load_nodes(path: Path) -> NodesDocument:
    """Read `nodes.toml`.

    Raises:
        ConfigError: With every complaint and its path in the document.
    """
    source = str(path)
    return nodes_document(parse_toml(read_document(path), source=source), source=source)


def nodes_document(document: dict[str, object], *, source: str) -> NodesDocument:
    """Build the value from a parsed document.

    Raises:
        InvalidConfigError: With every complaint and its path in the document.
    """
    rest = dict(document)
    found = schema_complaints(rest.pop("schema", NODES_SCHEMA), NODES_SCHEMA)
    return structure(rest, NodesDocument, source=source, edge=Edge.TOML, found=found)


def _raise_any(complaints: list[Complaint]) -> None:
    if complaints:
        raise InvalidConfigError(complaints)


def _source_complaints(model: ModelSection) -> Iterator[Complaint]:
    given = [
        name
        for name in (*_FACTS, "layer_weight_bytes")
        if getattr(model, name) is not None
    ]
    if model.path is not None:
        for name in given:
            yield Complaint(name, "is read from the file at path; remove one of both")
        if not model.path:
            yield Complaint("path", "is empty; write the path of a GGUF file")
        return
    missing = [name for name in _FACTS if getattr(model, name) is None]
    if missing:
        yield Complaint(
            "", f"{', '.join(missing)} missing; write them, or path to a GGUF file"
        )


def _fact_complaints(model: ModelSection) -> Iterator[Complaint]:
    if model.id is not None:
        yield from name_complaints("id", model.id)
    yield from _outside("native_context", model.native_context, 1, I32_MAX)
    yield from _outside("layers", model.layers, 1, LAYERS_MAX)
    yield from _absurd("weight_bytes", model.weight_bytes, MEMORY_MAX_BYTES, smallest=1)
    yield from _absurd(
        "kv_bytes_per_token", model.kv_bytes_per_token, KV_MAX_BYTES, smallest=1
    )
    weights = model.layer_weight_bytes
    if weights is None:
        return
    if model.layers is not None and len(weights) != model.layers:
        yield Complaint(
            "layer_weight_bytes",
            f"has {len(weights)} sizes for {model.layers} layers; write one for each",
        )
    for index, size in enumerate(weights):
        place = f"layer_weight_bytes[{index}]"
        yield from _absurd(place, size, MEMORY_MAX_BYTES)


def _node_complaints(nodes: tuple[NodeSection, ...]) -> Iterator[Complaint]:
    if not nodes:
        yield Complaint("nodes", "there is none; write at least one [[nodes]]")
    first_use: dict[NodeId, int] = {}
    for index, node in enumerate(nodes):
        first = first_use.setdefault(node.id, index)
        if first != index:
            yield Complaint(
                f"nodes[{index}].id",
                f"{node.id} is the id of nodes[{first}] too; give each node its own",
            )


def _outside(
    name: str, value: float | None, smallest: int, largest: int
) -> Iterator[Complaint]:
    if value is not None and not smallest <= value <= largest:
        yield Complaint(name, f"{value} is outside {smallest} to {largest}")


def _absurd(
    name: str, size: int | None, largest: int, *, smallest: int = 0
) -> Iterator[Complaint]:
    if size is not None and not smallest <= size <= largest:
        yield Complaint(
            name,
            f"{size} bytes is outside {smallest} to {largest} bytes "
            f"({format_bytes(largest)})",
        )
