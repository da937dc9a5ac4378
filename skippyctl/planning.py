"""From a nodes file and flags to a plan or a refusal, both with their reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyctl.gguf_facts import check_cuts, read_model
from skippyd.config.complaints import Complaint, InvalidConfigError
from skippyd.config.nodes import load_nodes
from skippyd.config.sizes import parse_size_bytes
from skippyd.config.stage import CacheType
from skippyd.core.topology.explain import explain_plan
from skippyd.core.topology.matrices import counted_request, plan_with_matrices
from skippyd.core.topology.plan import (
    NoValidTopology,
    TensorDoesNotFit,
    TopologyPlan,
)
from skippyd.core.topology.planner import plan_topology
from skippyd.core.topology.request import ModelShape, Node, PlanRequest
from skippyd.core.topology.wording import refusal_message
from skippyd.errors import ConfigError, ModelError, RefusedError, UsageError


if TYPE_CHECKING:
    from pathlib import Path

    from skippyctl.gguf_facts import FileModel
    from skippyd.config.nodes import NodesDocument, PlanSection
    from skippyd.core.topology.explain import Explanation
    from skippyd.core.topology.matrices import OutsideTensors
    from skippyd.core.topology.plan import PlanRefusal, StageAssignment


@attrs.frozen(kw_only=True)
class Wishes:
    """What the command line overrides; None keeps the file's word."""

    model_path: Path | None = None
    max_vram: str | None = None
    context: int | None = None
    lanes: int | None = None
    target_tpot_ms: float | None = None


@attrs.frozen(kw_only=True)
class Refused:
    """A plan that is not offered.

    Args:
        name: Stable, for scripts.
        message: For people.
        numbers: Stable keys of the refusal's own figures.
        nearest: What came closest, empty when nothing can be shown.
    """

    name: str
    message: str
    numbers: dict[str, object] = attrs.field(factory=dict)
    nearest: tuple[StageAssignment, ...] = ()


@attrs.frozen(kw_only=True)
class Outcome:
    """What was asked and what came of it: a plan with its reasons, or a refusal.

    `outside` are the tensors beside the layers when the model's file is known; the
    stages of the plan then carry their real bytes.
    """

    model_name: str
    request: PlanRequest | None = None
    plan: TopologyPlan | None = None
    explanation: Explanation | None = None
    refused: Refused | None = None
    outside: OutsideTensors | None = None


def plan_from_files(nodes_path: Path, wishes: Wishes) -> Outcome:
    """Read the files, then plan.

    Raises:
        UsageError: A file or a flag is wrong; the message names it and the remedy.
    """
    try:
        document = load_nodes(nodes_path)
        model_path = wishes.model_path
        if model_path is None and document.model and document.model.path is not None:
            model_path = nodes_path.parent / document.model.path
        if model_path is None:
            return _plan_from_facts(document, nodes_path, wishes)
        return _plan_from_model(document, model_path, wishes)
    except (ConfigError, ModelError) as error:
        raise UsageError(str(error)) from error


def _plan_from_facts(
    document: NodesDocument, nodes_path: Path, wishes: Wishes
) -> Outcome:
    model = document.model
    if model is None:
        raise ConfigError(
            f"{nodes_path}: there is no model; write [model] or give --model PATH"
        )
    types = ("cache_type_k", "cache_type_v")
    complaints = [
        Complaint(
            f"plan.{name}",
            "kv_bytes_per_token says it already; remove it, or give a path",
        )
        for name in types
        if getattr(document.plan, name) is not None
    ]
    if complaints:
        raise InvalidConfigError(complaints, str(nodes_path))
    shape = ModelShape(
        native_context=model.native_context or 0,
        layer_count=model.layers or 0,
        weight_bytes=model.weight_bytes or 0,
        kv_bytes_per_token=model.kv_bytes_per_token or 0,
        layer_weight_bytes=model.layer_weight_bytes or (),
    )
    request = _request(shape, document, wishes)
    answer = plan_topology(request)
    return _outcome(model.id or "model", request, answer, explained=request)


def _plan_from_model(
    document: NodesDocument, model_path: Path, wishes: Wishes
) -> Outcome:
    name = document.model.id if document.model and not wishes.model_path else None
    try:
        opened = read_model(
            model_path,
            type_k=document.plan.cache_type_k or CacheType.F16,
            type_v=document.plan.cache_type_v or CacheType.F16,
        )
        return _plan_opened(opened, name, document, wishes)
    except RefusedError as error:
        refused = Refused(name="NotOffered", message=str(error))
        return Outcome(model_name=name or model_path.name, refused=refused)


def _plan_opened(
    opened: FileModel, name: str | None, document: NodesDocument, wishes: Wishes
) -> Outcome:
    request = _request(opened.shape, document, wishes)
    answer = plan_with_matrices(request, opened.outside)
    if isinstance(answer, TopologyPlan):
        check_cuts(opened, answer)
    outcome = _outcome(
        name or opened.name,
        request,
        answer,
        explained=counted_request(request, opened.outside),
    )
    return attrs.evolve(outcome, outside=opened.outside)


def _request(shape: ModelShape, document: NodesDocument, wishes: Wishes) -> PlanRequest:
    wanted: PlanSection = document.plan
    cap = _max_vram_bytes(wishes)
    nodes = tuple(
        Node(
            node_id=node.id,
            vram_bytes=node.vram,
            max_vram_bytes=node.max_vram if cap is None else cap,
            headroom_bytes=node.headroom,
            latency_us=_microseconds(node.latency_ms),
        )
        for node in document.nodes
    )
    return PlanRequest(
        model=shape,
        nodes=nodes,
        min_nodes=wanted.min_nodes,
        context_override=_first(wishes.context, wanted.context),
        lanes_override=_first(wishes.lanes, wanted.lanes),
        target_tpot_us=_microseconds(
            wanted.target_tpot_ms
            if wishes.target_tpot_ms is None
            else wishes.target_tpot_ms
        ),
    )


def _first(flag: int | None, written: int | None) -> int | None:
    return written if flag is None else flag


def _microseconds(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * 1000)


def _max_vram_bytes(wishes: Wishes) -> int | None:
    if wishes.max_vram is None:
        return None
    text = wishes.max_vram
    try:
        size = parse_size_bytes(int(text) if text.isdecimal() else text)
    except (ConfigError, ValueError) as error:
        raise UsageError(f"--max-vram: {error}") from error
    if size == 0:
        raise UsageError("--max-vram: 0 leaves no node anything; give a size")
    return size


def _outcome(
    name: str,
    request: PlanRequest,
    answer: TopologyPlan | PlanRefusal,
    *,
    explained: PlanRequest,
) -> Outcome:
    if isinstance(answer, TopologyPlan):
        return Outcome(
            model_name=name,
            request=request,
            plan=answer,
            explanation=explain_plan(explained, answer),
        )
    return Outcome(model_name=name, request=request, refused=_refused(answer))


def _refused(refusal: PlanRefusal) -> Refused:
    numbers: dict[str, object] = {
        field.name: value
        for field in attrs.fields(type(refusal))
        if isinstance(value := getattr(refusal, field.name), int | str | None)
    }
    nearest: tuple[StageAssignment, ...] = ()
    if isinstance(refusal, NoValidTopology):
        nearest = refusal.nearest
        numbers["missing_bytes"] = refusal.missing_bytes
        numbers["shortfalls"] = [_shortfall(stage) for stage in refusal.shortfalls]
    elif isinstance(refusal, TensorDoesNotFit):
        numbers |= _shortfall(refusal.stage)
    return Refused(
        name=type(refusal).__name__,
        message=refusal_message(refusal),
        numbers=numbers,
        nearest=nearest,
    )


def _shortfall(stage: StageAssignment) -> dict[str, object]:
    return {
        "node_id": stage.node_id,
        "layer_start": stage.layer_start,
        "layer_end": stage.layer_end,
        "needed_bytes": stage.needed_bytes,
        "usable_bytes": stage.usable_bytes,
        "missing_bytes": -stage.remaining_bytes,
    }
