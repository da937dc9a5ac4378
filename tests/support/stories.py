"""Readable stories about a cluster: comments, commands, `----`, expected output.

A story file is a row of blocks between blank lines; a block is comment lines (#),
then commands, then `----`, then what happened. Commands:

    cluster a b c              nodes with these names
    plan a = a b c             what the planner of a answers, without excluded nodes
    start a | withdraw a       the wish of a's operator
    advance 30s                time passes (ms, s, m, h)
    down b | up b | cut a b | heal | restart b
    sees a b gone|back         a's peer view changes
    dies b                     b's stage process ends by itself; its coordinator hears
    slow b | brisk b           b prepares, starts and ends stages only when told
    prepared b | ready b | reaped b   what was waited for
    claim b from a term 10 [run R] [lease MS] [topology H] [participants H]
    probe ...                  as claim
    load b from a term 10 [run R] [as C]
    stop b from a term 10 [run R]
    local load b | local stop b | network load b
    status                     what each node has accepted and runs, and the route
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator import campaign_effects as outward
from skippyd.core.coordinator import control_effects as inward
from skippyd.core.coordinator.messages import (
    ClaimCoordinator,
    Origin,
    ProbeClaim,
    Request,
)
from skippyd.ids import CoordinatorId, NodeId
from support.claims import KEY, claim, load_of, local_load, ready_status, stop_of
from support.cluster import Cluster, plan_over


if TYPE_CHECKING:
    from pathlib import Path


UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
DEFAULT_LEASE_MS = 4 * UNITS_MS["h"]


@attrs.define
class Story:
    """Runs the blocks of one story file and gives back the file as it came out."""

    cluster: Cluster = attrs.field(factory=lambda: Cluster(()))

    def replay(self, text: str) -> str:
        """Run every block; return the text with the real output in place."""
        blocks = [block for block in text.split("\n\n") if block.strip()]
        return "\n\n".join(self._replay_block(block) for block in blocks) + "\n"

    def _replay_block(self, block: str) -> str:
        head = block.strip("\n").split("\n----")[0]
        lines = head.split("\n")
        commands = [line for line in lines if line and not line.startswith("#")]
        if not commands:
            return head
        self.cluster.trace.clear()
        for command in commands:
            self._run(shlex.split(command))
        output = "\n".join(self.cluster.trace) or "(nothing)"
        return f"{head}\n----\n{output}"

    def _run(self, words: list[str]) -> None:
        match words:
            case ["cluster", *names]:
                self.cluster = Cluster(tuple(names))
            case ["plan", name, "=", *names]:
                self.cluster.nodes[name].plan = plan_over(*names)
            case ["start", name]:
                self.cluster.tell(name, outward.Start())
            case ["withdraw", name]:
                self.cluster.tell(name, outward.Withdraw())
            case ["status"]:
                self._status()
            case ["claim" | "probe" | "load" | "stop" | "local" | "network", *_]:
                self._ask(words)
            case _:
                self._disturb(words)

    def _disturb(self, words: list[str]) -> None:
        cluster = self.cluster
        match words:
            case ["advance", duration]:
                cluster.advance(parse_duration_ms(duration))
            case ["down" | "up" as verb, name]:
                cluster.nodes[name].is_down = verb == "down"
            case ["cut", one, other]:
                cluster.cut(one, other)
            case ["heal"]:
                cluster.heal()
            case ["restart", name]:
                cluster.restart(name)
            case ["sees", name, peer, "gone" | "back" as change]:
                event = outward.PeerChanged(NodeId(peer), change == "back")
                cluster.tell(name, event)
            case [
                "slow" | "brisk" | "prepared" | "dies" | "ready" | "reaped" as verb,
                name,
            ]:
                self._move_stage(verb, name)
            case _:
                raise ValueError(f"no such story command: {shlex.join(words)}")

    def _move_stage(self, verb: str, name: str) -> None:
        if verb in {"slow", "brisk"}:
            self.cluster.nodes[name].is_slow = verb == "slow"
            return
        if verb == "prepared":
            self.cluster.finish_preparation(name)
            return
        (stage,) = self.cluster.nodes[name].control.snapshot()
        load = stage.load
        if verb == "ready":
            ready = inward.StageBecameReady(load, ready_status(load))
            self.cluster.happen(name, ready)
            return
        self.cluster.happen(name, inward.StageEnded(load, "the process ended"))
        if verb == "dies":
            assert load.coordinator_id is not None
            lost = outward.StageLost(load.stage.run_id, NodeId(name), "it ended")
            self.cluster.tell(load.coordinator_id, lost)

    def _ask(self, words: list[str]) -> None:
        match words:
            case ["local" | "network" as origin, "load" | "stop" as verb, name]:
                request = local_load() if verb == "load" else stop_of(local_load())
                source = Origin.ADMIN if origin == "local" else Origin.NETWORK
                self.cluster.ask(name, name, request, source)
            case [verb, name, "from", sender, *pairs]:
                options = dict(zip(pairs[::2], pairs[1::2], strict=True))
                self.cluster.ask(
                    sender, name, self._request(verb, sender, options), Origin.NETWORK
                )
            case _:
                raise ValueError(f"no such story request: {shlex.join(words)}")

    def _request(self, verb: str, sender: str, options: dict[str, str]) -> Request:
        claimed = claim(
            int(options["term"]),
            coordinator=sender,
            run=options.get("run", ""),
            lease=self._lease(options),
            topology=options.get("topology", "topology"),
            participants=options.get("participants", "participants"),
        )
        load = load_of(claimed)
        if "as" in options:
            load = attrs.evolve(load, coordinator_id=CoordinatorId(options["as"]))
        requests: dict[str, Request] = {
            "probe": ProbeClaim(claimed),
            "claim": ClaimCoordinator(claimed),
            "load": load,
            "stop": stop_of(load),
        }
        return requests[verb]

    def _lease(self, options: dict[str, str]) -> int:
        if "lease" in options:
            return int(options["lease"])
        return self.cluster.now.unix_ms + DEFAULT_LEASE_MS

    def _status(self) -> None:
        cluster = self.cluster
        for node in cluster.nodes.values():
            claimed = node.control.fence.claim_of(KEY)
            term = "nothing accepted" if claimed is None else f"term {claimed.term}"
            stages = [
                f"{stage.load.stage.stage_id} of {stage.load.stage.run_id} "
                f"{stage.state.value}"
                for stage in node.control.snapshot()
            ]
            line = f"{node.name}: {term}, {', '.join(stages) or 'no stage'}"
            cluster.trace.append(line)
        cluster.trace.append(f"route: {', '.join(cluster.routes) or 'none'}")


def parse_duration_ms(text: str) -> int:
    """Read `30s`, `4h`, `250ms`."""
    number = text.rstrip("hms")
    return int(number) * UNITS_MS[text[len(number) :]]


def check_story(path: Path, *, rewrite: bool) -> tuple[str, str]:
    """Replay a story file; return the expected and the real text, rewriting on demand."""
    expected = path.read_text()
    real = Story().replay(expected)
    if rewrite and real != expected:
        path.write_text(real)
        expected = real
    return expected, real
