"""Values of the control protocol drawn from their own types, every one a legal one."""

from __future__ import annotations

from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import attrs
import hypothesis.strategies as st

from skippyd.coordination.control_json import TERM_KEYS


if TYPE_CHECKING:
    from skippyd.coordination.ports import StageRunSettings

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
TERMS = st.integers(0, 2**64 - 1)


def drawn(type_: Any, name: str = "") -> st.SearchStrategy[Any]:  # noqa: ANN401
    """A strategy for a type: attrs classes by their fields, terms up to 64 bits.

    Args:
        type_: The type.
        name: Of the field it stands at.
    """
    type_ = getattr(type_, "__supertype__", type_)
    if attrs.has(type_):
        hints = get_type_hints(type_)
        fields = [field.name for field in attrs.fields(type_)]
        return st.builds(
            type_, **{field: drawn(hints[field], field) for field in fields}
        )
    if get_origin(type_) in {UnionType, Union}:
        return st.one_of([drawn(member, name) for member in get_args(type_)])
    if get_origin(type_) is tuple:
        items = st.lists(drawn(get_args(type_)[0]), max_size=2)
        return items.map(tuple)
    if issubclass(type_, Enum):
        return st.sampled_from(type_)
    return _plain(type_, name)


def _plain(type_: type, name: str) -> st.SearchStrategy[Any]:
    if type_ is int:
        return TERMS if name in TERM_KEYS else NUMBERS
    plain: dict[type, st.SearchStrategy[Any]] = {
        str: TEXT,
        bool: st.booleans(),
        NoneType: st.none(),
    }
    return plain[type_]


def settings_or_none(type_: type[StageRunSettings]) -> st.SearchStrategy[Any]:
    """Settings, or none of them."""
    return st.none() | drawn(type_)
