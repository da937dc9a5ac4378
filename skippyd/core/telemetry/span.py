"""One thing that happened, when, for how long, with what figures."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from collections.abc import Mapping

    from skippyd.core.telemetry.names import Attribute, SpanName

AttributeValue = str | int | float | bool
"""What an attribute may hold."""

NS_PER_MS = 1_000_000
NS_PER_US = 1000
_EMPTY: Mapping[Attribute, AttributeValue] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class Span:
    """A span; an event is one that lasts no longer than the clock can tell.

    Args:
        start_unix_ns: When it began.
        end_unix_ns: When it ended; at least a nanosecond later.
        attributes: Figures; never what was said, never a token.
    """

    name: SpanName
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[Attribute, AttributeValue] = _EMPTY

    @property
    def elapsed_ns(self) -> int:
        """How long it took."""
        return self.end_unix_ns - self.start_unix_ns

    def number(self, attribute: Attribute) -> float | None:
        """The figure of an attribute, None when there is none."""
        value = self.attributes.get(attribute)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)


def span(
    name: SpanName,
    start_unix_ns: int,
    end_unix_ns: int,
    attributes: Mapping[Attribute, AttributeValue] = _EMPTY,
) -> Span:
    """Build a span; one that would end before it began lasts a nanosecond."""
    return Span(
        name=name,
        start_unix_ns=start_unix_ns,
        end_unix_ns=max(end_unix_ns, start_unix_ns + 1),
        attributes=attributes,
    )
