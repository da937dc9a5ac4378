"""Admission descriptors: the order of the rules, and exact comparison."""

from __future__ import annotations

import attrs
import pytest

from skippyd.core.wire.admission import (
    PROFILE_FIELDS,
    AdmissionDescriptor,
    AdmissionProfile,
    MismatchKind,
    Sidecar,
    SidecarKind,
    compare_descriptors,
    descriptor_defect,
)


HEX = "0123456789abcdef" * 4
MMPROJ = Sidecar(kind=SidecarKind.MMPROJ, artifact_id="a")


def profile(profile_id: str = "cpu") -> AdmissionProfile:
    values = {name: f"{name} of {profile_id}" for name in PROFILE_FIELDS}
    return AdmissionProfile(**{**values, "profile_id": profile_id})


GOOD = AdmissionDescriptor(
    package_id="sha256:" + HEX,
    plan_id="skippy-plan:v1:" + HEX,
    layer_start=0,
    layer_end=10,
    resident_tensor_ids=("blk.0.a", "blk.1.a", "token_embd"),
    profiles=(profile("cpu"), profile("gpu")),
    sidecars=(MMPROJ,),
)


def changed(**changes: object) -> AdmissionDescriptor:
    return attrs.evolve(GOOD, **changes)  # type: ignore[arg-type]


def defect(descriptor: AdmissionDescriptor, stage_index: int = 0) -> str | None:
    return descriptor_defect(
        descriptor, stage_index=stage_index, layer_start=0, layer_end=10
    )


def test_a_canonical_descriptor_of_the_load_is_accepted() -> None:
    assert defect(GOOD) is None
    assert defect(changed(sidecars=()), stage_index=3) is None


RULES: list[tuple[dict[str, object], str]] = [
    ({"version": 2}, "descriptor version 2 is not 1"),
    ({"package_id": HEX}, "package_id"),
    ({"package_id": "sha256:" + HEX.upper()}, "package_id"),
    ({"package_id": "sha256:" + HEX[1:]}, "package_id"),
    ({"plan_id": "sha256:" + HEX}, "plan_id"),
    ({"plan_id": "skippy-plan:v1:"}, "plan_id"),
    ({"layer_start": 10}, "empty layer range 10..10"),
    ({"layer_start": -1}, "empty layer range -1..10"),
    ({"resident_tensor_ids": ()}, "resident_tensor_ids is empty"),
    ({"resident_tensor_ids": ("", "a")}, "resident_tensor_ids[0] is empty"),
    ({"resident_tensor_ids": ("b", "a")}, "resident_tensor_ids is not strictly"),
    ({"resident_tensor_ids": ("a", "a")}, "resident_tensor_ids is not strictly"),
    ({"profiles": ()}, "profiles is empty"),
    ({"profiles": (profile("b"), profile("a"))}, "profiles is not strictly"),
    ({"profiles": (profile(""),)}, "profiles[0].profile_id is empty"),
    (
        {"profiles": (attrs.evolve(profile(), backend_id=""),)},
        "profiles[0].backend_id is empty",
    ),
    (
        {"sidecars": (attrs.evolve(MMPROJ, kind=SidecarKind.UNSPECIFIED),)},
        "sidecars[0].kind is unspecified",
    ),
    (
        {"sidecars": (attrs.evolve(MMPROJ, artifact_id=""),)},
        "sidecars[0].artifact_id is empty",
    ),
    ({"sidecars": (MMPROJ, MMPROJ)}, "sidecars is not strictly increasing"),
    (
        {"sidecars": (attrs.evolve(MMPROJ, name=""), MMPROJ)},
        "sidecars is not strictly increasing",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), RULES)
def test_a_broken_rule_is_named(changes: dict[str, object], reason: str) -> None:
    found = defect(changed(**changes))
    assert found is not None
    assert found.startswith(reason)


def test_the_first_broken_rule_wins() -> None:
    """Break the rules one by one from the last: each earlier one takes over."""
    broken: dict[str, object] = {}
    for changes, reason in reversed(RULES):
        broken.update(changes)
        found = defect(changed(**broken))
        assert found is not None
        assert found.startswith(reason)


def test_an_absent_sidecar_name_sorts_before_any_name() -> None:
    named = attrs.evolve(MMPROJ, name="")
    assert defect(changed(sidecars=(MMPROJ, named))) is None


def test_strings_order_by_their_utf8_bytes() -> None:
    """UTF-16 would put the last one before the middle one."""
    ids = ("z", "\uffee", "\U0001f600")
    assert sorted(ids, key=str.encode) == list(ids)
    assert defect(changed(resident_tensor_ids=ids)) is None


def test_only_stage_0_has_sidecars() -> None:
    found = defect(GOOD, stage_index=1)
    assert found == "sidecars belong to stage 0 only, not to stage 1"


@pytest.mark.parametrize(("start", "end"), [(1, 10), (0, 9)])
def test_the_range_must_be_that_of_the_load(start: int, end: int) -> None:
    found = defect(changed(layer_start=start, layer_end=end))
    assert found == f"descriptor range {start}..{end} is not the load's range 0..10"


K = MismatchKind
DIFFERENCES: list[tuple[dict[str, object], MismatchKind]] = [
    ({"version": 2}, K.VERSION_MISMATCH),
    ({"package_id": "sha256:" + HEX[::-1]}, K.PACKAGE_ID_MISMATCH),
    ({"plan_id": "skippy-plan:v1:" + HEX[::-1]}, K.PLAN_ID_MISMATCH),
    ({"layer_start": 1}, K.LAYER_RANGE_MISMATCH),
    ({"layer_end": 11}, K.LAYER_RANGE_MISMATCH),
    ({"resident_tensor_ids": ("blk.0.a",)}, K.TENSOR_CLOSURE_MISMATCH),
    ({"sidecars": ()}, K.SIDECAR_MISMATCH),
    ({"profiles": (profile("cpu"),)}, K.PROFILE_SET_MISMATCH),
    ({"profiles": (profile("cpu"), profile("tpu"))}, K.PROFILE_SET_MISMATCH),
]


def test_equal_descriptors_do_not_differ() -> None:
    assert compare_descriptors(GOOD, changed()) is None


@pytest.mark.parametrize(("changes", "kind"), DIFFERENCES)
def test_every_single_difference_is_found(
    changes: dict[str, object], kind: MismatchKind
) -> None:
    mismatch = compare_descriptors(GOOD, changed(**changes))
    assert mismatch is not None
    assert mismatch.kind is kind
    assert str(mismatch).startswith(f"{kind.value}: ")


@pytest.mark.parametrize(
    "name", [name for name in PROFILE_FIELDS if name != "profile_id"]
)
def test_every_identity_of_a_profile_is_compared(name: str) -> None:
    other = attrs.evolve(profile("gpu"), **{name: "x"})
    mismatch = compare_descriptors(GOOD, changed(profiles=(profile("cpu"), other)))
    assert mismatch is not None
    assert mismatch.kind is K.PROFILE_IDENTITY_MISMATCH
    assert mismatch.detail == (
        f"profile gpu, {name}: planned {name} of gpu, realized x"
    )


def test_missing_and_unexpected_tensors_are_listed() -> None:
    planned = changed(resident_tensor_ids=tuple("abcdef"))
    mismatch = compare_descriptors(planned, changed(resident_tensor_ids=("a", "z")))
    assert mismatch is not None
    assert mismatch.missing == tuple("bcdef")
    assert mismatch.unexpected == ("z",)
    assert mismatch.detail == "5 (b, c, d, ...) missing, 1 (z) unexpected"
    mismatch = compare_descriptors(planned, changed(resident_tensor_ids=tuple("abc")))
    assert mismatch is not None
    assert mismatch.detail == "3 (d, e, f) missing, 0 unexpected"


@pytest.mark.parametrize(
    ("changes", "planned_kind", "realized_kind"),
    [
        (
            {"resident_tensor_ids": ("b", "a")},
            K.PLANNED_TENSOR_IDS_NOT_STRICTLY_SORTED,
            K.REALIZED_TENSOR_IDS_NOT_STRICTLY_SORTED,
        ),
        (
            {"sidecars": (MMPROJ, MMPROJ)},
            K.PLANNED_SIDECARS_NOT_STRICTLY_SORTED,
            K.REALIZED_SIDECARS_NOT_STRICTLY_SORTED,
        ),
        (
            {"profiles": (profile("b"), profile("a"))},
            K.PLANNED_PROFILES_NOT_SORTED,
            K.REALIZED_PROFILES_NOT_SORTED,
        ),
    ],
)
def test_a_list_out_of_order_is_blamed_on_its_side(
    changes: dict[str, object], planned_kind: MismatchKind, realized_kind: MismatchKind
) -> None:
    broken = changed(**changes)
    for planned, realized, kind in (
        (broken, GOOD, planned_kind),
        (GOOD, broken, realized_kind),
        (broken, broken, planned_kind),
    ):
        mismatch = compare_descriptors(planned, realized)
        assert mismatch is not None
        assert mismatch.kind is kind
