"""The stage configuration: one loaded stage, as `stage.json` describes it.

A document may hold every field of the format. Fields that this version does not serve
are accepted at their neutral value and refused by name at any other, so a stage never
runs differently from what its file says.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from skippyd.config.complaints import Complaint, InvalidConfigError, show
from skippyd.config.convert import structure, unstructure
from skippyd.config.documents import parse_json, read_document
from skippyd.config.endpoints import Endpoint
from skippyd.config.stage_rules import later_complaints, stage_complaints
from skippyd.errors import ConfigError
from skippyd.ids import ModelId, NodeId, RunId, StageId, TopologyId


if TYPE_CHECKING:
    from collections.abc import Mapping

STAGE_SCHEMA = "skippy.stage/1"


class LoadMode(StrEnum):
    """Where a stage's tensors come from; only `runtime-slice` is served yet."""

    RUNTIME_SLICE = "runtime-slice"
    LAYER_PACKAGE = "layer-package"
    ARTIFACT_SLICE = "artifact-slice"


class CacheType(StrEnum):
    """Element type of the K or V half of the KV cache."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q5_1 = "q5_1"
    Q5_0 = "q5_0"
    Q4_1 = "q4_1"
    Q4_0 = "q4_0"
    IQ4_NL = "iq4_nl"

    @property
    def is_quantized(self) -> bool:
        """Whether elements are stored in blocks with a shared scale."""
        return self not in {CacheType.F32, CacheType.F16, CacheType.BF16}


class FlashAttention(StrEnum):
    """Whether attention uses the fused kernel; it changes the last bits of logits."""

    AUTO = "auto"
    DISABLED = "disabled"
    ENABLED = "enabled"


@attrs.frozen(kw_only=True)
class PeerConfig:
    """The neighbour on one side of a stage in the chain."""

    stage_id: StageId
    stage_index: int
    endpoint: Endpoint


@attrs.frozen(kw_only=True)
class TlsPeerConfig:
    """The node of one stage of the chain, as TLS knows it."""

    stage_index: int
    node_id: NodeId
    certificate: str  # PEM, the text itself


@attrs.frozen(kw_only=True)
class StageTlsConfig:
    """How this stage proves itself to the others of its chain, and who they are."""

    certificate_path: str
    key_path: str  # a path, so that the secret is in no document
    peers: tuple[TlsPeerConfig, ...]  # every stage in order, this one included


@attrs.frozen(kw_only=True)
class StageConfig:
    """One stage: which layers of which model, where it listens, how it computes.

    Fields with None take what their comment says. `native_mtp_enabled` has no effect on
    a model without such layers, and `filter_tensors_on_load` none at all: a slice only
    ever loads its own tensors.

    Raises:
        InvalidConfigError: When the values contradict each other, all reasons at once.
    """

    run_id: RunId
    topology_id: TopologyId
    model_id: ModelId
    stage_id: StageId
    stage_index: int
    layer_start: int
    layer_end: int
    load_mode: LoadMode
    bind_addr: Endpoint
    advertise_endpoint: Endpoint | None = None  # bind_addr
    model_path: str | None = None  # nothing can be served; relative to the working dir
    source_model_sha256: str | None = None  # not compared
    ctx_size: int = 512
    lane_count: int = 4
    lane_poll_us: int = 0
    cache_type_k: CacheType = CacheType.F16
    cache_type_v: CacheType = CacheType.F16
    flash_attn_type: FlashAttention = FlashAttention.AUTO
    kv_unified: bool = True
    swa_full: bool = True  # a rewind needs the cells that a sliding window would drop
    n_threads: int | None = None  # physical cores divided by the stages of this host
    n_batch: int | None = None  # the engine's choice for ctx_size
    n_ubatch: int | None = None  # the engine's choice for n_batch
    prefill_chunk_size: int = 64
    activation_width: int | None = None  # the model's
    native_mtp_enabled: bool = True
    filter_tensors_on_load: bool = False
    repack: bool | None = None  # llama.cpp's default: yes
    check_tensors: bool | None = None  # llama.cpp's default: no
    upstream: PeerConfig | None = None
    downstream: PeerConfig | None = None
    transport_auth: bytes | None = attrs.field(default=None, repr=False)  # the run key
    tls: StageTlsConfig | None = None  # plaintext: loopback, or a tunnel

    def __attrs_post_init__(self) -> None:
        """Check the rules between fields."""
        complaints = stage_complaints(self)
        if complaints:
            raise InvalidConfigError(complaints)

    @property
    def layer_count(self) -> int:
        """Number of layers this stage computes."""
        return self.layer_end - self.layer_start

    @property
    def reachable_endpoint(self) -> Endpoint:
        """Where other stages reach this one."""
        return self.advertise_endpoint or self.bind_addr

    def require_model_path(self) -> Path:
        """The GGUF file to serve.

        Raises:
            ConfigError: When none is named, or a directory is.
        """
        if self.model_path is None:
            raise ConfigError(
                f"{self.stage_id}: model_path is null: name the GGUF file to serve"
            )
        path = Path(self.model_path)
        if path.is_dir():
            raise ConfigError(
                f"{self.stage_id}: model_path {path} is a directory: checkpoints are "
                "not supported yet; name a GGUF file"
            )
        return path


def load_stage_config(path: Path) -> StageConfig:
    """Read `stage.json`.

    Raises:
        ConfigError: With every complaint and its path in the document.
    """
    source = str(path)
    return stage_config(parse_json(read_document(path), source=source), source=source)


def stage_config(document: object, *, source: str) -> StageConfig:
    """Build the configuration from a parsed document.

    Raises:
        InvalidConfigError: With every complaint and its path in the document.
    """
    if not isinstance(document, dict):
        raise InvalidConfigError(
            [Complaint("", f"expected an object, found {show(document)}")], source
        )
    served, found = _served_part(document)
    return structure(served, StageConfig, source=source, found=found)


def stage_document(config: StageConfig) -> dict[str, object]:
    """The JSON document that reads back as `config`."""
    return {"schema": STAGE_SCHEMA} | unstructure(config)


def _served_part(
    document: Mapping[str, object],
) -> tuple[dict[str, object], list[Complaint]]:
    served = dict(document)
    found = schema_complaints(served.pop("schema", STAGE_SCHEMA), STAGE_SCHEMA)
    return served, found + later_complaints(served)


def schema_complaints(written: object, expected: str) -> list[Complaint]:
    """Complain when a document says it is something else; leaving it out is fine."""
    if written == expected:
        return []
    return [Complaint("schema", f"expected {expected!r}, found {show(written)}")]
