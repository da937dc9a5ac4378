"""A chain of stage processes started from the command line, for the fault table."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Self

import attrs

from skippyd.config.stage import stage_document
from skippyd.config.topology import topology_document
from skippyd.proving.chain import ChainPlan
from support.chat_call import Answer, Call, get
from support.random_models import RandomModel, write_random_model
from support.stage_cli import Holdings, StageCli, eventually, free_port
from support.watchdog import WatchdogBarkError


if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

RUN_KEY = bytes(range(32))
SPEAKING = RandomModel(with_tokenizer=True)
HOLDINGS_S = 5.0
BOUNDS = (0, 2, 4, 6)
LONG_PROMPT = "the rain in the plain " * 40
"""More than 400 tokens for the tiny tokenizer: several chunks of 32."""


@attrs.define(eq=False, kw_only=True)
class CliChain:
    """Stage processes on fixed ports, so that one can be started again in its place.

    Args:
        folder: Holds the documents and the logs.
        plan: What the stages run.
        ports: Where they listen.
        openai_port: Where stage 0 serves OpenAI.
        arguments: Further arguments of every stage.
        has_topology: Whether stages are told of the whole chain.
    """

    folder: Path
    plan: ChainPlan
    ports: list[int]
    openai_port: int
    arguments: tuple[str, ...] = ()
    has_topology: bool = True
    stages: dict[int, StageCli] = attrs.Factory(dict)

    @classmethod
    def prepare(
        cls,
        folder: Path,
        *,
        bounds: tuple[int, ...] = BOUNDS,
        arguments: tuple[str, ...] = (),
        has_topology: bool = True,
        lane_count: int = 2,
        ctx_size: int = 2048,
    ) -> Self:
        """Write a model and the documents; nothing is started."""
        plan = ChainPlan(
            model_path=write_random_model(folder / "model.gguf", SPEAKING),
            model_id="m",
            bounds=bounds,
            ctx_size=ctx_size,
            chunk=32,
            lane_count=lane_count,
        )
        chain = cls(
            folder=folder,
            plan=plan,
            ports=[free_port() for _ in bounds[1:]],
            openai_port=free_port(),
            arguments=arguments,
            has_topology=has_topology,
        )
        chain._write_documents()
        return chain

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for stage in self.stages.values():
                stage.show_log(with_stacks=isinstance(error, WatchdogBarkError))
        for _index, stage in sorted(self.stages.items()):
            stage.end()

    def start(self, *indices: int) -> Self:
        """Start these stages, or all, and wait until they are ready."""
        chosen = indices or tuple(range(self.plan.stage_count))
        for index in chosen:
            self.spawn(index)
        for index in chosen:
            self.stages[index].wait_ready()
        return self

    def serving(self) -> Self:
        """Start all stages and wait for the green light and one answer.

        That answer brings every connection into being, so that holdings can be
        compared afterwards. Stage 0 comes last: it then finds the final stage and dials
        it, where otherwise the final stage may have had to dial stage 0.
        """
        self.start(*range(1, self.plan.stage_count)).start(0).wait_green()
        assert self.ask("ab", max_tokens=2).status == 200
        return self

    def send(self, prompt: str, *, max_tokens: int, stream: bool = False) -> Call:
        """Send a completion request without waiting for its answer."""
        body: dict[str, object] = {"prompt": prompt, "max_tokens": max_tokens}
        return Call.send(self.openai_port, {**body, "stream": stream})

    def ask(self, prompt: str, *, max_tokens: int) -> Answer:
        """Send a completion request and wait."""
        with self.send(prompt, max_tokens=max_tokens) as call:
            return call.answer()

    def health(self) -> Answer:
        """The light of stage 0."""
        return get(self.openai_port, "/health")

    def wait_green(self, *, within_s: float = 10.0) -> None:
        """Wait until the chain serves."""
        eventually(lambda: self.health().status == 200, "green", within_s=within_s)

    def wait_red(self) -> None:
        """Wait until the chain is known not to serve."""
        eventually(lambda: self.health().status == 503, "red")

    def holdings(self, *indices: int) -> dict[int, Holdings]:
        """What these stages hold at rest: two looks in a row agree."""
        looks = [self._look(indices)]

        def agree() -> bool:
            looks.append(self._look(indices))
            return looks[-1] == looks[-2]

        eventually(agree, "stages are at rest")
        return looks[-1]

    def _look(self, indices: Iterable[int]) -> dict[int, Holdings]:
        return {index: self.stages[index].holdings() for index in indices}

    def expect_holdings(self, before: dict[int, Holdings]) -> None:
        """Check that the same stages hold the same again, soon."""
        give_up = time.monotonic() + HOLDINGS_S
        while (after := self._look(before)) != before:
            if time.monotonic() > give_up:
                changes = [f"{after[n]}, not {before[n]}" for n in before]
                raise AssertionError(f"other holdings: {changes}")

    def wait_lanes_idle(self) -> None:
        """Wait until no request holds a lane and all lanes are there again."""

        def is_idle() -> bool:
            status = self.stages[0].status()
            return (status["busy_lanes"], status["idle_lanes"]) == (
                0,
                self.plan.lane_count,
            )

        eventually(is_idle, "all lanes are idle")

    def wait_status(self, index: int, field: str, at_least: int) -> None:
        """Wait until a counter of a stage has come to a value."""

        def has_come() -> bool:
            value = self.stages[index].status()[field]
            assert isinstance(value, int)
            return value >= at_least

        eventually(has_come, f"{field} of stage {index} is {at_least}")

    def config_path(self, index: int) -> Path:
        """Where a stage's document lies."""
        return self.folder / f"stage-{index}.json"

    def change_config(self, index: int, **fields: object) -> None:
        """Rewrite some fields of a stage's document."""
        path = self.config_path(index)
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    def spawn(self, index: int) -> StageCli:
        """Start one stage and do not wait for it."""
        arguments = ["--config", str(self.config_path(index)), *self.arguments]
        if self.has_topology:
            arguments += ["--topology", str(self.folder / "topology.json")]
        if index == 0:
            arguments += ["--openai-bind-addr", f"127.0.0.1:{self.openai_port}"]
        log = self.folder / f"stage-{index}.log"
        self.stages[index] = StageCli.start(f"stage-{index}", arguments, log)
        return self.stages[index]

    def _write_documents(self) -> None:
        configs = self.plan.configs(self.ports, RUN_KEY)
        for index, config in enumerate(configs):
            self.config_path(index).write_text(json.dumps(stage_document(config)))
        topology = topology_document(self.plan.topology(self.ports))
        (self.folder / "topology.json").write_text(json.dumps(topology))
