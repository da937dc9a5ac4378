"""Rules of a stage configuration: ranges, contradictions, and what is not served yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from skippyd.config.complaints import Complaint, show
from skippyd.units import I32_MAX, counted


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.config.stage import StageConfig, StageTlsConfig

LAYERS_MAX = 4096
STAGES_MAX = 1024
LANES_MAX = 256  # sequences that one llama.cpp context can hold
THREADS_MAX = 512
LANE_POLL_MAX_US = 1_000_000
TRANSPORT_AUTH_MAX_BYTES = 64
_NAME_MAX_CHARACTERS = 256

# Field of the format -> values at which leaving it alone and obeying it are the same.
_LATER: dict[str, tuple[object, ...]] = {
    "batch_max_tokens": (None,),
    "cache_idle_slots": (None, False),
    "checkpoint_imatrix": (None,),
    "checkpoint_quantization": (None,),
    "direct_io": (None, False),
    "generation_signal_window": (None,),
    "glm_dsa_policy": ("auto",),
    "image_max_tokens": (None,),
    "image_min_tokens": (None,),
    "kv_cache": (None,),
    "kv_offload": (None, False),
    "main_gpu": (None,),
    "manifest_sha256": (None,),
    "materialized_path": (None,),
    "materialized_pinned": (False,),
    "media_marker": (None,),
    "mlock": (None, False),
    "mmap": (None, False),  # a slice is a stream: there is no file to map
    "n_gpu_layers": (0,),
    "no_host_buffer": (None, False),
    "op_offload": (None, False),
    "package_ref": (None,),
    "projector_path": (None,),
    "projector_use_gpu": (None, False),
    "selected_device": (None,),
    "source_model_bytes": (None,),
    "source_model_path": (None,),
    "split_mode": ("auto",),
}

# Field -> smallest and largest value; None in the configuration is always allowed here.
_RANGES: dict[str, tuple[int, int]] = {
    "stage_index": (0, STAGES_MAX - 1),
    "layer_start": (0, LAYERS_MAX - 1),
    "layer_end": (1, LAYERS_MAX),
    "ctx_size": (1, I32_MAX),
    "lane_count": (1, LANES_MAX),
    "lane_poll_us": (0, LANE_POLL_MAX_US),
    "n_threads": (1, THREADS_MAX),
    "n_batch": (1, I32_MAX),
    "n_ubatch": (1, I32_MAX),
    "prefill_chunk_size": (1, I32_MAX),
    "activation_width": (1, 2**20),
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NODE_ID = _SHA256


def later_complaints(document: dict[str, object]) -> list[Complaint]:
    """Take the fields that are not served yet out of `document`, complaining by name."""
    complaints = []
    for name in [name for name in document if name in _LATER]:
        value, neutral = document.pop(name), _LATER[name]
        if not any(type(value) is type(n) and value == n for n in neutral):
            complaints.append(
                Complaint(
                    name,
                    f"{show(value)} is not supported yet; "
                    f"leave it out or write {show(neutral[0])}",
                )
            )
    return complaints


def stage_complaints(config: StageConfig) -> list[Complaint]:
    """Everything that is wrong between the fields of a configuration."""
    return [
        *_range_complaints(config),
        *_name_complaints(config),
        *_layer_complaints(config),
        *_source_complaints(config),
        *_peer_complaints(config),
        *_engine_complaints(config),
        *([] if config.tls is None else _tls_complaints(config, config.tls)),
    ]


def name_complaints(field: str, name: str) -> list[Complaint]:
    """Complain about an identifier that is empty, endless or not printable."""
    if 0 < len(name) <= _NAME_MAX_CHARACTERS and name.isprintable():
        return []
    return [
        Complaint(
            field,
            f"{show(name)} is not an identifier; write 1 to {_NAME_MAX_CHARACTERS} "
            "printable characters",
        )
    ]


def _range_complaints(config: StageConfig) -> Iterator[Complaint]:
    if config.lane_count == 0:
        yield Complaint("lane_count", "lane_count must be greater than zero")
    for name, (smallest, largest) in _RANGES.items():
        value: int | None = getattr(config, name)
        if value is None or smallest <= value <= largest:
            continue
        if (name, value) != ("lane_count", 0):
            yield Complaint(name, f"{value} is outside {smallest} to {largest}")


def _name_complaints(config: StageConfig) -> Iterator[Complaint]:
    yield from name_complaints("run_id", config.run_id)
    yield from name_complaints("topology_id", config.topology_id)
    yield from name_complaints("model_id", config.model_id)
    yield from name_complaints("stage_id", config.stage_id)


def _layer_complaints(config: StageConfig) -> Iterator[Complaint]:
    if config.layer_start >= config.layer_end:
        yield Complaint(
            "layer_start",
            f"layer_start must be less than layer_end "
            f"({config.layer_start} and {config.layer_end})",
        )
    if (config.stage_index == 0) != (config.layer_start == 0):
        yield Complaint(
            "layer_start",
            f"stage {config.stage_index} starts at layer {config.layer_start}; "
            "stage 0 and only stage 0 starts at layer 0",
        )


def _source_complaints(config: StageConfig) -> Iterator[Complaint]:
    if config.load_mode.value != "runtime-slice":
        yield Complaint(
            "load_mode",
            f"{config.load_mode.value} is not supported yet; write runtime-slice",
        )
    if config.model_path == "":
        yield Complaint("model_path", "is empty; name a GGUF file or write null")
    digest = config.source_model_sha256
    if digest is not None and not _SHA256.fullmatch(digest):
        yield Complaint(
            "source_model_sha256",
            f"{show(digest)} is not a SHA-256; write 64 lower-case hexadecimal digits",
        )


def _peer_complaints(config: StageConfig) -> Iterator[Complaint]:
    sides = (("upstream", config.upstream, -1), ("downstream", config.downstream, 1))
    for side, peer, step in sides:
        if peer is None:
            continue
        yield from name_complaints(f"{side}.stage_id", peer.stage_id)
        if peer.endpoint.port == 0:
            yield Complaint(f"{side}.endpoint", "port 0 cannot be dialled")
        if peer.stage_index != config.stage_index + step:
            yield Complaint(
                f"{side}.stage_index",
                f"{peer.stage_index} is not next to this stage's index "
                f"{config.stage_index}; write {config.stage_index + step}"
                if config.stage_index + step >= 0
                else "stage 0 has no upstream stage; write null for upstream",
            )
    if config.transport_auth is not None:
        yield from _auth_complaints(config.transport_auth)


def _auth_complaints(run_key: bytes) -> Iterator[Complaint]:
    if not 1 <= len(run_key) <= TRANSPORT_AUTH_MAX_BYTES:
        yield Complaint(
            "transport_auth",
            f"holds {len(run_key)} bytes; write 1 to {TRANSPORT_AUTH_MAX_BYTES} bytes "
            "as hexadecimal digits",
        )


def _tls_complaints(config: StageConfig, tls: StageTlsConfig) -> Iterator[Complaint]:
    if config.transport_auth is None:
        yield Complaint("tls", "needs transport_auth: the token names the place")
    for field in ("certificate_path", "key_path"):
        if not getattr(tls, field):
            yield Complaint(f"tls.{field}", "is empty; name a PEM file")
    indices = [peer.stage_index for peer in tls.peers]
    last = config.stage_index if config.downstream is None else config.stage_index + 1
    if len(indices) > STAGES_MAX or indices != list(range(len(indices))):
        yield Complaint("tls.peers", "list every stage of the chain once, in order")
    elif len(indices) <= last:
        yield Complaint(
            "tls.peers",
            f"lists {counted(len(indices), 'stage')}; the chain goes on to {last}",
        )
    for number, peer in enumerate(tls.peers):
        if not _NODE_ID.fullmatch(peer.node_id):
            yield Complaint(
                f"tls.peers[{number}].node_id",
                f"{show(peer.node_id)} is no node id; write its 64 lower-case "
                "hexadecimal digits",
            )


def _engine_complaints(config: StageConfig) -> Iterator[Complaint]:
    n_batch, n_ubatch = config.n_batch, config.n_ubatch
    if n_batch is not None:
        if n_ubatch is not None and n_ubatch > n_batch:
            yield Complaint("n_ubatch", f"{n_ubatch} is more than n_batch {n_batch}")
        if config.prefill_chunk_size > n_batch:
            yield Complaint(
                "prefill_chunk_size",
                f"{config.prefill_chunk_size} is more than n_batch {n_batch}",
            )
    if config.cache_type_v.is_quantized and config.flash_attn_type.value == "disabled":
        yield Complaint(
            "cache_type_v",
            f"{config.cache_type_v.value} needs flash attention; write f16, bf16 or "
            "f32, or flash_attn_type auto",
        )
