"""From a load to the documents that its stage process reads at start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from skippyd.config.endpoints import Endpoint
from skippyd.config.stage import (
    CacheType,
    FlashAttention,
    LoadMode,
    PeerConfig,
    StageConfig,
    StageTlsConfig,
    TlsPeerConfig,
    stage_document,
)
from skippyd.config.topology import StageTopology, TopologyStage, topology_document
from skippyd.coordination.admission import BACKEND, package_ref
from skippyd.core.wire.limits import RUN_KEY_BYTES
from skippyd.errors import RefusedError
from skippyd.ids import ModelId, StageId


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from skippyd.coordination.ports import StageEndpoint, StageRunSettings
    from skippyd.core.coordinator.messages import LoadStage
    from skippyd.ids import NodeId
    from skippyd.net.tls import OwnCertificate

CONFIG_FLAG = "--config"
TOPOLOGY_FLAG = "--topology"


@attrs.frozen(kw_only=True)
class ChainTrust:
    """What this node shows to the stages of a chain, and how it knows theirs.

    Args:
        own: Its certificate and key.
        certificate_of: The stored certificate of a node, None when it is not trusted.
    """

    own: OwnCertificate
    certificate_of: Callable[[NodeId], str | None]


@attrs.frozen(kw_only=True)
class StagePlace:
    """Where a stage lies on this node.

    Args:
        model_path: The model's file.
        host: The address it listens on.
        port: The port that is bound for it.
        n_threads: Compute threads; None for all physical cores.
        trust: For TLS off loopback; None where plaintext is wanted.
    """

    model_path: Path
    host: str
    port: int
    n_threads: int | None = None
    trust: ChainTrust | None = None


def check_load(load: LoadStage, settings: StageRunSettings) -> StageEndpoint:
    """Check that a load and its settings speak of one stage; return its entry.

    Raises:
        RefusedError: They contradict each other, or something is missing.
    """
    if load.backend != BACKEND:
        raise RefusedError(f"backend {load.backend!r} is not offered, only {BACKEND!r}")
    digest = settings.model_sha256
    named = (load.key.package_ref, load.key.manifest_sha256, load.source_model_sha256)
    if named != (package_ref(digest), digest, digest):
        raise RefusedError(
            f"the load names model {named[0]!r} with digests {named[1]!r} and "
            f"{named[2]!r}, its settings {digest!r}; send one model"
        )
    stages = settings.stages
    if not 0 <= load.stage_index < len(stages):
        raise RefusedError(
            f"the load is of stage {load.stage_index}, its settings list {len(stages)} "
            "stages; list every stage of the run in order"
        )
    entry = stages[load.stage_index]
    theirs = (entry.stage_id, entry.stage_index, entry.layer_start, entry.layer_end)
    ours = (load.stage.stage_id, load.stage_index, load.layer_start, load.layer_end)
    if ours != theirs:
        raise RefusedError(f"the load is of stage {ours}, its settings list {theirs}")
    return entry


def stage_documents(
    load: LoadStage, settings: StageRunSettings, place: StagePlace
) -> dict[str, bytes]:
    """Write the stage's configuration, and for stage 0 the topology, by their flags.

    Loads go from the last stage to the first: stage 0 is the one that knows every port.

    Raises:
        RefusedError: The settings are incomplete or contradict the load.
        InvalidConfigError: A value is one that no stage takes.
    """
    check_load(load, settings)
    config = stage_config_of(load, settings, place)
    documents = {CONFIG_FLAG: _json(stage_document(config))}
    if load.stage_index == 0:
        topology = _topology(load, settings, place)
        documents[TOPOLOGY_FLAG] = _json(topology_document(topology))
    return documents


def stage_config_of(
    load: LoadStage, settings: StageRunSettings, place: StagePlace
) -> StageConfig:
    """Build the stage's configuration; see `stage_documents`."""
    return StageConfig(
        run_id=load.stage.run_id,
        topology_id=load.stage.topology_id,
        model_id=ModelId(settings.model_id),
        stage_id=load.stage.stage_id,
        stage_index=load.stage_index,
        layer_start=load.layer_start,
        layer_end=load.layer_end,
        load_mode=LoadMode.RUNTIME_SLICE,
        bind_addr=Endpoint(place.host, place.port),
        model_path=str(place.model_path),
        ctx_size=settings.ctx_size,
        lane_count=settings.lane_count,
        cache_type_k=_cache_type(settings.cache_type_k),
        cache_type_v=_cache_type(settings.cache_type_v),
        flash_attn_type=_flash_attention(settings.flash_attn_type),
        n_threads=place.n_threads,
        downstream=_downstream(load, settings),
        transport_auth=_run_key(settings),
        tls=chain_tls(settings, place.trust),
    )


def chain_tls(
    settings: StageRunSettings, trust: ChainTrust | None
) -> StageTlsConfig | None:
    """Decide about TLS for a run, the same way on each of its nodes.

    Returns:
        The table of a stage; None when all stages are on loopback, or there is no
        trust to use because plaintext is wanted.

    Raises:
        RefusedError: A node of the chain is not known here.
    """
    hosts = {stage.host for stage in settings.stages}
    if trust is None or all(Endpoint(host, 0).is_loopback for host in hosts):
        return None
    return StageTlsConfig(
        certificate_path=str(trust.own.certificate_path),
        key_path=str(trust.own.key_path),
        peers=tuple(_tls_peer(stage, trust) for stage in settings.stages),
    )


def _tls_peer(stage: StageEndpoint, trust: ChainTrust) -> TlsPeerConfig:
    certificate = trust.certificate_of(stage.node_id)
    if certificate is None:
        raise RefusedError(
            f"{stage.stage_id} is on node {stage.node_id}, which this node does not "
            "trust: join the two (skippyctl invite, skippyctl join), for their stages "
            "speak TLS to each other"
        )
    return TlsPeerConfig(
        stage_index=stage.stage_index, node_id=stage.node_id, certificate=certificate
    )


def _downstream(load: LoadStage, settings: StageRunSettings) -> PeerConfig | None:
    index = load.stage_index + 1
    if index == len(settings.stages):
        return None
    below = settings.stages[index]
    return PeerConfig(
        stage_id=StageId(below.stage_id),
        stage_index=index,
        endpoint=_endpoint(below),
    )


def _topology(
    load: LoadStage, settings: StageRunSettings, place: StagePlace
) -> StageTopology:
    own = Endpoint(place.host, place.port)
    return StageTopology(
        topology_id=load.stage.topology_id,
        model_id=ModelId(settings.model_id),
        stages=tuple(
            TopologyStage(
                stage_id=StageId(stage.stage_id),
                stage_index=stage.stage_index,
                endpoint=_endpoint(stage) if stage.stage_index else own,
                layer_start=stage.layer_start,
                layer_end=stage.layer_end,
                load_mode=LoadMode.RUNTIME_SLICE,
            )
            for stage in settings.stages
        ),
    )


def _endpoint(stage: StageEndpoint) -> Endpoint:
    if stage.port == 0:
        raise RefusedError(
            f"the port of {stage.stage_id} is not known yet; load the stages from the "
            "last to the first and hand each port on"
        )
    return Endpoint(stage.host, stage.port)


def _run_key(settings: StageRunSettings) -> bytes:
    try:
        key = bytes.fromhex(settings.run_key)
    except ValueError:
        key = b""
    if len(key) != RUN_KEY_BYTES:
        raise RefusedError(
            f"the run key is not {RUN_KEY_BYTES} bytes in hexadecimal; draw a new one "
            "for each run"
        )
    return key


def _cache_type(name: str) -> CacheType:
    try:
        return CacheType(name)
    except ValueError as error:
        known = ", ".join(CacheType)
        raise RefusedError(f"cache type {name!r} is not one of {known}") from error


def _flash_attention(name: str) -> FlashAttention:
    try:
        return FlashAttention(name)
    except ValueError as error:
        known = ", ".join(FlashAttention)
        raise RefusedError(f"flash_attn_type {name!r} is not one of {known}") from error


def _json(document: dict[str, object]) -> bytes:
    return json.dumps(document).encode()
