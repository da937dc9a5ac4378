"""What a process holds: descriptors, threads and children, compared before and after."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from pathlib import Path

import attrs


# Trio keeps finished worker threads for ten seconds; at rest they bear this name.
_IDLE_TRIO_WORKER = re.compile(r"Trio thread \d+")


@attrs.frozen
class Census:
    """Names of everything this process holds at one moment."""

    descriptors: dict[int, str]
    threads: frozenset[str]
    children: frozenset[str]

    @classmethod
    def take(cls) -> Census:
        """Look at this process."""
        gc.collect()
        return cls(_descriptors(), _threads(), _children())

    def left_over(self, *, within_s: float) -> list[str]:
        """What is held now and was not then; waits a while for it to go."""
        give_up = time.monotonic() + within_s
        while True:
            left = self._compared_with(Census.take())
            if not left or time.monotonic() >= give_up:
                return left
            threading.Event().wait(0.02)

    def _compared_with(self, now: Census) -> list[str]:
        descriptors = [
            f"descriptor {number} ({target})"
            for number, target in sorted(now.descriptors.items())
            if self.descriptors.get(number) != target
        ]
        threads = [f"thread {name}" for name in sorted(now.threads - self.threads)]
        children = [f"child {name}" for name in sorted(now.children - self.children)]
        return descriptors + threads + children


def _descriptors() -> dict[int, str]:
    held: dict[int, str] = {}
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            held[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return held


def _threads() -> frozenset[str]:
    return frozenset(
        f"{thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        if not _IDLE_TRIO_WORKER.fullmatch(thread.name)
    )


def _children() -> frozenset[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update((task / "children").read_text().split())
        except FileNotFoundError:
            continue  # a thread that ended meanwhile
    return frozenset(f"process {number}" for number in found)
