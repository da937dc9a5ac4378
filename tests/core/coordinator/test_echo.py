"""The echo of a ready stage: every single difference is found."""

from __future__ import annotations

import pytest

from skippyd.core.coordinator.echo import (
    MAX_SHOWN_CHARACTERS,
    echo_differences,
    has_real_port,
)
from skippyd.core.coordinator.messages import StageState
from support.claims import changed, claim, load_of, ready_status


LOAD = load_of(claim())
STATUS = ready_status(LOAD)
KEY_FIELDS = ("model_id", "package_ref", "manifest_sha256")
STAGE_FIELDS = ("topology_id", "run_id", "stage_id")
CHANGES: dict[str, object] = {
    "state": StageState.STARTING,
    "coordinator_term": 11,
    "coordinator_id": "b",
    "shutdown_generation": 2,
    "stage_index": 2,
    "layer_start": 9,
    "layer_end": 21,
    "backend": "other",
    "source_model_sha256": "cd" * 32,
    "source_model_bytes": 1,
    "source_model_path": "/model.gguf",
    "bind_addr": "127.0.0.1:0",
    "admission": "another admission",
}


def test_an_honest_echo_has_no_difference() -> None:
    assert echo_differences(LOAD, STATUS) == ()


@pytest.mark.parametrize("field", CHANGES)
def test_each_changed_field_is_the_one_difference(field: str) -> None:
    altered = changed(STATUS, **{field: CHANGES[field]})

    assert [d.field for d in echo_differences(LOAD, altered)] == [field]


@pytest.mark.parametrize("field", [*KEY_FIELDS, *STAGE_FIELDS])
def test_each_changed_identity_is_the_one_difference(field: str) -> None:
    part = "key" if field in KEY_FIELDS else "stage"
    inner = changed(getattr(STATUS, part), **{field: "other"})
    altered = changed(STATUS, **{part: inner})

    assert [d.field for d in echo_differences(LOAD, altered)] == [field]


def test_a_difference_says_what_was_sent_and_echoed() -> None:
    (difference,) = echo_differences(LOAD, changed(STATUS, layer_end=21))

    assert difference.text == "layer_end: sent 20, echoed 21"


def test_a_long_value_is_shown_in_part() -> None:
    (difference,) = echo_differences(LOAD, changed(STATUS, admission="x" * 9_000))

    assert len(difference.echoed) == MAX_SHOWN_CHARACTERS + 1


@pytest.mark.parametrize(
    ("bind_addr", "is_real"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:65535", True),
        ("127.0.0.1:65536", False),
        ("127.0.0.1:0", False),
        ("127.0.0.1:", False),
        ("127.0.0.1:-1", False),
        ("19000", False),
        ("127.0.0.1:²", False),
        ("127.0.0.1:" + "9" * 5_000, False),
    ],
)
def test_a_bound_port_is_a_number_in_range(bind_addr: str, is_real: bool) -> None:
    assert has_real_port(bind_addr) is is_real
