"""Memory for stages: what the kernel says, under limits, a cap and headroom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.coordination.node_budget import BudgetError, NodeBudget, node_budget
from skippyd.units import GIB, KIB, MIB


if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with 16 GiB available and no control groups."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    meminfo = f"MemTotal: {64 * GIB // KIB} kB\nMemAvailable: {16 * GIB // KIB} kB\n"
    (tmp_path / "proc" / "meminfo").write_text(meminfo)
    return tmp_path


def budget(machine: Path, **wishes: int) -> NodeBudget:
    return node_budget(proc=machine / "proc", cgroup=machine / "cgroup", **wishes)


def put_in(machine: Path, line: str, **groups: dict[str, str]) -> None:
    (machine / "proc" / "self" / "cgroup").write_text(line + "\n")
    for folder, files in groups.items():
        path = machine / "cgroup" / folder.replace("__", "/")
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (path / name).write_text(text + "\n")


def test_a_tenth_of_what_is_available_is_kept_free_rounded_up(machine: Path) -> None:
    found = budget(machine)

    assert found.memory_bytes == 16 * GIB
    assert found.headroom_bytes == -(-16 * GIB // 10)
    assert found.usable_bytes == 16 * GIB - found.headroom_bytes


def test_a_cap_and_another_headroom_are_obeyed(machine: Path) -> None:
    found = budget(machine, max_memory_bytes=4 * GIB, headroom_bytes=GIB)

    assert found.memory_bytes == 16 * GIB
    assert found.usable_bytes == 3 * GIB
    assert (
        budget(machine, max_memory_bytes=GIB, headroom_bytes=2 * GIB).usable_bytes == 0
    )


def test_a_control_group_leaves_its_limit_less_what_is_used(machine: Path) -> None:
    files = {
        "memory.max": str(4 * GIB),
        "memory.current": str(3 * GIB),
        "memory.stat": f"anon 5\ninactive_file {GIB}\n",
    }
    put_in(machine, "0::/system.slice/skippyd.service", system__slice={})
    put_in(machine, "0::/a/b", a__b=files)

    assert budget(machine).memory_bytes == 2 * GIB


def test_the_tightest_of_the_groups_around_it_counts(machine: Path) -> None:
    outer = {"memory.max": str(GIB), "memory.current": "0"}
    inner = {"memory.max": "max", "memory.current": "0"}
    put_in(machine, "0::/a/b", a=outer, a__b=inner)

    assert budget(machine).memory_bytes == GIB


def test_a_container_that_sees_only_its_own_top_is_limited_too(machine: Path) -> None:
    put_in(machine, "0::/docker/abc")
    (machine / "cgroup" / "memory.max").write_text(str(512 * MIB))
    (machine / "cgroup" / "memory.current").write_text("0")

    assert budget(machine).memory_bytes == 512 * MIB


def test_the_first_version_of_control_groups_is_read_too(machine: Path) -> None:
    files = {
        "memory.limit_in_bytes": str(2 * GIB),
        "memory.usage_in_bytes": str(3 * GIB),
    }
    put_in(machine, "9:cpu,memory:/a", memory__a=files)

    assert budget(machine).memory_bytes == 0


def test_a_kernel_that_says_nothing_is_an_error_with_a_remedy(machine: Path) -> None:
    (machine / "proc" / "meminfo").write_text("MemTotal: 1 kB\n")
    with pytest.raises(BudgetError, match="no line MemAvailable"):
        budget(machine)
    (machine / "proc" / "meminfo").unlink()
    with pytest.raises(BudgetError, match=r"\[stages\] max_memory"):
        budget(machine)


def test_this_machine_has_memory() -> None:
    assert node_budget().usable_bytes > 0
