"""Frames in the order and the words of skippy-facts 2.3, and the rules of loads."""

from __future__ import annotations

import copy
import json
from typing import Any

import attrs
import pytest

from skippyd.coordination.control_frames import (
    DEFAULT_DEADLINE_MS,
    LONGEST_DEADLINE_MS,
    Frame,
    check_request,
    frame_of,
    hello_of,
    read_frame,
    read_hello,
)
from skippyd.coordination.ports import StageEndpoint, StageRunSettings
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimCoordinator,
    LoadStage,
    PrepareStage,
    ProbeClaim,
)
from skippyd.ids import NodeId, Term
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from support.claims import claim, load_of, stop_of
from support.control_nodes import report_of


ME, OTHER = NodeId("ab" * 32), NodeId("cd" * 32)
DIGEST = "ef" * 32
HELLO = hello_of(report_of(ME, "a"))
FRAME = frame_of(ME, 5_000, {"request": {}})


def refusal_of(error: pytest.ExceptionInfo[RpcError]) -> object:
    assert error.value.code == RpcCode.INVALID_PARAMS
    return error.value.data["reason"]


def test_a_hello_of_the_same_release_is_welcome() -> None:
    hello = read_hello(json.loads(json.dumps(HELLO)), peer_id=ME)
    assert (hello.requester_id, hello.name, hello.version) == (ME, "a", "0.1.0")


def test_features_that_are_not_known_here_do_no_harm() -> None:
    features = [*report_of(ME, "a").features, "artifact-transfer"]
    assert read_hello(HELLO | {"features": features}, peer_id=ME).requester_id == ME


@pytest.mark.parametrize("feature", report_of(ME, "a").features)
def test_the_bundle_is_demanded_whole(feature: str) -> None:
    rest = [known for known in report_of(ME, "a").features if known != feature]
    with pytest.raises(RpcError, match=f"lacks {feature}") as caught:
        read_hello(HELLO | {"features": rest}, peer_id=ME)
    assert refusal_of(caught) == "stage_protocol_generation"


@pytest.mark.parametrize(
    ("change", "text", "reason"),
    [
        (
            {"generation": 9},
            "bad skippy stage generation: expected 8, got 9",
            "BadGeneration",
        ),
        (
            {"generation": 7, "requester_id": "x", "command": None},
            "bad skippy stage generation: expected 8, got 7",
            "BadGeneration",
        ),
        ({"generation": "8"}, "expected 8, got the text '8'", "BadGeneration"),
        ({"generation": True}, "expected 8, got", "BadGeneration"),
        (
            {"requester_id": "ab" * 31, "command": None},
            "invalid endpoint_id length: expected 32, got 31",
            "InvalidEndpointId",
        ),
        ({"requester_id": 7}, "expected 32, got 0", "InvalidEndpointId"),
        ({"requester_id": OTHER}, "its connection is of", "InvalidEndpointId"),
        (
            {"command": None, "deadline_ms": 0},
            "missing stage control command",
            "MissingStageControlCommand",
        ),
        ({"deadline_ms": 0}, "deadline_ms is a number", "InvalidFrame"),
        ({"deadline_ms": True}, "deadline_ms is a number", "InvalidFrame"),
        ({"deadline_ms": "1"}, "deadline_ms is a number", "InvalidFrame"),
        ({"deadline_ms": LONGEST_DEADLINE_MS + 1}, "deadline_ms", "InvalidFrame"),
        ({"more": 1}, "unknown member the text 'more'", "InvalidFrame"),
    ],
)
def test_the_first_broken_rule_of_a_frame_wins(
    change: dict[str, object], text: str, reason: str
) -> None:
    with pytest.raises(RpcError, match=text) as caught:
        read_frame(FRAME | change, peer_id=ME)
    assert refusal_of(caught) == reason


@pytest.mark.parametrize("params", [None, [], "x", {}])
def test_what_is_no_frame_has_no_generation(params: object) -> None:
    with pytest.raises(RpcError, match="expected 8, got null"):
        read_frame(params, peer_id=ME)


@pytest.mark.parametrize(
    "change",
    [{"features": "all"}, {"name": None}, {"version": "x" * 65}, {"more": 1}],
)
def test_a_hello_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RpcError, match="hello") as caught:
        read_hello(HELLO | change, peer_id=ME)
    assert refusal_of(caught) == "InvalidHello"


def test_a_frame_without_a_deadline_has_the_usual_one() -> None:
    document = {key: value for key, value in FRAME.items() if key != "deadline_ms"}
    assert read_frame(document, peer_id=ME) == Frame(
        deadline_ms=DEFAULT_DEADLINE_MS, command={"request": {}}
    )


DESCRIPTOR: dict[str, Any] = {
    "version": 1,
    "package_id": f"sha256:{DIGEST}",
    "plan_id": f"skippy-plan:v1:{DIGEST}",
    "layer_start": 10,
    "layer_end": 20,
    "resident_tensor_ids": ["a", "b"],
    "profiles": [
        {
            "profile_id": "cpu",
            "graph_identity": "g",
            "profile_identity": "p",
            "slice_identity": "s",
            "source_snapshot_identity": "n",
            "graph_configuration_id": "c",
            "backend_id": "b",
        }
    ],
    "sidecars": [],
}


def good_load() -> LoadStage:
    load = load_of(claim(coordinator=ME))
    return attrs.evolve(
        load,
        key=attrs.evolve(load.key, package_ref=f"local-gguf://sha256/{DIGEST}"),
        source_model_sha256=DIGEST,
        admission=json.dumps(DESCRIPTOR),
    )


def good_settings() -> StageRunSettings:
    return StageRunSettings(
        model_sha256=DIGEST,
        model_id="m",
        ctx_size=4096,
        lane_count=4,
        run_key="01" * 32,
        stages=(
            endpoint(0, 0, 10, node=ME),
            endpoint(1, 10, 20, node=OTHER),
        ),
    )


def endpoint(index: int, start: int, end: int, *, node: NodeId) -> StageEndpoint:
    return StageEndpoint(
        stage_id=f"stage-{index}",
        stage_index=index,
        node_id=node,
        layer_start=start,
        layer_end=end,
        host="127.0.0.1",
    )


def check(load: LoadStage, settings: StageRunSettings | None) -> None:
    check_request(load, settings, sender=ME)


def test_good_requests_pass() -> None:
    load, settings = good_load(), good_settings()
    check(load, settings)
    check_request(PrepareStage(load), attrs.evolve(settings, run_key=""), sender=ME)
    check_request(ClaimCoordinator(claim(coordinator=ME)), None, sender=ME)
    check_request(stop_of(load), None, sender=ME)
    hub = attrs.evolve(
        load,
        key=attrs.evolve(load.key, package_ref="hf://a/b"),
        source_model_sha256=None,
    )
    assert check_request(hub, settings, sender=ME) is None  # type: ignore[func-returns-value]


def test_a_node_claims_and_probes_for_itself_only() -> None:
    for kind in (ClaimCoordinator, ProbeClaim):
        with pytest.raises(RpcError, match="for itself only") as caught:
            check_request(kind(claim(coordinator=OTHER)), None, sender=ME)
        assert refusal_of(caught) == "CoordinatorMismatch"


@pytest.mark.parametrize(
    ("change", "text", "reason"),
    [
        (
            {"participant_set_hash": "", "admission": ""},
            "generation 8 stage load requires participant and topology hashes",
            "MissingLoadClaimHashes",
        ),
        ({"topology_hash": ""}, "requires participant", "MissingLoadClaimHashes"),
        (
            {"admission": "", "layer_start": 99},
            "generation 8 stage load/status requires an admission descriptor",
            "MissingStageAdmissionDescriptor",
        ),
        ({"admission": "{"}, "admission", "InvalidStageAdmissionDescriptor"),
        ({"layer_end": 21}, "is not the load's", "InvalidStageAdmissionDescriptor"),
        ({"stage_index": 0}, "another place", "InvalidTopologyStages"),
        ({"stage_index": 2**31}, "stage_index", "InvalidFrame"),
        ({"shutdown_generation": -1}, "shutdown_generation", "InvalidFrame"),
        (
            {"source_model_sha256": None},
            "source digest is missing",
            "MissingRequiredSourceDigest",
        ),
        ({"source_model_sha256": "ab" * 32}, "not the one", "InvalidSourceDigest"),
    ],
)
def test_the_first_broken_rule_of_a_load_wins(
    change: dict[str, Any], text: str, reason: str
) -> None:
    with pytest.raises(RpcError, match=text) as caught:
        check(attrs.evolve(good_load(), **change), good_settings())
    assert refusal_of(caught) == reason


def test_a_digest_in_the_reference_has_one_form() -> None:
    load = good_load()
    for digest in ("", "ab", DIGEST.upper(), DIGEST + "0"):
        key = attrs.evolve(load.key, package_ref=f"local-gguf://sha256/{digest}")
        with pytest.raises(RpcError) as caught:
            check(attrs.evolve(load, key=key), good_settings())
        assert refusal_of(caught) == "InvalidLocalSourceReference"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("version",), 2, "version 2"),
        (("package_id",), "sha256:x", "package_id"),
        (("resident_tensor_ids",), ["b", "a"], "strictly increasing"),
        (("profiles", 0, "backend_id"), "", "backend_id is empty"),
        (("sidecars",), [{"kind": "mmproj", "artifact_id": "x"}], "stage 0 only"),
        (("more",), 1, "unknown key"),
        (("version",), True, "expected a whole number"),
    ],
)
def test_a_descriptor_is_checked_before_anybody_acts_on_it(
    path: tuple[str | int, ...], value: object, words: str
) -> None:
    document: Any = copy.deepcopy(DESCRIPTOR)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(RpcError, match=words) as caught:
        check(
            attrs.evolve(good_load(), admission=json.dumps(document)), good_settings()
        )
    assert refusal_of(caught) == "InvalidStageAdmissionDescriptor"


TWO = good_settings().stages


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((), "0 stages"),
        (TWO * 200, "400 stages"),
        ((TWO[0], attrs.evolve(TWO[1], stage_index=2)), "entry 1 has index 2"),
        ((attrs.evolve(TWO[0], stage_id=""), TWO[1]), "no stage_id or no host"),
        ((attrs.evolve(TWO[0], host=""), TWO[1]), "no stage_id or no host"),
        (
            (attrs.evolve(TWO[0], stage_id="stage-1"), TWO[1]),
            "a stage_id is repeated",
        ),
        ((TWO[0], attrs.evolve(TWO[1], node_id=ME)), "a node_id is repeated"),
        ((attrs.evolve(TWO[0], layer_end=0), TWO[1]), "entry 0 has an empty range"),
        ((attrs.evolve(TWO[0], layer_end=9), TWO[1]), "begins at layer 10"),
        ((attrs.evolve(TWO[0], layer_end=11), TWO[1]), "ends at 11"),
        ((TWO[0], attrs.evolve(TWO[1], layer_end=21)), "another place or range"),
        ((TWO[0], attrs.evolve(TWO[1], stage_id="x")), "not in it exactly once"),
    ],
)
def test_a_topology_is_contiguous_and_holds_the_loaded_stage(
    stages: tuple[StageEndpoint, ...], words: str
) -> None:
    with pytest.raises(RpcError, match=words) as caught:
        check(good_load(), attrs.evolve(good_settings(), stages=stages))
    assert refusal_of(caught) == "InvalidTopologyStages"


def test_a_stage_of_no_node_is_refused() -> None:
    stages = (attrs.evolve(TWO[0], node_id=NodeId("ab")), TWO[1])
    with pytest.raises(RpcError, match="expected 32, got 1") as caught:
        check(good_load(), attrs.evolve(good_settings(), stages=stages))
    assert refusal_of(caught) == "InvalidEndpointId"


@pytest.mark.parametrize("run_key", ["", "01", "zz" * 32])
def test_a_load_has_the_key_of_its_run_and_the_refusal_does_not_show_it(
    run_key: str,
) -> None:
    with pytest.raises(RpcError, match="run_key") as caught:
        check(good_load(), attrs.evolve(good_settings(), run_key=run_key))
    assert not run_key or run_key not in str(caught.value)


def test_settings_go_with_loads_and_preparations_only() -> None:
    with pytest.raises(RpcError, match="needs the settings"):
        check(good_load(), None)
    with pytest.raises(RpcError, match="load and prepare only"):
        check_request(stop_of(good_load()), good_settings(), sender=ME)


def test_numbers_of_a_stop_are_small() -> None:
    load = good_load()
    cancel = CancelPrepareStage(
        key=load.key,
        stage=load.stage,
        coordinator_term=Term(1),
        shutdown_generation=2**63,
    )
    with pytest.raises(RpcError, match="shutdown_generation"):
        check_request(cancel, None, sender=ME)
