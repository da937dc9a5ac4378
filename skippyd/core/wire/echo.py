"""The participant echo: what a ready stage says it loaded, against what it was sent.

No topology is published before every stage has echoed its load exactly; a single
difference is a load failure that ends the whole split generation.
"""

from __future__ import annotations

from typing import Final

import attrs

from skippyd.core.wire.admission import AdmissionDescriptor, compare_descriptors
from skippyd.ids import (  # noqa: TC001 - the control edge structures these classes
    CoordinatorId,
    ModelId,
    RunId,
    StageId,
    Term,
    TopologyId,
)


READY_STATE: Final = "READY"
_PORT_MAX: Final = 65535


@attrs.frozen(kw_only=True)
class ParticipantEcho:
    """The fields of a load that a stage returns as it received or recomputed them."""

    topology_id: TopologyId
    run_id: RunId
    model_id: ModelId
    backend: str
    package_ref: str
    manifest_sha256: str
    source_model_sha256: str | None
    source_model_bytes: int | None
    stage_id: StageId
    stage_index: int
    layer_start: int
    layer_end: int
    shutdown_generation: int
    coordinator_term: Term
    coordinator_id: CoordinatorId
    admission: AdmissionDescriptor


@attrs.frozen(kw_only=True)
class ReadyStatus:
    """The status of a stage that claims to be ready."""

    echo: ParticipantEcho
    state: str
    source_model_path: str | None
    bind_addr: str


@attrs.frozen
class EchoMismatch:
    """The first field in which a stage is not what was asked for."""

    field: str
    reason: str


_PLAIN_FIELDS: Final = tuple(
    field.name for field in attrs.fields(ParticipantEcho) if field.name != "admission"
)


def check_echo(sent: ParticipantEcho, ready: ReadyStatus) -> EchoMismatch | None:
    """Compare an echo with what was sent; None when it is exact."""
    if ready.state != READY_STATE:
        return _mismatch(sent, "state", f"is {ready.state}, not {READY_STATE}")
    for name in _PLAIN_FIELDS:
        wanted, got = getattr(sent, name), getattr(ready.echo, name)
        if wanted != got:
            return _mismatch(sent, name, f"was sent as {wanted}, echoed as {got}")
    if ready.source_model_path is not None:
        return _mismatch(
            sent, "source_model_path", f"is {ready.source_model_path}, must be absent"
        )
    if not _has_port(ready.bind_addr):
        return _mismatch(
            sent, "bind_addr", f"is {ready.bind_addr!r}, without the port it listens on"
        )
    if mismatch := compare_descriptors(sent.admission, ready.echo.admission):
        return _mismatch(sent, "admission", str(mismatch))
    return None


def _mismatch(sent: ParticipantEcho, field: str, what: str) -> EchoMismatch:
    return EchoMismatch(
        field,
        f"stage {sent.stage_id}: {field} {what}; the split generation is stopped",
    )


def _has_port(bind_addr: str) -> bool:
    _, _, port = bind_addr.rpartition(":")
    return port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= _PORT_MAX
