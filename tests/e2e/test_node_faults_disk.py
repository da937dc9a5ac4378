"""A disk that fails under the fence of a real daemon: no answer, a reason, no amnesia.

A disk that is really full is in `test_node_faults_start.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from support.daemons import Daemon
from support.machine_faults import MachineFaults, build_library, reason_against
from support.process_holdings import child_pids
from support.random_models import RandomModel, write_random_model
from support.raw_coordinator import RawCoordinator
from support.scenario_nodes import verdict
from support.stage_nodes import Plan, stored_term


if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = reason_against()

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.watchdog(120),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

FENCE_STORE, TRY_AGAIN = 71, 75
TAKEN = {"accepted", "superseded"}
STORE, WITNESS, FRESH_WITNESS = "fence.sqlite3", "fence.witness", "fence.new"


@attrs.define(eq=False)
class FailingNode:
    """A daemon on a machine whose disk the test breaks, and a coordinator it trusts.

    Args:
        newest_term: The highest term that was claimed so far.
    """

    daemon: Daemon
    machine: MachineFaults
    coordinator_state: Path
    coordinator_id: str
    plan: Plan
    newest_term: int = 1

    @property
    def state(self) -> Path:
        """Its state directory."""
        return self.daemon.folder / "state"

    @contextlib.contextmanager
    def coordinator(self) -> Iterator[RawCoordinator]:
        """Connect as the coordinator."""
        opened = RawCoordinator.open(
            self.daemon.control_port,
            self.coordinator_state,
            self.coordinator_id,
            self.plan,
        )
        with opened.control:
            yield opened

    def next_term(self) -> int:
        """A term that nobody has claimed."""
        self.newest_term += 1
        return self.newest_term

    def run(self) -> None:
        """Let it run on a disk that is well, from now on if it does not."""
        self.machine.repair_disk()
        process = self.daemon.process
        if process is None or process.poll() is not None:
            self.daemon.start()
        self.daemon.until_ready()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingNode]:
    """A node that knows a coordinator, whose daemon is down by now."""
    folder = tmp_path_factory.mktemp("disk")
    (folder / "models").mkdir()
    spec = RandomModel(with_tokenizer=True)
    plan = Plan(path=write_random_model(folder / "models" / "small.gguf", spec))
    atlas, borea = (
        Daemon(name, folder / name, folder / "models") for name in ("atlas", "borea")
    )
    with MachineFaults.opened(build_library(folder), folder / "page") as machine:
        borea.environment |= machine.environment
        try:
            for daemon in (atlas, borea):
                daemon.start()
            for daemon in (atlas, borea):
                daemon.until_ready()
            atlas.join(borea)
            atlas_id = str(atlas.ask("status")["daemon"]["node_id"])
            assert atlas.stop() == 0
            made = FailingNode(borea, machine, atlas.folder / "state", atlas_id, plan)
            yield made
            made.run()
            assert borea.stop() == 0, borea.log
        finally:
            for daemon in (atlas, borea):
                daemon.close()


@pytest.fixture
def failing(node: FailingNode) -> FailingNode:
    """The node, running on a disk that is well."""
    node.run()
    return node


@pytest.mark.parametrize("file", [STORE, WITNESS])
def test_a_claim_that_the_disk_does_not_take_is_not_answered_and_ends_the_daemon(
    failing: FailingNode, file: str
) -> None:
    accepted = failing.next_term()
    with failing.coordinator() as first:
        assert "Rejected" not in str(first.claim(accepted)["result"])
        assert stored_term(failing.state) == accepted
        failing.machine.fail_syncs(errno.EIO, failing.state / file)
        with pytest.raises(OSError, match=r"ended|reset|closed|EOF|violation"):
            first.claim(failing.next_term())
    assert failing.daemon.wait() == FENCE_STORE, failing.daemon.log
    last_words = failing.daemon.log.splitlines()[-1]
    assert f"{failing.state}/{STORE} cannot be written" in last_words
    assert "check the disk" in last_words

    failing.run()
    assert stored_term(failing.state) >= accepted, "the accepted term has not fallen"
    shown = failing.daemon.ask("fence", "show")
    assert not shown["is_quarantined"], "it is no amnesia"
    with failing.coordinator() as again:
        assert verdict(again.claim(accepted - 1)) == "StaleTerm"
        assert verdict(again.claim(failing.newest_term)) in TAKEN
    assert stored_term(failing.state) == failing.newest_term


def test_a_daemon_whose_fence_cannot_be_made_durable_does_not_start(
    failing: FailingNode,
) -> None:
    before = stored_term(failing.state)
    assert failing.daemon.stop() == 0
    failing.machine.fail_syncs(errno.EIO, failing.state / FRESH_WITNESS)
    failing.daemon.start()
    assert failing.daemon.wait() == FENCE_STORE, failing.daemon.log
    last_words = failing.daemon.log.splitlines()[-1]
    assert f"{failing.state}/{STORE} cannot be written" in last_words
    assert not failing.daemon.socket.exists(), "nobody was told that it serves"
    failing.machine.fail_writes(errno.ENOSPC, failing.state / "lock")
    failing.daemon.start()
    assert failing.daemon.wait() == TRY_AGAIN, failing.daemon.log
    assert f"{failing.state}/lock cannot be written" in failing.daemon.log
    assert stored_term(failing.state) == before


def test_a_first_start_that_the_disk_cut_short_is_no_amnesia(
    failing: FailingNode,
) -> None:
    ceres = Daemon("ceres", failing.daemon.folder.parent / "ceres", failing.plan.path)
    ceres.environment |= failing.machine.environment
    try:
        failing.machine.fail_syncs(errno.EIO, ceres.folder / "state" / ".identity")
        ceres.start()
        assert ceres.wait() == TRY_AGAIN, ceres.log
        assert "identity.key cannot be written" in ceres.log.splitlines()[-1]
        failing.machine.repair_disk()
        ceres.start()
        ceres.until_ready()
        assert not ceres.ask("fence", "show")["is_quarantined"], "it votes at once"
    finally:
        ceres.close()


def test_a_coordinator_that_cannot_remember_its_deployment_claims_nothing(
    failing: FailingNode,
) -> None:
    before = failing.daemon.ask("claims")["items"]
    failing.machine.fail_syncs(errno.EIO, failing.state / "coordinator.json")
    refused = failing.daemon.ctl("deploy", "small", "--nodes", "borea")
    assert refused.returncode == TRY_AGAIN, refused.stdout + refused.stderr
    assert f"{failing.state}/coordinator.json cannot be written" in refused.stderr
    assert os.strerror(errno.EIO) in refused.stderr
    assert failing.daemon.ask("claims")["items"] == before
    failing.machine.repair_disk()
    again = failing.daemon.ctl("deploy", "small", "--nodes", "borea", "--lanes", "1")
    assert again.returncode == 0, again.stdout + again.stderr
    assert failing.daemon.answer("small", "ab", 2)
    stages = _stage_pids(failing.daemon)

    # What was stopped must be remembered too: a stop that cannot be ends the daemon.
    failing.machine.fail_syncs(errno.EIO, failing.state / STORE)
    cut_short = failing.daemon.ctl("withdraw", "small")
    assert cut_short.returncode != 0, cut_short.stdout
    assert failing.daemon.wait() == FENCE_STORE, failing.daemon.log
    assert not any(Path(f"/proc/{pid}").exists() for pid in stages), "all are reaped"


def _stage_pids(daemon: Daemon) -> set[int]:
    assert daemon.process is not None
    pids = child_pids(daemon.process.pid)
    assert pids, "a stage serves"
    return pids
