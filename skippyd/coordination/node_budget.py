"""How much memory this machine has for stages: detected, capped, with headroom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from skippyd.errors import SkippyError
from skippyd.units import KIB, ceil_div


if TYPE_CHECKING:
    from collections.abc import Iterator

HEADROOM_SHARE = 10
"""A tenth is kept free, rounded up (skippy-facts 3.5)."""

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


class BudgetError(SkippyError):
    """The kernel does not say how much memory there is."""


@attrs.frozen(kw_only=True)
class NodeBudget:
    """Memory for stages; the planner works with `usable_bytes`.

    Args:
        memory_bytes: What is available, under the limits of the control groups.
        max_memory_bytes: The operator's cap; None for none.
        headroom_bytes: Kept free whatever the plan says.
    """

    memory_bytes: int
    max_memory_bytes: int | None
    headroom_bytes: int

    @property
    def usable_bytes(self) -> int:
        """Detected memory under the cap and above the headroom, never negative."""
        capped = self.memory_bytes
        if self.max_memory_bytes is not None:
            capped = min(capped, self.max_memory_bytes)
        return max(0, capped - self.headroom_bytes)


def node_budget(
    *,
    max_memory_bytes: int | None = None,
    headroom_bytes: int | None = None,
    proc: Path = PROC,
    cgroup: Path = CGROUP,
) -> NodeBudget:
    """Look at this machine; a few small files are read.

    Args:
        max_memory_bytes: The operator's cap.
        headroom_bytes: What to keep free; None keeps a tenth of what is there.
        proc: The proc file system.
        cgroup: The control group file system.

    Raises:
        BudgetError: /proc/meminfo cannot be read.
    """
    available = _available_bytes(proc)
    for limit in _cgroup_bytes_left(proc, cgroup):
        available = min(available, max(0, limit))
    if headroom_bytes is None:
        headroom_bytes = ceil_div(available, HEADROOM_SHARE)
    return NodeBudget(
        memory_bytes=available,
        max_memory_bytes=max_memory_bytes,
        headroom_bytes=headroom_bytes,
    )


def _available_bytes(proc: Path) -> int:
    path = proc / "meminfo"
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise BudgetError(
            f"{path} cannot be read: {error.strerror}; mount /proc, or set [stages] "
            "max_memory"
        ) from error
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * KIB
    raise BudgetError(f"{path} has no line MemAvailable; this kernel is too old")


def _cgroup_bytes_left(proc: Path, root: Path) -> Iterator[int]:
    """What each group around this process still allows; both versions of them."""
    try:
        groups = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:
        hierarchy, controllers, path = group.split(":", 2)
        if hierarchy == "0":
            names, top = ("memory.max", "memory.current"), root
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            top = root / "memory"
        else:
            continue
        for folder in _upwards(top, path):
            left = _bytes_left(folder, *names)
            if left is not None:
                yield left


def _upwards(top: Path, path: str) -> Iterator[Path]:
    # In a container the path may be the host's: then only the top is there.
    folder = top / path.strip("/")
    while folder != top and top in folder.parents:
        yield folder
        folder = folder.parent
    yield top


def _bytes_left(folder: Path, limit_name: str, used_name: str) -> int | None:
    limit, used = _number(folder / limit_name), _number(folder / used_name)
    if limit is None or used is None:
        return None
    return limit - max(0, used - _reclaimable_bytes(folder))


def _reclaimable_bytes(folder: Path) -> int:
    """File pages that the kernel gives up first; they count as used all the same."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(" ", 1) for line in lines if " " in line)
    found = fields.get("total_inactive_file", fields.get("inactive_file", "0"))
    return int(found) if found.isdecimal() else 0


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
