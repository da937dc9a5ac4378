from __future__ import annotations

import pytest

from skippyd.core.telemetry.names import SCOPE, Attribute, SpanName, decode_phase


@pytest.mark.parametrize(
    ("step", "phase"),
    [(0, "cold"), (1, "warmup"), (7, "warmup"), (8, "steady"), (1000, "steady")],
)
def test_phases_of_decoding_begin_at_1_and_8(step: int, phase: str) -> None:
    """skippy-facts 5.11: cold (step 0), warmup (1-7), steady (8 and more)."""
    assert decode_phase(step) == phase


def test_spans_are_named_for_stages_and_attributes_for_their_owner() -> None:
    assert SCOPE == "skippy-server"
    assert all(name.value.startswith("stage.") for name in SpanName)
    owners = {name.value.split(".")[0] for name in Attribute}
    assert owners == {"skippy", "llama_stage"}


def test_names_that_dashboards_rely_on() -> None:
    """Typed from skippy-facts 5.11 and from the seed on safe mode."""
    assert SpanName.BINARY_MESSAGE_TIMING.value == "stage.binary_message_timing"
    assert SpanName.OPENAI_DECODE_TOKEN.value == "stage.openai_decode_token"
    assert SpanName.OPENAI_GENERATION_SUMMARY.value == "stage.openai_generation_summary"
    assert Attribute.RUN_ID.value == "skippy.run_id"
    assert Attribute.DROPPED_EVENTS.value == "skippy.otel_dropped_events"
    assert Attribute.SAFE_MODE.value == "skippy.scheduler.safe_mode"
    assert Attribute.LOCK_WAIT_MS.value == "llama_stage.runtime_lock_wait_ms"
