"""The participant echo is exact or refused, field by field."""

from __future__ import annotations

import attrs
import pytest

from skippyd.core.wire.admission import AdmissionDescriptor, AdmissionProfile
from skippyd.core.wire.echo import ParticipantEcho, ReadyStatus, check_echo
from skippyd.ids import CoordinatorId, ModelId, RunId, StageId, Term, TopologyId


SENT = ParticipantEcho(
    topology_id=TopologyId("topology"),
    run_id=RunId("run"),
    model_id=ModelId("model"),
    backend="skippy",
    package_ref="local-gguf://sha256/aa",
    manifest_sha256="aa",
    source_model_sha256="aa",
    source_model_bytes=10,
    stage_id=StageId("stage-1"),
    stage_index=1,
    layer_start=4,
    layer_end=8,
    shutdown_generation=2,
    coordinator_term=Term(7),
    coordinator_id=CoordinatorId("coordinator"),
    admission=AdmissionDescriptor(
        package_id="sha256:aa",
        plan_id="skippy-plan:v1:aa",
        layer_start=4,
        layer_end=8,
        resident_tensor_ids=("blk.4.a",),
        profiles=(
            AdmissionProfile(
                profile_id="cpu",
                graph_identity="graph",
                profile_identity="profile",
                slice_identity="slice",
                source_snapshot_identity="source",
                graph_configuration_id="configuration",
                backend_id="backend",
            ),
        ),
    ),
)
READY = ReadyStatus(
    echo=SENT, state="READY", source_model_path=None, bind_addr="127.0.0.1:4021"
)

OTHER: dict[str, object] = {
    "topology_id": "x",
    "run_id": "x",
    "model_id": "x",
    "backend": "x",
    "package_ref": "x",
    "manifest_sha256": "x",
    "source_model_sha256": None,
    "source_model_bytes": 11,
    "stage_id": "x",
    "stage_index": 0,
    "layer_start": 3,
    "layer_end": 9,
    "shutdown_generation": 1,
    "coordinator_term": 8,
    "coordinator_id": "x",
    "admission": attrs.evolve(SENT.admission, package_id="sha256:bb"),
}


@pytest.mark.parametrize("bind_addr", ["127.0.0.1:4021", "[::1]:1", "host:65535"])
def test_an_exact_echo_is_accepted(bind_addr: str) -> None:
    assert check_echo(SENT, attrs.evolve(READY, bind_addr=bind_addr)) is None


def test_every_field_has_a_mutation() -> None:
    assert set(OTHER) == {field.name for field in attrs.fields(ParticipantEcho)}


@pytest.mark.parametrize("name", OTHER)
def test_one_changed_field_is_refused_by_name(name: str) -> None:
    echo = attrs.evolve(SENT, **{name: OTHER[name]})  # type: ignore[arg-type]
    mismatch = check_echo(SENT, attrs.evolve(READY, echo=echo))
    assert mismatch is not None
    assert mismatch.field == name
    assert mismatch.reason.startswith(f"stage stage-1: {name} ")


@pytest.mark.parametrize("state", ["STARTING", "STOPPING", "STOPPED", "FAILED"])
def test_a_stage_in_another_state_is_not_ready(state: str) -> None:
    mismatch = check_echo(SENT, attrs.evolve(READY, state=state))
    assert mismatch is not None
    assert mismatch.field == "state"


def test_a_stage_that_names_a_path_is_refused() -> None:
    mismatch = check_echo(SENT, attrs.evolve(READY, source_model_path="/m.gguf"))
    assert mismatch is not None
    assert mismatch.field == "source_model_path"


@pytest.mark.parametrize(
    "bind_addr",
    ["127.0.0.1:0", "127.0.0.1", "host:", "host:65536", "host:9999999", "host:²"],
)
def test_a_stage_without_a_port_is_refused(bind_addr: str) -> None:
    mismatch = check_echo(SENT, attrs.evolve(READY, bind_addr=bind_addr))
    assert mismatch is not None
    assert mismatch.field == "bind_addr"
