"""The stage-admission descriptor: what exactly one stage is to be made of.

Planner and stage each derive one from the package they opened. It is canonical (strict
ordering, lower-case hex), so two are the same stage exactly when they are equal field
by field. Strings order by code point, which is the order of their UTF-8 bytes.
"""

from __future__ import annotations

import string
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

import attrs


if TYPE_CHECKING:
    from collections.abc import Sequence


DESCRIPTOR_VERSION: Final = 1
PACKAGE_ID_PREFIX: Final = "sha256:"
PLAN_ID_PREFIX: Final = "skippy-plan:v1:"

_SHA256_HEX_DIGITS: Final = 64
_LOWER_HEX: Final = frozenset(string.digits + "abcdef")
_SHOWN_MAX: Final = 3

Ordered = TypeVar("Ordered", str, tuple[str, bool, str, str])


class SidecarKind(Enum):
    """What a sidecar artifact is; UNSPECIFIED is what a careless sender leaves."""

    UNSPECIFIED = "unspecified"
    MMPROJ = "mmproj"


@attrs.frozen(kw_only=True)
class Sidecar:
    """An artifact beside the model's tensors; only stage 0 has any."""

    kind: SidecarKind
    artifact_id: str
    name: str | None = None


@attrs.frozen(kw_only=True)
class AdmissionProfile:
    """One way to run the stage, by the identities that pin its computation."""

    profile_id: str
    graph_identity: str
    profile_identity: str
    slice_identity: str
    source_snapshot_identity: str
    graph_configuration_id: str
    backend_id: str


PROFILE_FIELDS: Final = tuple(field.name for field in attrs.fields(AdmissionProfile))


@attrs.frozen(kw_only=True)
class AdmissionDescriptor:
    """The canonical description of one stage.

    Attributes:
        package_id: `sha256:` and 64 lower-case hex digits.
        plan_id: `skippy-plan:v1:` and 64 lower-case hex digits.
        resident_tensor_ids: The exact tensors of the stage, strictly increasing.
        profiles: At least one, strictly increasing by profile id.
        sidecars: Strictly increasing by kind, name (none first) and artifact id.
    """

    package_id: str
    plan_id: str
    layer_start: int
    layer_end: int
    resident_tensor_ids: tuple[str, ...]
    profiles: tuple[AdmissionProfile, ...]
    sidecars: tuple[Sidecar, ...] = ()
    version: int = DESCRIPTOR_VERSION


def descriptor_defect(
    descriptor: AdmissionDescriptor,
    *,
    stage_index: int,
    layer_start: int,
    layer_end: int,
) -> str | None:
    """Say what is wrong with a descriptor for this load, or None.

    The first broken rule wins, in the order: version, package, plan, range, tensors,
    order of profiles, their identities, sidecars, and last the range of the load.
    """
    checks = (
        _identity_defect,
        _tensor_defect,
        _profile_defect,
        _sidecar_defect,
    )
    for check in checks:
        if defect := check(descriptor):
            return defect
    if descriptor.sidecars and stage_index != 0:
        return f"sidecars belong to stage 0 only, not to stage {stage_index}"
    if (descriptor.layer_start, descriptor.layer_end) != (layer_start, layer_end):
        return (
            f"descriptor range {descriptor.layer_start}..{descriptor.layer_end} is not"
            f" the load's range {layer_start}..{layer_end}"
        )
    return None


def _identity_defect(descriptor: AdmissionDescriptor) -> str | None:
    if descriptor.version != DESCRIPTOR_VERSION:
        return (
            f"descriptor version {descriptor.version} is not {DESCRIPTOR_VERSION};"
            " run the same release on every node"
        )
    if not _is_identity(descriptor.package_id, PACKAGE_ID_PREFIX):
        return (
            f"package_id {descriptor.package_id!r} is not {PACKAGE_ID_PREFIX!r} and"
            f" {_SHA256_HEX_DIGITS} lower-case hex digits"
        )
    if not _is_identity(descriptor.plan_id, PLAN_ID_PREFIX):
        return (
            f"plan_id {descriptor.plan_id!r} is not {PLAN_ID_PREFIX!r} and"
            f" {_SHA256_HEX_DIGITS} lower-case hex digits"
        )
    if not 0 <= descriptor.layer_start < descriptor.layer_end:
        return f"empty layer range {descriptor.layer_start}..{descriptor.layer_end}"
    return None


def _tensor_defect(descriptor: AdmissionDescriptor) -> str | None:
    ids = descriptor.resident_tensor_ids
    if not ids:
        return "resident_tensor_ids is empty: a stage without tensors"
    if "" in ids:
        return f"resident_tensor_ids[{ids.index('')}] is empty"
    if not _is_strictly_sorted(ids):
        return "resident_tensor_ids is not strictly increasing"
    return None


def _profile_defect(descriptor: AdmissionDescriptor) -> str | None:
    profiles = descriptor.profiles
    if not profiles:
        return "profiles is empty: a stage that nothing can run"
    if not _is_strictly_sorted([profile.profile_id for profile in profiles]):
        return "profiles is not strictly increasing by profile_id"
    for index, profile in enumerate(profiles):
        for name in PROFILE_FIELDS:
            if not getattr(profile, name):
                return f"profiles[{index}].{name} is empty"
    return None


def _sidecar_defect(descriptor: AdmissionDescriptor) -> str | None:
    for index, sidecar in enumerate(descriptor.sidecars):
        if sidecar.kind is SidecarKind.UNSPECIFIED:
            return f"sidecars[{index}].kind is unspecified"
        if not sidecar.artifact_id:
            return f"sidecars[{index}].artifact_id is empty"
    if not _is_strictly_sorted(_sidecar_keys(descriptor)):
        return "sidecars is not strictly increasing by kind, name, artifact_id"
    return None


class MismatchKind(Enum):
    """The first way in which a realised stage differs from the planned one."""

    PLANNED_TENSOR_IDS_NOT_STRICTLY_SORTED = "planned tensor ids not strictly sorted"
    REALIZED_TENSOR_IDS_NOT_STRICTLY_SORTED = "realized tensor ids not strictly sorted"
    PLANNED_SIDECARS_NOT_STRICTLY_SORTED = "planned sidecars not strictly sorted"
    REALIZED_SIDECARS_NOT_STRICTLY_SORTED = "realized sidecars not strictly sorted"
    PLANNED_PROFILES_NOT_SORTED = "planned profiles not sorted"
    REALIZED_PROFILES_NOT_SORTED = "realized profiles not sorted"
    VERSION_MISMATCH = "version mismatch"
    PACKAGE_ID_MISMATCH = "package id mismatch"
    PLAN_ID_MISMATCH = "plan id mismatch"
    LAYER_RANGE_MISMATCH = "layer range mismatch"
    TENSOR_CLOSURE_MISMATCH = "tensor closure mismatch"
    SIDECAR_MISMATCH = "sidecar mismatch"
    PROFILE_SET_MISMATCH = "profile set mismatch"
    PROFILE_IDENTITY_MISMATCH = "profile identity mismatch"


@attrs.frozen
class AdmissionMismatch:
    """Where two descriptors part; `missing` and `unexpected` name tensors."""

    kind: MismatchKind
    detail: str
    missing: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    unexpected: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    def __str__(self) -> str:
        """Kind and detail as one clause."""
        return f"{self.kind.value}: {self.detail}"


def compare_descriptors(
    planned: AdmissionDescriptor, realized: AdmissionDescriptor
) -> AdmissionMismatch | None:
    """Compare field by field; None exactly when both are equal and canonical."""
    checks = (
        _order_mismatch,
        _plain_mismatch,
        _tensor_mismatch,
        _sidecar_mismatch,
        _profile_mismatch,
    )
    for check in checks:
        if mismatch := check(planned, realized):
            return mismatch
    return None


def _order_mismatch(
    planned: AdmissionDescriptor, realized: AdmissionDescriptor
) -> AdmissionMismatch | None:
    kind = MismatchKind
    rules = (
        (kind.PLANNED_TENSOR_IDS_NOT_STRICTLY_SORTED, planned.resident_tensor_ids),
        (kind.REALIZED_TENSOR_IDS_NOT_STRICTLY_SORTED, realized.resident_tensor_ids),
    )
    for rule, ids in rules:
        if not _is_strictly_sorted(ids):
            return AdmissionMismatch(rule, "the list is not canonical")
    for rule, side in (
        (kind.PLANNED_SIDECARS_NOT_STRICTLY_SORTED, planned),
        (kind.REALIZED_SIDECARS_NOT_STRICTLY_SORTED, realized),
    ):
        if not _is_strictly_sorted(_sidecar_keys(side)):
            return AdmissionMismatch(rule, "the list is not canonical")
    for rule, side in (
        (kind.PLANNED_PROFILES_NOT_SORTED, planned),
        (kind.REALIZED_PROFILES_NOT_SORTED, realized),
    ):
        if not _is_strictly_sorted([profile.profile_id for profile in side.profiles]):
            return AdmissionMismatch(rule, "the list is not canonical")
    return None


def _plain_mismatch(
    planned: AdmissionDescriptor, realized: AdmissionDescriptor
) -> AdmissionMismatch | None:
    kind = MismatchKind
    rules = (
        (kind.VERSION_MISMATCH, planned.version, realized.version),
        (kind.PACKAGE_ID_MISMATCH, planned.package_id, realized.package_id),
        (kind.PLAN_ID_MISMATCH, planned.plan_id, realized.plan_id),
        (
            kind.LAYER_RANGE_MISMATCH,
            f"{planned.layer_start}..{planned.layer_end}",
            f"{realized.layer_start}..{realized.layer_end}",
        ),
    )
    for rule, wanted, got in rules:
        if wanted != got:
            return AdmissionMismatch(rule, f"planned {wanted}, realized {got}")
    return None


def _tensor_mismatch(
    planned: AdmissionDescriptor, realized: AdmissionDescriptor
) -> AdmissionMismatch | None:
    wanted, got = set(planned.resident_tensor_ids), set(realized.resident_tensor_ids)
    if wanted == got:
        return None
    missing, unexpected = tuple(sorted(wanted - got)), tuple(sorted(got - wanted))
    return AdmissionMismatch(
        MismatchKind.TENSOR_CLOSURE_MISMATCH,
        f"{_shown(missing)} missing, {_shown(unexpected)} unexpected",
        missing=missing,
        unexpected=unexpected,
    )


def _sidecar_mismatch(
    planned: AdmissionDescriptor, realized: AdmissionDescriptor
) -> AdmissionMismatch | None:
    if planned.sidecars == realized.sidecars:
        return None
    return AdmissionMismatch(
        MismatchKind.SIDECAR_MISMATCH,
        f"planned {planned.sidecars}, realized {realized.sidecars}",
    )


def _profile_mismatch(
    planned: AdmissionDescriptor, realized: AdmissionDescriptor
) -> AdmissionMismatch | None:
    wanted = [profile.profile_id for profile in planned.profiles]
    got = [profile.profile_id for profile in realized.profiles]
    if wanted != got:
        return AdmissionMismatch(
            MismatchKind.PROFILE_SET_MISMATCH, f"planned {wanted}, realized {got}"
        )
    for ours, theirs in zip(planned.profiles, realized.profiles, strict=True):
        for name in PROFILE_FIELDS:
            left, right = getattr(ours, name), getattr(theirs, name)
            if left != right:
                return AdmissionMismatch(
                    MismatchKind.PROFILE_IDENTITY_MISMATCH,
                    f"profile {ours.profile_id}, {name}: planned {left},"
                    f" realized {right}",
                )
    return None


def _is_identity(value: str, prefix: str) -> bool:
    digits = value.removeprefix(prefix)
    return (
        value.startswith(prefix)
        and len(digits) == _SHA256_HEX_DIGITS
        and _LOWER_HEX.issuperset(digits)
    )


def _sidecar_keys(
    descriptor: AdmissionDescriptor,
) -> list[tuple[str, bool, str, str]]:
    return [
        (side.kind.value, side.name is not None, side.name or "", side.artifact_id)
        for side in descriptor.sidecars
    ]


def _is_strictly_sorted(values: Sequence[Ordered]) -> bool:
    return all(left < right for left, right in pairwise(values))


def _shown(names: tuple[str, ...]) -> str:
    listed = ", ".join(names[:_SHOWN_MAX]) + (
        ", ..." if len(names) > _SHOWN_MAX else ""
    )
    return f"{len(names)} ({listed})" if names else "0"
