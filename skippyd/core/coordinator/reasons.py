"""Why a claim, load, stop or preparation is refused, and the text of each refusal."""

from __future__ import annotations

from enum import Enum

from skippyd.ids import Term


class RejectReason(Enum):
    """Why a claim is refused; the value is the name that travels (skippy-facts 3.1)."""

    MISSING_MODEL_ID = "MissingModelId"
    MISSING_PACKAGE_REF = "MissingPackageRef"
    MISSING_MANIFEST_SHA256 = "MissingManifestSha256"
    MISSING_TOPOLOGY_RUN = "MissingTopologyRun"
    MISSING_COORDINATOR_ID = "MissingCoordinatorId"
    MISSING_TERM = "MissingTerm"
    MISSING_HASHES = "MissingHashes"
    UNUSABLE_FIELD = "UnusableField"
    EXPIRED_LEASE = "ExpiredLease"
    TERM_TOO_FAR_AHEAD = "TermTooFarAhead"
    QUARANTINED = "Quarantined"
    STALE_TERM = "StaleTerm"
    CONFLICTING_SAME_TERM = "ConflictingSameTerm"
    RUN_STOPPED = "RunStopped"
    TOO_MANY_MODELS = "TooManyModels"


class LoadRefusalReason(Enum):
    """Why a load is refused (skippy-facts 3.2, and the rules I6, I7 and I12)."""

    UNFENCED_FROM_NETWORK = "UnfencedFromNetwork"
    FENCED_CLAIM_LIVE = "FencedClaimLive"
    MISSING_TERM = "MissingTerm"
    MISSING_COORDINATOR_ID = "MissingCoordinatorId"
    MISSING_CLAIM = "MissingClaim"
    TERM_MISMATCH = "TermMismatch"
    COORDINATOR_MISMATCH = "CoordinatorMismatch"
    TOPOLOGY_RUN_MISMATCH = "TopologyRunMismatch"
    HASH_MISMATCH = "HashMismatch"
    RUN_STOPPED = "RunStopped"
    LEASE_NOT_HELD = "LeaseNotHeld"
    EXPIRED_LEASE = "ExpiredLease"
    STALE_GENERATION = "StaleShutdownGeneration"
    OTHER_STAGE_LIVE = "OtherStageLive"
    SUPERSEDED = "Superseded"
    STOPPED = "Stopped"
    START_FAILED = "StartFailed"


class StopRefusalReason(Enum):
    """Why a stop or the cancelling of a preparation is refused."""

    UNFENCED_FROM_NETWORK = "UnfencedFromNetwork"
    UNUSABLE_FIELD = "UnusableField"
    STALE_TERM = "StaleTerm"
    STALE_GENERATION = "StaleShutdownGeneration"
    TERM_TOO_FAR_AHEAD = "TermTooFarAhead"
    TOO_MANY_STOPS = "TooManyStops"


class PrepareRefusalReason(Enum):
    """Why a preparation is refused."""

    UNUSABLE_FIELD = "UnusableField"
    UNFENCED_FROM_NETWORK = "UnfencedFromNetwork"
    STALE_TERM = "StaleTerm"
    CONFLICTING_SAME_TERM = "ConflictingSameTerm"
    STALE_GENERATION = "StaleShutdownGeneration"
    TOO_MANY_PREPARATIONS = "TooManyPreparations"


RefusalReason = (
    RejectReason | LoadRefusalReason | StopRefusalReason | PrepareRefusalReason
)

FENCING_IN_PROGRESS = "fencing in progress"
"""Answer to a claim that is stored while older work has not ended yet."""

SUPERSEDED_PREPARATION = "superseded by newer coordinator term"
"""Error text of a preparation ended by a newer claim (skippy-facts 2.5)."""

_STALE_TERM = "stale coordinator term {term} < {current}"
_STALE_GENERATION = "stale shutdown generation"
_TOO_FAR = (
    "term too far ahead: {term} is more than 366 days in the future; "
    "set the coordinator's clock"
)

_CLAIM_TEXTS: dict[RefusalReason, str] = {
    RejectReason.MISSING_MODEL_ID: "coordinator claim requires model_id",
    RejectReason.MISSING_PACKAGE_REF: "coordinator claim requires package_ref",
    RejectReason.MISSING_MANIFEST_SHA256: "coordinator claim requires manifest_sha256",
    RejectReason.MISSING_TOPOLOGY_RUN: (
        "coordinator claim requires topology_id and run_id"
    ),
    RejectReason.MISSING_COORDINATOR_ID: "coordinator claim requires coordinator_id",
    RejectReason.MISSING_TERM: "coordinator claim requires non-zero term",
    RejectReason.MISSING_HASHES: (
        "coordinator claim requires participant and topology hashes"
    ),
    RejectReason.UNUSABLE_FIELD: (
        "coordinator claim has a field over 512 bytes, of invalid Unicode, or a lease "
        "beyond 64 bits"
    ),
    RejectReason.EXPIRED_LEASE: "coordinator claim lease is expired",
    RejectReason.TERM_TOO_FAR_AHEAD: _TOO_FAR,
    RejectReason.QUARANTINED: (
        "this node's fence store was lost or is older than it should be: it accepts "
        "no claim until the longest lease has passed, or until the operator runs "
        "`skippyctl fence init --i-know`"
    ),
    RejectReason.STALE_TERM: _STALE_TERM,
    RejectReason.CONFLICTING_SAME_TERM: (
        "conflicting coordinator claim for existing term"
    ),
    RejectReason.RUN_STOPPED: (
        "the run of term {term} was stopped here and is over; claim a new run"
    ),
    RejectReason.TOO_MANY_MODELS: (
        "this node already remembers claims for as many models as it can hold"
    ),
}

_LOAD_TEXTS: dict[RefusalReason, str] = {
    LoadRefusalReason.UNFENCED_FROM_NETWORK: (
        "a load without term and coordinator is taken from the local admin socket only"
    ),
    LoadRefusalReason.FENCED_CLAIM_LIVE: (
        "coordinator term {current} holds this model here; stop its run first"
    ),
    LoadRefusalReason.MISSING_TERM: "stage load requires non-zero term",
    LoadRefusalReason.MISSING_COORDINATOR_ID: "stage load requires coordinator_id",
    LoadRefusalReason.MISSING_CLAIM: (
        "stage load requires an accepted coordinator claim for this model; claim first"
    ),
    LoadRefusalReason.TERM_MISMATCH: (
        "stage load term {term} differs from accepted term {current}"
    ),
    LoadRefusalReason.COORDINATOR_MISMATCH: (
        "stage load coordinator differs from the one accepted at term {current}"
    ),
    LoadRefusalReason.TOPOLOGY_RUN_MISMATCH: (
        "stage load topology or run differs from the one accepted at term {current}"
    ),
    LoadRefusalReason.HASH_MISMATCH: (
        "stage load participant or topology hash differs from the one accepted at "
        "term {current}"
    ),
    LoadRefusalReason.RUN_STOPPED: (
        "the run of term {term} was stopped here and never starts again; "
        "claim a new run"
    ),
    LoadRefusalReason.LEASE_NOT_HELD: (
        "no lease is held since this node restarted; claim term {current} again"
    ),
    LoadRefusalReason.EXPIRED_LEASE: (
        "coordinator claim lease of term {current} is expired; claim again"
    ),
    LoadRefusalReason.STALE_GENERATION: _STALE_GENERATION,
    LoadRefusalReason.OTHER_STAGE_LIVE: (
        "another stage of this model runs or starts on this node; stop it first"
    ),
    LoadRefusalReason.SUPERSEDED: "superseded by newer coordinator term {current}",
    LoadRefusalReason.STOPPED: "the stage was asked to stop",
    LoadRefusalReason.START_FAILED: "the stage ended before it was ready",
}

_STOP_TEXTS: dict[RefusalReason, str] = {
    StopRefusalReason.UNFENCED_FROM_NETWORK: (
        "a stop without term is taken from the local admin socket only"
    ),
    StopRefusalReason.UNUSABLE_FIELD: (
        "stop has an empty field, a field over 512 bytes or of invalid Unicode"
    ),
    StopRefusalReason.STALE_TERM: _STALE_TERM,
    StopRefusalReason.STALE_GENERATION: _STALE_GENERATION,
    StopRefusalReason.TERM_TOO_FAR_AHEAD: _TOO_FAR,
    StopRefusalReason.TOO_MANY_STOPS: (
        "this node already remembers as many stops of unknown newer runs as it can "
        "hold; claim a newer term"
    ),
}

_PREPARE_TEXTS: dict[RefusalReason, str] = {
    PrepareRefusalReason.UNUSABLE_FIELD: (
        "stage preparation has an empty field, a field over 512 bytes or of invalid "
        "Unicode"
    ),
    PrepareRefusalReason.UNFENCED_FROM_NETWORK: (
        "a preparation without term and coordinator is taken from the local admin "
        "socket only"
    ),
    PrepareRefusalReason.STALE_TERM: _STALE_TERM,
    PrepareRefusalReason.CONFLICTING_SAME_TERM: (
        "conflicting stage preparation for existing term"
    ),
    PrepareRefusalReason.STALE_GENERATION: _STALE_GENERATION,
    PrepareRefusalReason.TOO_MANY_PREPARATIONS: (
        "this node already prepares as many stages as it can hold; cancel one"
    ),
}

_TEXTS = {
    **_CLAIM_TEXTS,
    **_LOAD_TEXTS,
    **_STOP_TEXTS,
    **_PREPARE_TEXTS,
}


def refusal_text(reason: RefusalReason, term: Term, current_term: Term | None) -> str:
    """Spell a refusal out.

    Args:
        reason: What was found.
        term: The term that was attempted.
        current_term: The term this node has accepted for the model, if any.
    """
    return _TEXTS[reason].format(term=term, current=current_term)
