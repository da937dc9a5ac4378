"""Whether a ready stage is the stage that was sent: the participant's echo.

The stage works its admission descriptor out anew from what it opened. Any difference
is a failure of the load and stops the whole run (skippy-facts 2.4).
"""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.messages import LoadStage, StageState, StageStatus


MAX_PORT = 65_535

MAX_SHOWN_CHARACTERS = 80
"""How much of a differing value a message shows; descriptors may be long."""


@attrs.frozen(kw_only=True)
class EchoDifference:
    """One field in which a ready stage is not what was asked for."""

    field: str
    sent: str
    echoed: str

    @property
    def text(self) -> str:
        """The difference in words."""
        return f"{self.field}: sent {self.sent}, echoed {self.echoed}"


def echo_differences(
    load: LoadStage, status: StageStatus
) -> tuple[EchoDifference, ...]:
    """Compare a ready stage's status with its load, field by field; empty when equal."""
    pairs: tuple[tuple[str, object, object], ...] = (
        ("state", StageState.READY.value, status.state.value),
        ("topology_id", load.stage.topology_id, status.stage.topology_id),
        ("run_id", load.stage.run_id, status.stage.run_id),
        ("stage_id", load.stage.stage_id, status.stage.stage_id),
        ("stage_index", load.stage_index, status.stage_index),
        ("model_id", load.key.model_id, status.key.model_id),
        ("package_ref", load.key.package_ref, status.key.package_ref),
        ("manifest_sha256", load.key.manifest_sha256, status.key.manifest_sha256),
        ("backend", load.backend, status.backend),
        ("source_model_sha256", load.source_model_sha256, status.source_model_sha256),
        ("source_model_bytes", load.source_model_bytes, status.source_model_bytes),
        ("source_model_path", None, status.source_model_path),
        ("layer_start", load.layer_start, status.layer_start),
        ("layer_end", load.layer_end, status.layer_end),
        ("shutdown_generation", load.shutdown_generation, status.shutdown_generation),
        ("coordinator_term", load.coordinator_term, status.coordinator_term),
        ("coordinator_id", load.coordinator_id, status.coordinator_id),
        ("admission", load.admission, status.admission),
    )
    differences = [
        EchoDifference(field=field, sent=_shown(sent), echoed=_shown(echoed))
        for field, sent, echoed in pairs
        if sent != echoed
    ]
    if not has_real_port(status.bind_addr):
        differences.append(
            EchoDifference(
                field="bind_addr",
                sent="a port to be bound",
                echoed=_shown(status.bind_addr),
            )
        )
    return tuple(differences)


def has_real_port(bind_addr: str) -> bool:
    """Say whether HOST:PORT names a port that was really bound (1 to 65535)."""
    _, separator, port = bind_addr.rpartition(":")
    is_number = bool(separator) and port.isascii() and port.isdecimal()
    is_short = len(port) <= len(str(MAX_PORT))
    return is_number and is_short and 0 < int(port) <= MAX_PORT


def _shown(value: object) -> str:
    text = repr(value)
    is_long = len(text) > MAX_SHOWN_CHARACTERS
    return text[:MAX_SHOWN_CHARACTERS] + "…" if is_long else text
