"""Frames of the control protocol and the order in which they are checked.

Every request carries generation and requester; the order of checks and the words of the
refusals are those of skippy-facts 2.3: generation, requester, command, then the rules of
the command.  The requester is compared with the key that TLS has seen.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import attrs

from skippyd.config.complaints import show
from skippyd.config.convert import structure
from skippyd.config.documents import parse_json
from skippyd.coordination.identity import NODE_ID_DIGITS, is_node_id
from skippyd.coordination.ports import FEATURES, GENERATION, StageEndpoint
from skippyd.core.coordinator.messages import (
    ClaimCoordinator,
    LoadStage,
    PrepareStage,
    ProbeClaim,
)
from skippyd.core.wire.admission import AdmissionDescriptor, descriptor_defect
from skippyd.errors import ConfigError
from skippyd.ids import NodeId  # noqa: TC001 - cattrs reads the annotations
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from skippyd.units import I32_MAX


if TYPE_CHECKING:
    from skippyd.coordination.ports import NodeReport, StageRunSettings
    from skippyd.core.coordinator.messages import Request

DEFAULT_DEADLINE_MS = 30_000
LONGEST_DEADLINE_MS = 5 * 60 * 60 * 1000
"""A load may take four hours (skippy-facts 2.5)."""

LOCAL_GGUF_PREFIX = "local-gguf://sha256/"
LONGEST_VERSION = 64
MOST_FEATURES = 64
MOST_STAGES = 256

Document = dict[str, object]


@attrs.frozen(kw_only=True)
class Hello:
    """The first word of each side.

    Args:
        generation: Of the protocol.
        features: What it can do.
        requester_id: The node that speaks.
        version: Its release, for people.
        name: What people call it.
    """

    generation: int
    requester_id: NodeId
    features: tuple[str, ...]
    version: str
    name: str


@attrs.frozen(kw_only=True)
class Frame:
    """One request after its envelope was taken off.

    Args:
        deadline_ms: How long the requester waits for the answer.
        command: The command's own part, not looked at yet.
    """

    deadline_ms: int
    command: object


def hello_of(report: NodeReport) -> Document:
    """Write this node's first word."""
    return {
        "generation": report.generation,
        "requester_id": report.node_id,
        "features": list(report.features),
        "version": report.version,
        "name": report.name,
    }


def read_hello(params: object, *, peer_id: NodeId) -> Hello:
    """Check the first word of the other side.

    Args:
        params: What it said.
        peer_id: The node whose key TLS has seen.

    Raises:
        RpcError: It is of another generation, lacks a feature, or is somebody else.
    """
    document = _enveloped(params, peer_id)
    try:
        hello = structure(document, Hello, source="hello")
    except ConfigError as error:
        raise _refused("InvalidHello", str(error)) from error
    if len(hello.version) > LONGEST_VERSION or len(hello.features) > MOST_FEATURES:
        raise _refused("InvalidHello", "hello: version or features are too long")
    missing = [feature for feature in FEATURES if feature not in hello.features]
    if missing:
        raise _refused(
            "stage_protocol_generation",
            f"skippy stage generation {GENERATION} needs its feature bundle whole; "
            f"node {peer_id} (version {hello.version}) lacks {', '.join(missing)}; run "
            "the same release on every node",
        )
    return hello


def frame_of(requester_id: NodeId, deadline_ms: int, command: Document) -> Document:
    """Put a command into its envelope."""
    return {
        "generation": GENERATION,
        "requester_id": requester_id,
        "deadline_ms": deadline_ms,
        "command": command,
    }


def read_frame(params: object, *, peer_id: NodeId) -> Frame:
    """Take the envelope off and check it.

    Raises:
        RpcError: The first rule that it breaks.
    """
    document = _enveloped(params, peer_id)
    if document.get("command") is None:
        raise _refused("MissingStageControlCommand", "missing stage control command")
    unknown = document.keys() - {"generation", "requester_id", "deadline_ms", "command"}
    if unknown:
        raise _refused("InvalidFrame", f"unknown member {show(min(unknown))}")
    deadline_ms = document.get("deadline_ms", DEFAULT_DEADLINE_MS)
    match deadline_ms:
        case bool():
            pass
        case int() if 0 < deadline_ms <= LONGEST_DEADLINE_MS:
            return Frame(deadline_ms=deadline_ms, command=document["command"])
    raise _refused(
        "InvalidFrame", f"deadline_ms is a number from 1 to {LONGEST_DEADLINE_MS}"
    )


def check_request(
    request: Request, settings: StageRunSettings | None, *, sender: NodeId
) -> None:
    """Check the rules of a command that the pure rules of a node do not look at.

    Raises:
        RpcError: The first rule that it breaks.
    """
    match request:
        case ProbeClaim(claim=claim) | ClaimCoordinator(claim=claim):
            if str(claim.epoch.coordinator_id) != sender:
                raise _refused(
                    "CoordinatorMismatch",
                    f"a claim of coordinator {show(claim.epoch.coordinator_id)} comes "
                    f"from node {sender}; a node claims for itself only",
                )
        case LoadStage():
            _check_load(request, settings, needs_key=True)
        case PrepareStage(load=load):
            _check_load(load, settings, needs_key=False)
        case _:
            _check_small("shutdown_generation", request.shutdown_generation)
    if settings is not None and not isinstance(request, LoadStage | PrepareStage):
        raise _refused("InvalidFrame", "settings go with load and prepare only")


def _enveloped(params: object, peer_id: NodeId) -> Document:
    document = params if isinstance(params, dict) else {}
    generation = document.get("generation")
    if generation != GENERATION or isinstance(generation, bool):
        got = generation if isinstance(generation, int) else show(generation)
        raise _refused(
            "BadGeneration",
            f"bad skippy stage generation: expected {GENERATION}, got {got}",
        )
    requester = document.get("requester_id")
    if not isinstance(requester, str) or not is_node_id(requester):
        # Two digits to a byte; what is no hex at all has no length to tell.
        got = len(requester) // 2 if isinstance(requester, str) else 0
        raise _refused(
            "InvalidEndpointId",
            f"invalid endpoint_id length: expected {NODE_ID_DIGITS // 2}, got {got}",
        )
    if requester != peer_id:
        raise _refused(
            "InvalidEndpointId",
            f"the frame says it is of node {requester}, its connection is of {peer_id}",
        )
    return document


def _check_load(
    load: LoadStage, settings: StageRunSettings | None, *, needs_key: bool
) -> None:
    is_fenced = load.coordinator_term != 0 or load.coordinator_id is not None
    if is_fenced and not (load.participant_set_hash and load.topology_hash):
        raise _refused(
            "MissingLoadClaimHashes",
            "generation 8 stage load requires participant and topology hashes",
        )
    _check_admission(load)
    for name in ("shutdown_generation", "stage_index", "layer_start", "layer_end"):
        _check_small(name, getattr(load, name))
    if settings is None:
        raise _refused("InvalidFrame", "a load needs the settings of its run")
    _check_topology(load, settings.stages)
    _check_source(load, settings)
    _check_small("ctx_size", settings.ctx_size)
    _check_small("lane_count", settings.lane_count)
    if needs_key and not is_node_id(settings.run_key):
        # Not shown: it is a secret.
        raise _refused("InvalidFrame", "run_key is 64 lower-case hexadecimal digits")


def _check_admission(load: LoadStage) -> None:
    if not load.admission:
        raise _refused(
            "MissingStageAdmissionDescriptor",
            "generation 8 stage load/status requires an admission descriptor",
        )
    try:
        document = parse_json(load.admission, source="admission")
        descriptor = structure(document, AdmissionDescriptor, source="admission")
    except ConfigError as error:
        raise _refused("InvalidStageAdmissionDescriptor", str(error)) from error
    defect = descriptor_defect(
        descriptor,
        stage_index=load.stage_index,
        layer_start=load.layer_start,
        layer_end=load.layer_end,
    )
    if defect is not None:
        raise _refused("InvalidStageAdmissionDescriptor", defect)


def _check_topology(load: LoadStage, stages: tuple[StageEndpoint, ...]) -> None:
    if not 0 < len(stages) <= MOST_STAGES:
        raise _topology(f"{len(stages)} stages; expected 1 to {MOST_STAGES}")
    _check_stages(stages)
    mine = [stage for stage in stages if stage.stage_id == load.stage.stage_id]
    if len(mine) != 1:
        raise _topology(f"{show(load.stage.stage_id)} is not in it exactly once")
    named = (mine[0].stage_index, mine[0].layer_start, mine[0].layer_end)
    if named != (load.stage_index, load.layer_start, load.layer_end):
        raise _topology("the loaded stage has another place or range in it")


def _check_stages(stages: tuple[StageEndpoint, ...]) -> None:
    for position, stage in enumerate(stages):
        _check_stage(position, stage)
    for what in ("stage_id", "node_id"):
        seen = [getattr(stage, what) for stage in stages]
        if len(set(seen)) < len(seen):
            raise _topology(f"a {what} is repeated")
    for before, after in pairwise(stages):
        if before.layer_end != after.layer_start:
            raise _topology(
                f"{after.stage_id} begins at layer {after.layer_start}, the one before "
                f"it ends at {before.layer_end}"
            )


def _check_stage(position: int, stage: StageEndpoint) -> None:
    if stage.stage_index != position:
        raise _topology(f"entry {position} has index {stage.stage_index}")
    if not stage.stage_id or not stage.host:
        raise _topology(f"entry {position} has no stage_id or no host")
    if not is_node_id(stage.node_id):
        raise _refused(
            "InvalidEndpointId",
            f"invalid endpoint_id length: expected {NODE_ID_DIGITS // 2}, got "
            f"{len(stage.node_id) // 2}",
        )
    if not 0 <= stage.layer_start < stage.layer_end <= I32_MAX:
        raise _topology(f"entry {position} has an empty range")


def _check_source(load: LoadStage, settings: StageRunSettings) -> None:
    digest = load.key.package_ref.removeprefix(LOCAL_GGUF_PREFIX)
    if digest == load.key.package_ref:
        return
    if not is_node_id(digest):
        raise _refused(
            "InvalidLocalSourceReference",
            f"{show(load.key.package_ref)} is not {LOCAL_GGUF_PREFIX} and 64 "
            "lower-case hex digits",
        )
    if load.source_model_sha256 is None:
        raise _refused("MissingRequiredSourceDigest", "the source digest is missing")
    if {load.source_model_sha256, settings.model_sha256} != {digest}:
        raise _refused(
            "InvalidSourceDigest", "the source digest is not the one of package_ref"
        )


def _check_small(name: str, value: int) -> None:
    if not 0 <= value <= I32_MAX:
        raise _refused("InvalidFrame", f"{name} is not from 0 to {I32_MAX}")


def _topology(text: str) -> RpcError:
    return _refused("InvalidTopologyStages", f"invalid topology stages: {text}")


def _refused(reason: str, text: str) -> RpcError:
    return RpcError(RpcCode.INVALID_PARAMS, text, {"reason": reason})
