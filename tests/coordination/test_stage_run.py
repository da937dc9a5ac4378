"""A run as operators and peers see it, in each of its states."""

from __future__ import annotations

from pathlib import Path

import attrs

from skippyd.coordination.admission import descriptor_text
from skippyd.coordination.stage_parts import StagePart
from skippyd.coordination.stage_run import StageRun
from skippyd.core.coordinator.messages import Origin, StageState
from skippyd.core.wire.admission import AdmissionDescriptor
from skippyd.units import MIB
from support.claims import claim, load_of
from support.stage_nodes import fake_child, small_settings


PART = StagePart(
    path=Path("m.gguf"),
    part_files=(),
    source_bytes=9 * MIB,
    tensor_bytes=4 * MIB,
    descriptor=AdmissionDescriptor(
        package_id="p",
        plan_id="q",
        layer_start=10,
        layer_end=20,
        resident_tensor_ids=("a",),
        profiles=(),
    ),
)


def run_of(host: str = "127.0.0.1") -> StageRun:
    return StageRun(
        load=load_of(claim()),
        settings=small_settings(),
        origin=Origin.NETWORK,
        host=host,
        since_unix_ms=5,
    )


def test_a_run_that_begins_has_opened_nothing_yet() -> None:
    report = run_of().report()

    assert report.status.state is StageState.STARTING
    assert report.status.admission == ""
    assert report.reason == "opening its model"
    assert (report.pid, report.loaded_bytes, report.total_bytes) == (None, 0, 0)


def test_progress_is_told_in_layers_and_bytes() -> None:
    run = run_of()
    run.part, run.child, run.share = PART, fake_child(), 0.5

    report = run.report()

    assert report.reason == "loading layers: 5 of 10, 2.00 MiB of 4.00 MiB"
    assert (report.loaded_bytes, report.total_bytes) == (2 * MIB, 4 * MIB)
    assert report.pid == 1000


def test_the_status_echoes_what_was_opened_and_where_it_listens() -> None:
    run = run_of("::1")
    run.part, run.port = PART, 19_000

    status = run.status()

    assert status.bind_addr == "[::1]:19000"
    assert status.admission == descriptor_text(PART.descriptor)
    assert status.source_model_bytes == 9 * MIB
    assert status.source_model_path is None
    assert (status.key, status.stage) == (run.load.key, run.load.stage)


def test_the_age_of_a_state_begins_with_the_state_and_not_with_its_reason() -> None:
    run = run_of()

    assert run.move(StageState.FAILED, "died", 10)
    assert run.move(StageState.FAILED, "died; not restarted", 20)
    assert not run.move(StageState.FAILED, "died; not restarted", 30)

    assert run.report().since_unix_ms == 10
    assert run.report().reason == "died; not restarted"


def test_a_dead_process_holds_no_memory() -> None:
    run = run_of()
    run.resident_bytes = 7

    assert run.report().resident_bytes == 0


def test_large_models_may_take_longer_to_start() -> None:
    """128 MiB a second, between 15 minutes and 4 hours (skippy-facts 2.5)."""
    run = run_of()
    limits = []
    for source_bytes in (0, 900 * 128 * MIB, 1800 * 128 * MIB, 2**50):
        run.part = attrs.evolve(PART, source_bytes=source_bytes)
        limits.append(run.start_limit_s)

    assert limits == [900, 900, 1800, 14_400]
