"""What another process holds and uses, read from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import attrs


TCP_LISTEN = "0A"
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
KIB = 1024
IDLE_TRIO_WORKER = "Trio thread "
"""How one begins whose work is done; at work it bears the work's name."""

OWN_COLUMNS = 2
"""pid and the name in parentheses come before what is split on spaces."""


@attrs.frozen(kw_only=True)
class Holdings:
    """Counts of what one process holds at one moment."""

    descriptors: int
    sockets: int
    threads: int
    children: int
    resident_bytes: int

    @classmethod
    def of(cls, pid: int) -> Holdings:
        """Count what a process holds now."""
        targets = _descriptor_targets(pid)
        return cls(
            descriptors=len(targets),
            sockets=sum(target.startswith("socket:") for target in targets),
            threads=len(list(Path(f"/proc/{pid}/task").iterdir())),
            children=len(child_pids(pid)),
            resident_bytes=resident_bytes(pid),
        )


def child_pids(pid: int) -> set[int]:
    """The living children of a process."""
    children: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        children |= {int(child) for child in (task / "children").read_text().split()}
    return children


def working_threads(pid: int) -> int:
    """Threads of a process, but for those that trio keeps for ten seconds in case."""
    names = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        # One may end while we look.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text())
    return sum(not name.startswith(IDLE_TRIO_WORKER) for name in names)


def resident_bytes(pid: int) -> int:
    """Memory of a process that is present now, shared files included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * KIB
    raise ProcessLookupError(f"process {pid} has no memory")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process since its start."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = 14 - OWN_COLUMNS - 1, 15 - OWN_COLUMNS - 1
    return (int(stat[user]) + int(stat[system])) / TICKS_A_SECOND


def cpu_share(pid: int, over_s: float) -> float:
    """The share of one core that a process uses over a while."""
    before, start_s = cpu_seconds(pid), time.monotonic()
    time.sleep(over_s)
    return (cpu_seconds(pid) - before) / (time.monotonic() - start_s)


def listening_ports(pid: int) -> set[int]:
    """The TCP ports that a process listens on."""
    held = set(_descriptor_targets(pid))
    ports = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[3] == TCP_LISTEN and f"socket:[{columns[9]}]" in held:
            ports.add(int(columns[1].rpartition(":")[2], 16))
    return ports


def _descriptor_targets(pid: int) -> list[str]:
    targets = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            targets.append(str(entry.readlink()))
        except FileNotFoundError:
            continue  # closed while we looked
    return targets
