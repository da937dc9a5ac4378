from __future__ import annotations

import attrs
import pytest

from skippyd.core.topology.plan import (
    ContextBelowMinimum,
    ContextExceedsNative,
    LockedDuplicateNode,
    LockedIncompleteCoverage,
    LockedInvalidRange,
    LockedNonContiguousRange,
    LockedStageCount,
    LockedTopologyDoesNotFit,
    LockedUnknownNode,
    MissingKvBytesPerToken,
    MissingLayers,
    MissingModelWeights,
    MissingNativeContext,
    MissingNodes,
    NoValidTopology,
    ParallelLanesExceedSequenceCapacity,
    PlanRefusal,
    StageAssignment,
    TensorDoesNotFit,
    ZeroParallelLanes,
)
from skippyd.core.topology.wording import refusal_message
from skippyd.ids import NodeId
from skippyd.units import GIB
from support.topologies import QWEN_480B, ask, equal_nodes, unplannable


SHORT = StageAssignment(
    stage_index=0,
    node_id=NodeId("a"),
    layer_start=0,
    layer_end=3,
    parameter_bytes=9 * GIB,
    kv_bytes=GIB,
    remaining_bytes=-2 * GIB,
)


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (
            MissingNativeContext(),
            "the model's native context is not known; give native_context",
        ),
        (MissingLayers(), "the model's number of layers is not known; give layers"),
        (
            MissingModelWeights(),
            "the model's weight bytes are not known; give weight_bytes",
        ),
        (
            MissingKvBytesPerToken(),
            "the size of the KV cache is not known; give kv_bytes_per_token",
        ),
        (MissingNodes(), "there are no nodes; give at least one"),
        (ZeroParallelLanes(), "0 lanes can serve nobody; ask for at least 1"),
        (
            ParallelLanesExceedSequenceCapacity(300, 256),
            (
                "300 lanes are more than the 256 sequences one stage can tell apart; "
                "ask for at most 256"
            ),
        ),
        (
            ContextBelowMinimum(32_768, 65_536),
            (
                "a context of 32,768 is below the floor of 65,536 tokens; "
                "ask for 65,536 or more"
            ),
        ),
        (
            ContextExceedsNative(131_072, 65_536),
            (
                "a context of 131,072 is more than the model's native 65,536 tokens; "
                "ask for 65,536 or less"
            ),
        ),
        (
            LockedStageCount(1, 2, 40),
            "the locked topology has 1 stage; it needs 2 to 40",
        ),
        (
            LockedUnknownNode(1, NodeId("x")),
            "locked stage-1 stands on x, which is not a node",
        ),
        (
            LockedDuplicateNode(1, NodeId("x")),
            "locked stage-1 stands on x, which has a stage already",
        ),
        (
            LockedInvalidRange(0, 20, 20),
            "locked stage-0 has the range 20..20, which is none",
        ),
        (
            LockedNonContiguousRange(1, 19, 20),
            "locked stage-1 begins at layer 20 instead of 19",
        ),
        (
            LockedIncompleteCoverage(39, 40),
            "the locked stages end at layer 39 of 40",
        ),
        (
            LockedTopologyDoesNotFit(65_536, (SHORT,)),
            (
                "the locked topology does not fit a context of 65,536 tokens: 2.00 GiB "
                "missing (a needs 10.0 GiB for layers 0..3 and has 8.00 GiB)"
            ),
        ),
        (
            TensorDoesNotFit(
                tensor="output.weight",
                tensor_bytes=3 * GIB,
                stage=SHORT,
                context_length=131_072,
                minimum_context=65_536,
                largest_context=70_144,
                one_more_node_bytes=5 * GIB,
            ),
            (
                "output.weight (3.00 GiB) does not fit beside layers 0..3 on a at a "
                "context of 131,072 tokens: 2.00 GiB missing; add a node with 5.00 GiB "
                "usable; ask for a context of at most 70,144 tokens"
            ),
        ),
    ],
)
def test_every_refusal_is_a_sentence_with_its_numbers(
    refusal: PlanRefusal, expected: str
) -> None:
    assert refusal_message(refusal) == expected


NEAREST = NoValidTopology(
    minimum_context=65_536,
    context_length=65_536,
    min_nodes=1,
    layer_count=3,
    node_count=1,
    nearest=(SHORT,),
)


@pytest.mark.parametrize(
    ("largest", "more", "remedy"),
    [
        (
            0,
            None,
            (
                "a smaller context does not help: "
                "the layers do not fit even without a KV cache"
            ),
        ),
        (
            256,
            None,
            "these nodes would hold 256 tokens, below the floor of 65,536",
        ),
        (
            65_280,
            GIB + 1,
            (
                "add a node with 1.01 GiB usable; "
                "these nodes would hold 65,280 tokens, below the floor of 65,536"
            ),
        ),
        (65_536, None, "ask for a context of at most 65,536 tokens"),
    ],
)
def test_a_shortage_names_the_nearest_thing_that_would_fit(
    largest: int, more: int | None, remedy: str
) -> None:
    refusal = attrs.evolve(NEAREST, largest_context=largest, one_more_node_bytes=more)

    assert refusal_message(refusal) == (
        "the model does not fit a context of 65,536 tokens: 2.00 GiB missing "
        f"(a needs 10.0 GiB for layers 0..3 and has 8.00 GiB); {remedy}"
    )


def test_an_impossible_number_of_stages_is_named() -> None:
    refusal = attrs.evolve(NEAREST, nearest=(), min_nodes=4, node_count=2)

    assert refusal_message(refusal) == (
        "no topology is possible: 4 stages asked for, with 2 nodes and 3 layers; "
        "lower min_nodes or add nodes"
    )


def test_a_long_list_of_nodes_is_cut_with_a_count() -> None:
    message = refusal_message(unplannable(ask(QWEN_480B, equal_nodes(11, 20))))

    assert message.count(" needs ") == 8
    assert "and 3 more nodes are short" in message


def test_eight_nodes_are_all_named() -> None:
    message = refusal_message(unplannable(ask(QWEN_480B, equal_nodes(8, 20))))

    assert message.count(" needs ") == 8
    assert "more nodes" not in message
