"""The documents of the admin socket keep their names and keys (contract)."""

from __future__ import annotations

import attrs
import pytest

from skippyd.admin import (
    api,
    schema,
    schema_changes,
    schema_checks,
    schema_lists,
    schema_live,
    schema_status,
    wishes,
)
from skippyd.config.convert import structure, unstructure
from support.admin_documents import ALPHA, DEPLOYMENT, degraded, event, serving


PARTS = (schema_changes, schema_checks, schema_lists, schema_live, schema_status)

# Typed from the contract, "Command output"; `name` and `node_name` are additions.
STATUS_KEYS = {
    "schema": None,
    "daemon": {"version", "node_id", "uptime_ms", "state", "reasons", "name"},
    "safe_mode": {"requested", "effective", "reason", "since"},
    "run": {
        "run_id", "topology_id", "model_id", "term", "coordinator_id",
        "lease_until_unix_ms", "route",
    },
    "stages": None,
}  # fmt: skip
STAGE_KEYS = {
    "stage_id", "stage_index", "node_id", "layer_start", "layer_end", "state",
    "state_age_ms", "reason", "pid", "bind_addr", "resident_bytes", "loaded_bytes",
    "total_bytes", "node_name", "health",
}  # fmt: skip
NAMES = {
    "Claims": "skippy.claims/1",
    "Deployment": "skippy.deployment/1",
    "Doctor": "skippy.doctor/1",
    "Done": "skippy.done/1",
    "Event": "skippy.event/1",
    "Events": "skippy.events/1",
    "Fence": "skippy.fence/1",
    "Hello": "skippy.hello/1",
    "Invitation": "skippy.invite/1",
    "Joined": "skippy.join/1",
    "Lanes": "skippy.lanes/1",
    "Leases": "skippy.leases/1",
    "Logs": "skippy.logs/1",
    "Nodes": "skippy.nodes/1",
    "SafeModeReport": "skippy.safe-mode/1",
    "Sessions": "skippy.sessions/1",
    "Status": "skippy.status/1",
    "Telemetry": "skippy.telemetry/1",
}


def test_status_has_the_keys_of_the_contract() -> None:
    document = unstructure(serving())
    assert document.keys() == STATUS_KEYS.keys()
    for name, keys in STATUS_KEYS.items():
        part = document[name]
        assert keys is None or (isinstance(part, dict) and part.keys() == keys), name
    stages = document["stages"]
    assert isinstance(stages, tuple | list)
    assert all(stage.keys() == STAGE_KEYS for stage in stages)


def test_terms_are_decimal_strings_bytes_and_milliseconds_whole_numbers() -> None:
    status = serving()
    assert status.run is not None
    assert status.run.term == "1764460800123456789"
    for part in PARTS:
        for cls in vars(part).values():
            if not (isinstance(cls, type) and attrs.has(cls)):
                continue
            for field in attrs.fields(cls):
                kind = cls.__annotations__[field.name]
                if field.name.endswith(("_ms", "_us", "_bytes")):
                    assert kind in {"int", "int | None"}, (cls, field.name)
                if field.name in {"term", "session_id", "request_id"}:
                    assert kind in {"str", "str | None"}, (cls, field.name)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_document_says_what_it_is(name: str) -> None:
    assert attrs.fields_dict(getattr(schema, name))["schema"].default == NAMES[name]


def test_every_document_with_a_name_is_listed_here() -> None:
    named = {
        name
        for name in schema.__all__
        if attrs.has(getattr(schema, name))
        and "schema" in attrs.fields_dict(getattr(schema, name))
    }
    assert named == NAMES.keys()


@pytest.mark.parametrize("status", [serving(), degraded()])
def test_a_status_survives_being_written_and_read(status: schema.Status) -> None:
    document = unstructure(status)
    document["stages"] = list(document["stages"])  # type: ignore[call-overload]
    daemon = document["daemon"]
    assert isinstance(daemon, dict)
    daemon["reasons"] = list(daemon["reasons"])
    assert structure(document, schema.Status, source="test") == status


def test_events_are_written_without_the_keys_that_have_no_value() -> None:
    written = schema.present_keys(unstructure(event(1, "plan", "3 stages")))
    assert written == {
        "schema": "skippy.event/1",
        "sequence": 1,
        "unix_ms": 1_764_468_001_000,
        "event": "plan",
        "message": "3 stages",
        "model_id": "smollm2",
        "is_final": False,
        "is_dry_run": False,
    }
    last = schema.present_keys(unstructure(DEPLOYMENT[-1]))
    assert (last["is_final"], last["exit_code"]) == (True, 0)


def test_secrets_do_not_show_in_a_repr() -> None:
    invitation = schema.Invitation(
        token="hush", node_id=ALPHA, address="a:1", expires_unix_ms=1
    )
    assert "hush" not in repr(invitation)
    assert "hush" not in repr(wishes.Join(token="hush"))


def test_both_ends_begin_with_the_same_constants() -> None:
    assert (api.API, api.PATH, api.HELLO, api.ITEM) == (1, "/v1", "hello", "item")
    assert (schema.API, schema.PATH) == (api.API, api.PATH)
