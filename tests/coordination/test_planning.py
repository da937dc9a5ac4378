"""Plans over what nodes report: own node first, real bytes, refusals with numbers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.admission import descriptor_text, stage_descriptor
from skippyd.coordination.planning import (
    Planner,
    PlanRefusedError,
    RunShape,
    plan_summary,
)
from skippyd.coordination.rollout_wishes import Wish
from skippyd.core.topology.plan import NoValidTopology
from skippyd.errors import RefusedError
from skippyd.ids import NodeId
from skippyd.model.gguf_model import open_model
from skippyd.runtime.build import BuildFacts
from support.node_reports import report_of
from support.planning_nodes import FixedNodes
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from skippyd.coordination.planning import PlannedRun
    from skippyd.coordination.ports import NodeReport

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
BUILD = BuildFacts(llama_cpp_build="b1", cpu_features="avx2", capture="native")
SPEC = RandomModel(layers=6, context_length=512)
KIB = 1024


@attrs.frozen
class OneFile:
    """A node with one model file."""

    path: Path
    sha256: str

    async def obtain(self, sha256: str, *, wanted: str) -> Path:
        """See `ModelFiles`."""
        if sha256 != self.sha256:
            raise RefusedError(f"this node lacks {wanted}")
        return self.path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> OneFile:
    path = write_random_model(tmp_path_factory.mktemp("model") / "m.gguf", SPEC)
    return OneFile(path, hashlib.sha256(path.read_bytes()).hexdigest())


def nodes_of(
    model: OneFile,
    own: NodeId = A,
    latencies_ms: Mapping[NodeId, float] | None = None,
    **kib: int,
) -> FixedNodes:
    reports: dict[NodeId, NodeReport] = {
        NodeId(name): report_of(name, memory_bytes=size * KIB, sha256=model.sha256)
        for name, size in kib.items()
    }
    return FixedNodes(own, reports, latencies_ms or {})


def wish_for(model: OneFile, **fields: object) -> Wish:
    wish = Wish(model_id="m", model_sha256=model.sha256, deployed_by=A)
    for name, value in fields.items():
        object.__setattr__(wish, name, value)
    return wish


async def planned(
    model: OneFile,
    nodes: FixedNodes,
    *excluded: NodeId,
    wish: Wish | None = None,
    pinned: RunShape | None = None,
) -> PlannedRun:
    planner = Planner(nodes=nodes, files=model, build=lambda: BUILD)
    chosen = wish_for(model) if wish is None else wish
    return await planner.plan(chosen, excluded=excluded, pinned=pinned)


def owners(run: PlannedRun) -> list[str]:
    return [stage.node_id for stage in run.campaign_plan.stages]


async def test_one_node_with_room_takes_it_all(model: OneFile) -> None:
    run = await planned(model, nodes_of(model, a=64 * KIB, b=64 * KIB))
    assert owners(run) == ["a"]
    assert run.settings.ctx_size == 512
    assert run.settings.lane_count == 4


async def test_named_nodes_get_a_stage_each_and_cover_the_model(
    model: OneFile,
) -> None:
    nodes = nodes_of(model, a=64 * KIB, b=64 * KIB, c=64 * KIB)
    run = await planned(model, nodes, wish=wish_for(model, node_ids=(A, B, C)))
    assert sorted(owners(run)) == ["a", "b", "c"]
    ends = [stage.layer_end for stage in run.campaign_plan.stages]
    starts = [stage.layer_start for stage in run.campaign_plan.stages]
    assert [0, *ends[:-1]] == starts
    assert ends[-1] == SPEC.layers


@pytest.mark.parametrize("own", [A, B, C])
async def test_the_first_stage_is_on_this_node_whatever_its_size(
    model: OneFile, own: NodeId
) -> None:
    nodes = nodes_of(model, own, a=400, b=64 * KIB, c=900)
    wish = wish_for(model, node_ids=(A, B, C))
    run = await planned(model, nodes, wish=wish)
    assert owners(run)[0] == own
    assert run.explained is not None
    assert run.explained.plan.smallest_margin_bytes >= 0


async def test_a_larger_node_gets_more_layers(model: OneFile) -> None:
    nodes = nodes_of(model, a=600, b=64 * KIB)
    run = await planned(model, nodes, wish=wish_for(model, node_ids=(A, B)))
    sizes = [s.layer_end - s.layer_start for s in run.campaign_plan.stages]
    assert sizes[0] < sizes[1]


async def test_a_plan_is_named_claimed_and_described(model: OneFile) -> None:
    nodes = nodes_of(model, a=64 * KIB, b=64 * KIB)
    run = await planned(model, nodes, wish=wish_for(model, node_ids=(A, B)))
    key = run.campaign_plan.key
    assert key.package_ref == f"local-gguf://sha256/{model.sha256}"
    assert key.manifest_sha256 == model.sha256
    opened = open_model(model.path)
    for stage in run.campaign_plan.stages:
        assert stage.source_model_sha256 == model.sha256
        assert stage.source_model_bytes == model.path.stat().st_size
        assert stage.backend == "skippy"
        described = stage_descriptor(
            opened, stage.layer_start, stage.layer_end, run.settings, BUILD
        )
        assert stage.admission == descriptor_text(described)
    assert len(run.campaign_plan.topology_hash) == 64
    assert [s.port for s in run.settings.stages] == [0, 0]
    assert run.settings.run_key == ""
    assert run.candidates == (A, B)


async def test_different_plans_have_different_hashes(model: OneFile) -> None:
    nodes = nodes_of(model, a=64 * KIB, b=64 * KIB)
    one = await planned(model, nodes)
    two = await planned(model, nodes, wish=wish_for(model, node_ids=(A, B)))
    assert one.campaign_plan.topology_hash != two.campaign_plan.topology_hash
    hashes = {run.campaign_plan.participant_set_hash for run in (one, two)}
    assert len(hashes) == 2


async def test_a_replan_keeps_context_and_lanes(model: OneFile) -> None:
    nodes = nodes_of(model, a=64 * KIB, b=64 * KIB)
    run = await planned(model, nodes, B, pinned=RunShape(512, 2))
    assert (run.settings.ctx_size, run.settings.lane_count) == (512, 2)
    assert owners(run) == ["a"]


async def test_a_model_that_fits_nowhere_is_refused_with_its_numbers(
    model: OneFile,
) -> None:
    with pytest.raises(PlanRefusedError) as refused:
        await planned(model, nodes_of(model, a=100, b=120))
    refusal = refused.value.refusal
    assert isinstance(refusal, NoValidTopology)
    assert refusal.missing_bytes > 0
    assert refused.value.exit_code == 6


async def test_a_refusal_says_who_was_left_out(model: OneFile) -> None:
    nodes = nodes_of(model, a=100, b=64 * KIB)
    nodes.known[B] = attrs.evolve(nodes.known[B], is_draining=True)
    with pytest.raises(PlanRefusedError, match="b: it is draining"):
        await planned(model, nodes)


async def test_a_chain_that_only_fits_elsewhere_says_where(model: OneFile) -> None:
    with pytest.raises(RefusedError, match="begins on b fits: deploy there"):
        await planned(model, nodes_of(model, a=10, b=64 * KIB))


async def test_a_context_that_is_not_offered_is_refused(model: OneFile) -> None:
    nodes = nodes_of(model, a=64 * KIB)
    with pytest.raises(PlanRefusedError, match="512"):
        await planned(model, nodes, wish=wish_for(model, context=1_024))


async def test_a_model_that_is_not_here_is_said(model: OneFile) -> None:
    wish = attrs.evolve(wish_for(model), model_sha256="00" * 32)
    with pytest.raises(RefusedError, match="lacks the model m"):
        await planned(model, nodes_of(model, a=64 * KIB), wish=wish)


async def test_measured_distances_enter_the_plan(model: OneFile) -> None:
    far = {A: 1.0, B: 50.0, C: 2.0}
    nodes = nodes_of(model, A, far, a=500, b=64 * KIB, c=64 * KIB)
    run = await planned(model, nodes)
    assert "b" not in owners(run)
    assert run.explained is not None
    assert run.explained.plan.estimate_us is not None
    assert "layers 0 to" in plan_summary(run.explained)


async def test_large_sources_get_the_time_they_need(model: OneFile) -> None:
    run = await planned(model, nodes_of(model, a=64 * KIB))
    assert run.campaign_plan.prepare_timeout_ms == 30 * 60 * 1_000
    assert run.campaign_plan.load_timeout_ms == 15 * 60 * 1_000
