"""Requests, replies and reports of the control protocol as JSON, strictly, both ways.

Terms are decimal strings in every document, for common tools round 64-bit numbers
(contract, "Everywhere").  A value of a closed union carries its kind beside its fields.
What is read is refused with the path of each defect; nothing is coerced or skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import attrs

from skippyd.config.complaints import (
    Complaint,
    InvalidConfigError,
    show,
    unknown_key,
)
from skippyd.config.convert import structure, unstructure
from skippyd.coordination.ports import (
    ModelEntry,
    NodeReport,
    Route,
    StageRunSettings,
)
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    LoadStage,
    PreparationStatus,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    Reply,
    Request,
    StageReady,
    StageStopped,
    StopFailed,
    StopStage,
)
from skippyd.core.coordinator.verdict import (
    Accepted,
    ClaimVerdict,
    FencedRun,
    FencingInProgress,
    Rejected,
    Superseded,
)
from skippyd.units import U64_MAX


if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
Document = dict[str, object]

TERM_KEYS = frozenset({"term", "coordinator_term", "current_term", "supersedes_term"})
"""Members that hold 64-bit numbers, wherever they stand."""

_LONGEST_TERM_DIGITS = len(str(U64_MAX))

REQUESTS: Mapping[str, type[Request]] = {
    "probe": ProbeClaim,
    "claim": ClaimCoordinator,
    "prepare": PrepareStage,
    "cancel": CancelPrepareStage,
    "load": LoadStage,
    "stop": StopStage,
}
"""Commands whose requests the rules of a node answer."""

_PLAIN_REPLIES: Mapping[str, type[Reply]] = {
    "stage_ready": StageReady,
    "load_failed": LoadFailed,
    "stage_stopped": StageStopped,
    "stop_failed": StopFailed,
    "preparation_status": PreparationStatus,
    "prepare_failed": PrepareFailed,
}
_VERDICTS: Mapping[str, type[ClaimVerdict]] = {
    "accepted": Accepted,
    "superseded": Superseded,
    "fencing_in_progress": FencingInProgress,
    "rejected": Rejected,
}
_PROBE, _CLAIM = "probe_answer", "claim_answer"
_REQUEST_KEYS = ("request", "settings")


@attrs.frozen(kw_only=True)
class _AnswerRest:
    """What a probe's or a claim's answer holds beside its verdict."""

    instance_id: str
    fenced_runs: tuple[FencedRun, ...] = ()


@attrs.frozen(kw_only=True)
class _Inventory:
    models: tuple[ModelEntry, ...]


def command_of(request: Request) -> str:
    """Return the command that carries a request."""
    return next(name for name, kind in REQUESTS.items() if isinstance(request, kind))


def request_to_json(request: Request, settings: StageRunSettings | None) -> Document:
    """Write a request, without the command that says what it is."""
    document: Document = {"request": _written(request)}
    if settings is not None:
        document["settings"] = _written(settings)
    return document


def request_from_json(
    command: str, document: object
) -> tuple[Request, StageRunSettings | None]:
    """Read the request of a command out of `REQUESTS`.

    Raises:
        InvalidConfigError: With all defects and their paths.
    """
    outer = _object(_terms_read(document, command), command)
    if unknown := outer.keys() - set(_REQUEST_KEYS):
        raise InvalidConfigError([unknown_key(min(unknown), _REQUEST_KEYS)], command)
    request = structure(
        outer.get("request"), REQUESTS[command], source=f"{command}.request"
    )
    if "settings" not in outer:
        return request, None
    settings = structure(
        outer["settings"], StageRunSettings, source=f"{command}.settings"
    )
    return request, settings


def reply_to_json(reply: Reply) -> Document:
    """Write a reply with its kind."""
    match reply:
        case ProbeAnswer():
            return {"kind": _PROBE, **_answer(reply)}
        case ClaimAnswer():
            return {"kind": _CLAIM, **_answer(reply)}
        case _:
            return {"kind": _kind(reply, _PLAIN_REPLIES), **_written(reply)}


def reply_from_json(document: object) -> Reply:
    """Read a reply.

    Raises:
        InvalidConfigError: With all defects and their paths.
    """
    kind, rest = _split_kind(_terms_read(document, "reply"), "reply")
    if kind in {_PROBE, _CLAIM}:
        return _read_answer(kind, rest)
    return _read_kind(kind, rest, _PLAIN_REPLIES, "reply")


def report_to_json(report: NodeReport) -> Document:
    """Write what a node says about itself."""
    return _written(report)


def report_from_json(document: object) -> NodeReport:
    """Read what a node says about itself.

    Raises:
        InvalidConfigError: With all defects and their paths.
    """
    return structure(_terms_read(document, "report"), NodeReport, source="report")


def route_to_json(route: Route) -> Document:
    """Write where a model is served."""
    return _written(route)


def route_from_json(document: object) -> Route:
    """Read where a model is served.

    Raises:
        InvalidConfigError: With all defects and their paths.
    """
    return structure(_terms_read(document, "route"), Route, source="route")


def inventory_to_json(models: tuple[ModelEntry, ...]) -> Document:
    """Write the model files a node has."""
    return _written(_Inventory(models=models))


def inventory_from_json(document: object) -> tuple[ModelEntry, ...]:
    """Read the model files a node has.

    Raises:
        InvalidConfigError: With all defects and their paths.
    """
    return structure(document, _Inventory, source="inventory").models


def _answer(answer: ProbeAnswer | ClaimAnswer) -> Document:
    verdict = answer.verdict
    document = _written(answer)
    document["verdict"] = {"kind": _kind(verdict, _VERDICTS), **_written(verdict)}
    return document


def _read_answer(kind: str, rest: Document) -> Reply:
    verdict_document = rest.pop("verdict", None)
    where = "reply.verdict"
    verdict_kind, fields = _split_kind(verdict_document, where)
    verdict = _read_kind(verdict_kind, fields, _VERDICTS, where)
    others = structure(rest, _AnswerRest, source="reply")
    if kind == _CLAIM:
        if others.fenced_runs:
            raise _defect("reply", "fenced_runs", "only a probe's answer has them")
        return ClaimAnswer(verdict=verdict, instance_id=others.instance_id)
    if isinstance(verdict, FencingInProgress):
        raise _defect(where, "kind", "a probe fences nothing")
    return ProbeAnswer(
        verdict=verdict,
        fenced_runs=others.fenced_runs,
        instance_id=others.instance_id,
    )


def _kind(value: object, kinds: Mapping[str, type]) -> str:
    return next(name for name, type_ in kinds.items() if isinstance(value, type_))


def _split_kind(document: object, where: str) -> tuple[str, Document]:
    rest = _object(document, where)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str):
        raise _defect(where, "kind", f"expected a text, found {show(kind)}")
    return kind, rest


def _object(document: object, where: str) -> Document:
    if not isinstance(document, dict):
        raise _defect(where, "", f"expected an object, found {show(document)}")
    return dict(document)


def _read_kind(
    kind: str, fields: Document, kinds: Mapping[str, type[T]], where: str
) -> T:
    type_ = kinds.get(kind)
    if type_ is None:
        raise _defect(
            where, "kind", f"expected one of {', '.join(kinds)}, found {show(kind)}"
        )
    return structure(fields, type_, source=where)


def _written(value: object) -> Document:
    written = _terms_written(unstructure(value))
    assert isinstance(written, dict)
    return written


def _terms_written(value: object) -> object:
    match value:
        case dict():
            return {
                key: str(inner)
                if key in TERM_KEYS and isinstance(inner, int)
                else _terms_written(inner)
                for key, inner in value.items()
            }
        case list() | tuple():
            return [_terms_written(inner) for inner in value]
        case _:
            return value


def _terms_read(value: object, where: str) -> object:
    match value:
        case dict():
            return {
                key: _term(inner, where, key)
                if key in TERM_KEYS and inner is not None
                else _terms_read(inner, f"{where}.{key}")
                for key, inner in value.items()
            }
        case list():
            return [
                _terms_read(inner, f"{where}[{i}]") for i, inner in enumerate(value)
            ]
        case _:
            return value


def _term(value: object, where: str, key: str) -> int:
    if (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) <= _LONGEST_TERM_DIGITS
        and str(int(value)) == value
        and int(value) <= U64_MAX
    ):
        return int(value)
    raise _defect(
        where, key, f"expected a 64-bit number as decimal text, found {show(value)}"
    )


def _defect(where: str, path: str, text: str) -> InvalidConfigError:
    return InvalidConfigError([Complaint(path, text)], where)
