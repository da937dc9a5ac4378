"""Three small nodes on loopback, and coordinators that a test plays at them by hand.

The nodes are daemons as shipped. Each model is one artifact, and a fence remembers each
artifact apart: scenarios that use models of their own do not meet.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from skippyd.runtime.build import build_facts
from support.daemon_groups import joined, until_all_are_well
from support.daemons import Daemon, until
from support.process_holdings import child_pids
from support.random_models import RandomModel, write_random_model
from support.raw_control import connect_here
from support.raw_coordinator import RawCoordinator
from support.stage_nodes import Plan


if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping, Sequence

NODES = ("atlas", "borea", "ceres")
TIMERS = "[timers]\nstatus_every_ms = 500\ndrain_ms = 2000\n"
LAYERS = 6
PUBLISH_SECONDS = 60.0
MEMORY_KIB = {"atlas": 1824, "borea": 1792, "ceres": 1760}
"""Two nodes can hold one of the small models, one alone cannot; the planner puts the
nodes with more memory first, so each has its place in a chain that `atlas` begins."""

PROMPT = "Where are the layers?"
TOKENS = 8


@attrs.define(eq=False)
class ScenarioNodes:
    """Three nodes that have joined each other.

    Args:
        daemons: In the order of `NODES`.
        models: Folder of the model files of all three.
        ids: Node ids by name.
    """

    daemons: Sequence[Daemon]
    models: Path
    ids: Mapping[str, str]

    def until_all_are_well(self) -> None:
        """Wait until each node sees all three."""
        until_all_are_well(self.daemons)

    @contextlib.contextmanager
    def played(
        self,
        coordinator: str,
        at: Daemon,
        model: str,
        *,
        connect: Callable[[int], socket.socket] = connect_here,
    ) -> Iterator[RawCoordinator]:
        """Speak to a node as another one does, with that one's key.

        The model is cut in two: stage 1 is for the node that is spoken to.
        """
        daemon = next(each for each in self.daemons if each.name == coordinator)
        plan = Plan(
            path=self.models / f"{model}.gguf",
            model_id=model,
            build=build_facts(),
            node_ids=(self.ids[coordinator], self.ids[at.name]),
        )
        state = daemon.folder / "state"
        node_id = self.ids[coordinator]
        opened = RawCoordinator.open(
            at.control_port, state, node_id, plan, connect=connect
        )
        with opened.control:
            yield opened


@contextlib.contextmanager
def scenario_nodes(daemons: Sequence[Daemon], models: Path) -> Iterator[ScenarioNodes]:
    """Start daemons, let them join each other, and end them whatever happens."""
    with joined(daemons):
        ids = {
            each.name: str(each.ask("status")["daemon"]["node_id"]) for each in daemons
        }
        yield ScenarioNodes(daemons, models, ids)


def memory_lines(name: str) -> str:
    """Lines of `[stages]` that give a node its share of memory."""
    return f'max_memory = "{MEMORY_KIB[name]} KiB"\nheadroom = 0\n'


def write_models(folder: Path, names: tuple[str, ...]) -> None:
    """Write small models that answer, each of other weights than the others."""
    folder.mkdir()
    for seed, name in enumerate(names, start=1):
        spec = RandomModel(layers=LAYERS, with_tokenizer=True, seed=seed)
        write_random_model(folder / f"{name}.gguf", spec)


def published_run(daemon: Daemon, model: str) -> dict[str, Any] | None:
    """The run of a model that a node follows, None while there is none."""
    run: dict[str, Any] | None = daemon.ask("status")["run"]
    if run is None or run["route"] is None or run["model_id"] != model:
        return None
    return run


def until_published(
    daemon: Daemon,
    model: str,
    *,
    above_term: int = 0,
    within_s: float = PUBLISH_SECONDS,
) -> dict[str, Any]:
    """Wait until a node follows a run of a model at a newer term; return that run."""
    found: list[dict[str, Any]] = []

    def is_published() -> bool:
        run = published_run(daemon, model)
        if run is None or int(run["term"]) <= above_term:
            return False
        found.append(run)
        return True

    until(is_published, f"{daemon.name} follows {model}", within_s=within_s)
    return found[-1]


def claim_of(daemon: Daemon, model: str) -> dict[str, Any]:
    """The claim for a model that a node has accepted, its lease left out.

    A lease may be renewed at any time.
    """
    rows = [row for row in daemon.ask("claims")["items"] if row["model_id"] == model]
    assert len(rows) == 1, rows
    row: dict[str, Any] = rows[0]
    return row | {"lease_until_unix_ms": None}


def stage_of(daemon: Daemon, model: str) -> dict[str, Any] | None:
    """A node's own stage of a model, None where it has none."""
    document = daemon.ask("status")
    run, own_id = document["run"], document["daemon"]["node_id"]
    if run is None or run["model_id"] != model:
        return None
    return next((row for row in document["stages"] if row["node_id"] == own_id), None)


def stage_count(daemon: Daemon) -> int:
    """How many stage processes a daemon has."""
    return len(stage_pids(daemon))


def stage_pids(daemon: Daemon) -> list[int]:
    """The stage processes of a daemon."""
    assert daemon.process is not None
    children = child_pids(daemon.process.pid)
    return [pid for pid in children if "serve-binary" in _command(pid)]


def _command(pid: int) -> str:
    # One may end while we look.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def verdict(answer: Mapping[str, Any]) -> str:
    """What a claim or a probe was told: its kind, or the name of the refusal."""
    said = answer["result"]["verdict"]
    return str(said.get("reason") or said["kind"])


def outcome(answer: Mapping[str, Any]) -> str:
    """What came of a load or a stop: its kind, or the name of the refusal."""
    result = answer["result"]
    return str(result["refusal"]["reason"] if "refusal" in result else result["kind"])
