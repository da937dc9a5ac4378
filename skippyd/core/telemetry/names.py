"""The only place that spells the names of spans and attributes (skippy-facts 5.11)."""

from __future__ import annotations

from enum import StrEnum


SCOPE = "skippy-server"
"""Instrumentation scope of every span."""


class SpanName(StrEnum):
    """Spans and events, by what happens."""

    SERVER_START = "stage.server_start"
    READY_STATUS = "stage.ready_status"
    READY_HANDSHAKE = "stage.ready_handshake"
    RECV = "stage.recv"
    LLAMA_DECODE = "stage.llama_decode"
    TEXT_ENTRYPOINT = "stage.text_entrypoint"
    BINARY_RECV = "stage.binary_recv"
    BINARY_LLAMA_DECODE = "stage.binary_llama_decode"
    BINARY_DOWNSTREAM_WRITE = "stage.binary_downstream_write"
    BINARY_UPSTREAM_REPLY_WRITE = "stage.binary_upstream_reply_write"
    BINARY_MESSAGE_TIMING = "stage.binary_message_timing"
    BINARY_SESSION_STOP = "stage.binary_session_stop"
    SCHEDULER_START = "stage.scheduler_start"
    SCHEDULER_ITERATION = "stage.scheduler_iteration"
    OPENAI_SERVER_START = "stage.openai_server_start"
    OPENAI_HTTP_REQUEST = "stage.openai_http_request"
    OPENAI_REQUEST_SUMMARY = "stage.openai_request_summary"
    OPENAI_GENERATION_ADMIT = "stage.openai_generation_admit"
    OPENAI_GENERATION_ADMISSION_REJECTED = "stage.openai_generation_admission_rejected"
    OPENAI_GENERATION_SUMMARY = "stage.openai_generation_summary"
    OPENAI_DOWNSTREAM_CONNECT = "stage.openai_downstream_connect"
    OPENAI_PREFILL = "stage.openai_prefill"
    OPENAI_PREFILL_CHUNK = "stage.openai_prefill_chunk"
    OPENAI_DECODE = "stage.openai_decode"
    OPENAI_DECODE_TOKEN = "stage.openai_decode_token"  # noqa: S105 - no password


class Attribute(StrEnum):
    """Attributes of spans; units are in the names."""

    RUN_ID = "skippy.run_id"
    MODEL_ID = "skippy.model_id"
    TOPOLOGY_ID = "skippy.topology_id"
    STAGE_ID = "skippy.stage_id"
    STAGE_INDEX = "skippy.stage_index"
    LAYER_START = "skippy.layer_start"
    LAYER_END = "skippy.layer_end"
    LOAD_MODE = "skippy.load_mode"
    DROPPED_EVENTS = "skippy.otel_dropped_events"
    EXPORT_ERRORS = "skippy.otel_export_errors"
    SAFE_MODE = "skippy.scheduler.safe_mode"
    QUEUE_CAPACITY = "skippy.scheduler.queue_capacity"
    QUEUE_DEPTH = "skippy.scheduler.queue_depth"
    QUEUE_WAIT_MS = "skippy.scheduler.queue_wait_ms"
    MESSAGE_ELAPSED_MS = "skippy.message_elapsed_ms"
    INPUT_ACTIVATION_BYTES = "skippy.input_activation_bytes"
    OUTPUT_ACTIVATION_BYTES = "skippy.output_activation_bytes"
    MESSAGE_WIRE_BYTES = "llama_stage.message_wire_bytes"
    RECV_READ_MS = "llama_stage.recv_read_ms"
    COMPUTE_MS = "llama_stage.compute_ms"
    FORWARD_WRITE_MS = "llama_stage.forward_write_ms"
    DOWNSTREAM_WAIT_MS = "llama_stage.downstream_wait_ms"
    LOCK_WAIT_MS = "llama_stage.runtime_lock_wait_ms"
    LOCK_HOLD_MS = "llama_stage.runtime_lock_hold_ms"
    STEPS = "llama_stage.step_count"
    ELAPSED_MS = "llama_stage.elapsed_ms"
    OPERATION = "llama_stage.openai_operation"
    PROMPT_TOKENS = "llama_stage.prompt_token_count"
    COMPLETION_TOKENS = "llama_stage.completion_token_count"
    DECODE_TOKENS = "llama_stage.decode_token_count"
    TTFT_MS = "llama_stage.ttft_ms"
    TPOT_MS = "llama_stage.tpot_ms"
    HTTP_STATUS = "llama_stage.http_status"
    PHASE = "llama_stage.phase"


COLD_STEPS = 1
WARMUP_STEPS = 8


def decode_phase(step: int) -> str:
    """Name the phase of a decode step: cold (the first), warmup, steady (from 8 on)."""
    if step < COLD_STEPS:
        return "cold"
    return "warmup" if step < WARMUP_STEPS else "steady"
