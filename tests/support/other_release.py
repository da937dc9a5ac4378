"""A daemon of another release: the same program, but for what it says it can do."""

from __future__ import annotations

import os
import subprocess
import sys

import attrs

from support.daemons import Daemon


LAUNCH = """
import sys
import skippyd
from skippyd.coordination import ports
skippyd.__version__, ports.GENERATION = sys.argv[1], int(sys.argv[2])
ports.FEATURES = tuple(sys.argv[3].split(","))
from skippyd.cli.main import main
raise SystemExit(main(sys.argv[4:]))
"""
"""Sets what a release is known by before any other module reads it."""


@attrs.frozen(kw_only=True)
class Release:
    """What a node says about itself in its first word."""

    version: str
    generation: int
    features: tuple[str, ...]


@attrs.define(eq=False)
class ReleasedDaemon(Daemon):
    """A daemon that can be started as another release; None is this one."""

    release: Release | None = attrs.field(default=None, kw_only=True)

    def start(self) -> None:
        """Start it without waiting."""
        if self.release is None:
            super().start()
            return
        release = self.release
        named = (release.version, str(release.generation), ",".join(release.features))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", LAUNCH, *named),
                    *("run", "--config", str(self.config)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
            )
