"""Every value of the control protocol comes back from JSON as it was, or is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.config.documents import parse_json
from skippyd.coordination.control_json import (
    REQUESTS,
    TERM_KEYS,
    command_of,
    inventory_from_json,
    inventory_to_json,
    reply_from_json,
    reply_to_json,
    report_from_json,
    report_to_json,
    request_from_json,
    request_to_json,
    route_from_json,
    route_to_json,
)
from skippyd.coordination.ports import (
    ModelEntry,
    NodeReport,
    Route,
    StageRunSettings,
)
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    ProbeAnswer,
    Reply,
    Request,
)
from skippyd.core.coordinator.reasons import RejectReason
from skippyd.core.coordinator.verdict import Accepted, Rejected
from skippyd.errors import ConfigError
from skippyd.ids import Term
from support.claims import claim
from support.control_strategies import drawn, settings_or_none


def travelled(document: object) -> object:
    """A document after its way over the wire."""
    text = json.dumps(document, allow_nan=False)
    return parse_json(text, source="wire")


def all_keys(document: object) -> list[tuple[str, object]]:
    match document:
        case dict():
            inner = [pair for value in document.values() for pair in all_keys(value)]
            return [*document.items(), *inner]
        case list():
            return [pair for value in document for pair in all_keys(value)]
        case _:
            return []


@pytest.mark.slow
@given(st.one_of([drawn(kind) for kind in REQUESTS.values()]), st.data())
def test_every_request_comes_back_as_it_was(
    request: Request, data: st.DataObject
) -> None:
    settings = data.draw(settings_or_none(StageRunSettings))
    document = travelled(request_to_json(request, settings))
    assert request_from_json(command_of(request), document) == (request, settings)


@pytest.mark.slow
@given(drawn(Reply))
def test_every_reply_comes_back_as_it_was(reply: Reply) -> None:
    assert reply_from_json(travelled(reply_to_json(reply))) == reply


@pytest.mark.slow
@given(drawn(NodeReport))
def test_every_report_comes_back_as_it_was(report: NodeReport) -> None:
    document = travelled(report_to_json(report))
    assert report_from_json(document) == report
    for key, value in all_keys(document):
        if key in TERM_KEYS:
            assert value is None or isinstance(value, str)


@pytest.mark.slow
@given(drawn(Route))
def test_every_route_comes_back_as_it_was(route: Route) -> None:
    assert route_from_json(travelled(route_to_json(route))) == route


@pytest.mark.slow
@given(st.lists(drawn(ModelEntry), max_size=3).map(tuple))
def test_every_inventory_comes_back_as_it_was(models: tuple[ModelEntry, ...]) -> None:
    assert inventory_from_json(travelled(inventory_to_json(models))) == models


def test_the_document_of_a_claim_reads_as_written() -> None:
    offered = claim(2**63 + 1, coordinator="a", run="r", lease=10_000)
    assert request_to_json(ClaimCoordinator(offered), None) == {
        "request": {
            "claim": {
                "epoch": {
                    "key": {
                        "model_id": "org/model",
                        "package_ref": "hf://org/package",
                        "manifest_sha256": "ab" * 32,
                    },
                    "topology_id": "topology-r",
                    "run_id": "r",
                    "coordinator_id": "a",
                    "participant_set_hash": "participants",
                    "topology_hash": "topology",
                },
                "term": "9223372036854775809",
                "lease_until_unix_ms": 10_000,
            }
        }
    }


def test_the_document_of_a_refusal_reads_as_written() -> None:
    offered = claim(10)
    refusal = Rejected(
        claim=offered, reason=RejectReason.STALE_TERM, current_term=Term(11)
    )
    document = reply_to_json(ClaimAnswer(verdict=refusal, instance_id="store"))
    verdict = document["verdict"]
    assert isinstance(verdict, dict)
    assert document["kind"] == "claim_answer"
    assert verdict["kind"] == "rejected"
    assert verdict["reason"] == "StaleTerm"
    assert verdict["current_term"] == "11"


def changed(document: object, *path: str | int, to: object) -> object:
    """A copy with one member replaced; `...` takes it out."""
    whole: Any = copy.deepcopy(document)
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    if to is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return whole


@pytest.mark.parametrize(
    ("path", "to", "words"),
    [
        (("request", "claim", "term"), 10, "claim.request.claim: term: expected a 64"),
        (("request", "claim", "term"), "010", "64-bit number as decimal text"),
        (("request", "claim", "term"), "-1", "64-bit number as decimal text"),
        (("request", "claim", "term"), "1e3", "64-bit number as decimal text"),
        (("request", "claim", "term"), "٣", "64-bit number as decimal text"),
        (("request", "claim", "term"), str(2**64), "64-bit number as decimal text"),
        (("request", "claim", "term"), "9" * 400, "64-bit number as decimal text"),
        (("request", "claim", "term"), None, "expected a whole number, found null"),
        (("request", "claim", "term"), ..., "required and missing"),
        (("request", "claim", "lease_until_unix_ms"), "7", "expected a whole number"),
        (("request", "claim", "epoch", "run_id"), 7, "claim.epoch.run_id: expected a"),
        (("request", "claim", "epoch", "more"), 7, "unknown key"),
        (("request", "claim"), [], "expected an object"),
        (("request",), None, "expected an object"),
        (("request",), ..., "expected an object, found null"),
        (("settings",), {}, "required and missing"),
        (("settings",), None, "expected an object"),
        (("seettings",), {}, "did you mean settings"),
    ],
)
def test_a_request_with_a_defect_is_refused_with_its_path(
    path: tuple[str, ...], to: object, words: str
) -> None:
    document = request_to_json(ClaimCoordinator(claim()), None)
    with pytest.raises(ConfigError, match=words):
        request_from_json("claim", changed(document, *path, to=to))


@pytest.mark.parametrize("document", [None, [], "x", 7, {}])
def test_what_is_no_document_is_refused(document: object) -> None:
    with pytest.raises(ConfigError, match="expected"):
        request_from_json("claim", document)
    with pytest.raises(ConfigError, match="expected"):
        reply_from_json(document)


@pytest.mark.parametrize(
    ("path", "to", "words"),
    [
        (("kind",), "gossip", "expected one of"),
        (("kind",), None, "kind: expected a text"),
        (("verdict", "kind"), "fencing_in_progress", "a probe fences nothing"),
        (("verdict", "kind"), "maybe", "expected one of accepted"),
        (("verdict",), ..., "expected an object"),
        (("verdict", "claim", "term"), 1, "64-bit number"),
        (("instance_id",), ..., "required and missing"),
        (("more",), 1, "unknown key"),
    ],
)
def test_a_reply_with_a_defect_is_refused_with_its_path(
    path: tuple[str, ...], to: object, words: str
) -> None:
    answer = ProbeAnswer(verdict=Accepted(claim()), fenced_runs=(), instance_id="s")
    document = reply_to_json(answer)
    with pytest.raises(ConfigError, match=words):
        reply_from_json(changed(document, *path, to=to))


def test_only_a_probe_tells_what_would_be_fenced() -> None:
    run = {
        "run_id": "r",
        "coordinator_id": None,
        "term": "1",
        "is_serving": True,
        "is_lease_held": True,
    }
    answer = ClaimAnswer(verdict=Accepted(claim()), instance_id="s")
    document = reply_to_json(answer) | {"fenced_runs": [run]}
    with pytest.raises(ConfigError, match="only a probe's answer"):
        reply_from_json(document)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["kind", "term", "verdict", "x"]), inner)
        ),
        max_leaves=8,
    )
)
def test_garbage_is_refused_and_nothing_else(document: object) -> None:
    for read in (reply_from_json, report_from_json, route_from_json):
        with pytest.raises(ConfigError):
            read(document)
