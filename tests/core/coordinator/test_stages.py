"""Live stages: loads and stops, and the memory they wait for."""

from __future__ import annotations

from skippyd.core.coordinator.control_effects import (
    Answer,
    ShutDownStage,
    StartStage,
)
from skippyd.core.coordinator.memory import (
    PersistFence,
)
from skippyd.core.coordinator.messages import (
    LoadFailed,
    Origin,
    StageReady,
    StageState,
    StageStopped,
    StopFailed,
)
from skippyd.core.coordinator.reasons import LoadRefusalReason
from support.claims import (
    changed,
    claim,
    load_of,
    local_load,
    ready_status,
    stop_of,
)
from support.stage_sides import kinds, load_reason, new_node, replies


# Loads.


def test_a_load_starts_once_and_answers_everyone_when_ready() -> None:
    node = new_node()
    node.claim(10)
    load = load_of(claim(10))

    assert node.ask(load) == (StartStage(load),)
    assert node.states == [StageState.STARTING]
    assert node.ask(load) == ()
    ready = StageReady(ready_status(load))
    assert node.ready(load) == (Answer(2, ready), Answer(3, ready))
    assert node.ask(load) == (Answer(4, ready),)
    assert node.ready(load) == ()


def test_a_refused_load_starts_nothing() -> None:
    node = new_node()

    effects = node.ask(load_of(claim(10)))

    assert load_reason(replies(effects)[1]) is LoadRefusalReason.MISSING_CLAIM
    assert node.states == []


def test_a_stage_that_may_not_be_ready_any_more_is_ended() -> None:
    """I14: the lease ran out while the stage was loading."""
    node = new_node()
    node.claim(10, lease=2_000)
    load = load_of(claim(10))
    node.ask(load)
    node.now = node.now.later(1_000)

    effects = node.ready(load)

    assert kinds(effects) == [ShutDownStage, Answer]
    assert load_reason(replies(effects)[2]) is LoadRefusalReason.EXPIRED_LEASE
    assert node.states == [StageState.STOPPING]


def test_a_stage_that_ends_before_it_is_ready_fails_its_load() -> None:
    node = new_node()
    node.claim(10)
    load = load_of(claim(10))
    node.ask(load)

    (answer,) = node.end(load, "signal 6")

    assert isinstance(answer, Answer)
    assert isinstance(answer.reply, LoadFailed)
    assert answer.reply.refusal.text == (
        "the stage ended before it was ready: signal 6"
    )
    assert node.end(load) == ()
    assert node.ready(load) == ()


def test_one_model_has_one_live_stage() -> None:
    node = new_node()
    node.start(10)

    effects = node.ask(load_of(claim(10), stage="stage-2"))

    assert load_reason(replies(effects)[node.count]) is (
        LoadRefusalReason.OTHER_STAGE_LIVE
    )


def test_a_newer_generation_replaces_the_stage_once_its_memory_is_free() -> None:
    node = new_node()
    load = node.start(10)
    newer = load_of(claim(10), generation=2)

    assert node.ask(newer) == (ShutDownStage(load, "the stage was asked to stop"),)
    assert node.ask(newer) == ()
    other = load_of(claim(10), generation=3)
    refused = replies(node.ask(other))[node.count]
    assert load_reason(refused) is LoadRefusalReason.OTHER_STAGE_LIVE
    assert node.end(load) == (StartStage(newer),)
    assert kinds(node.ready(newer)) == [Answer, Answer]
    stale = replies(node.ask(load))[node.count]
    assert load_reason(stale) is LoadRefusalReason.STALE_GENERATION


def test_a_load_with_the_same_generation_and_other_contents_is_stale() -> None:
    node = new_node()
    load = node.start(10)

    effects = node.ask(changed(load, admission="another"))

    assert load_reason(replies(effects)[node.count]) is (
        LoadRefusalReason.STALE_GENERATION
    )


def test_a_load_waits_for_the_memory_of_the_old_run() -> None:
    """I7: claimed while the old process is still going."""
    node = new_node()
    load = node.start(10)
    node.claim(11)
    newer = load_of(claim(11))

    assert node.ask(newer) == ()
    effects = node.end(load)

    assert kinds(effects) == [Answer, StartStage]
    assert effects[1] == StartStage(newer)


def test_a_waiting_load_is_checked_again_before_it_starts() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11, lease=2_000)
    node.ask(load_of(claim(11)))
    waiting = node.count
    node.now = node.now.later(1_000)

    answers = replies(node.end(load))

    assert load_reason(answers[waiting]) is LoadRefusalReason.EXPIRED_LEASE
    assert node.states == []


def test_a_waiting_load_falls_with_its_claim() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11)
    node.ask(load_of(claim(11)))
    waiting = node.count

    effects = node.claim(12)

    assert load_reason(replies(effects)[waiting]) is LoadRefusalReason.SUPERSEDED
    assert StartStage(load_of(claim(11))) not in node.end(load)


def test_a_waiting_load_of_the_accepted_claim_survives_its_renewal() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11)
    newer = load_of(claim(11))
    node.ask(newer)

    node.claim(11, lease=200_000)

    assert StartStage(newer) in node.end(load)


# Stops.


def test_a_stop_is_durable_then_ends_the_stage_then_answers() -> None:
    node = new_node()
    load = node.start(10)

    effects = node.ask(stop_of(load))
    first = node.count

    assert kinds(effects) == [PersistFence, ShutDownStage]
    assert node.ask(stop_of(load)) == ()
    stopped = StageStopped(load.stage)
    assert node.end(load) == (Answer(first, stopped), Answer(first + 1, stopped))
    late = replies(node.ask(load))[node.count]
    assert load_reason(late) is LoadRefusalReason.RUN_STOPPED


def test_a_stop_ends_the_run_here_whatever_its_stage_is_called() -> None:
    """I6: its tombstone is for the run, so no stage of the run may go on."""
    node = new_node()
    load = node.start(10)

    effects = node.ask(stop_of(load_of(claim(10), stage="stage-7")))

    assert kinds(effects) == [PersistFence, ShutDownStage]
    assert kinds(node.end(load)) == [Answer]


def test_a_stop_fails_the_loads_that_are_open() -> None:
    node = new_node()
    node.claim(10)
    load = load_of(claim(10))
    node.ask(load)

    effects = node.ask(stop_of(load))

    assert kinds(effects) == [PersistFence, ShutDownStage, Answer]
    assert load_reason(replies(effects)[2]) is LoadRefusalReason.STOPPED
    assert node.ready(load) == ()


def test_a_stop_of_what_is_not_here_is_answered_alike() -> None:
    node = new_node()
    node.claim(10)
    load = load_of(claim(10))

    effects = node.ask(stop_of(load))

    assert kinds(effects) == [PersistFence, Answer]
    assert replies(effects)[2] == StageStopped(load.stage)
    assert kinds(node.ask(stop_of(load))) == [Answer]


def test_a_stale_stop_is_refused_and_the_stage_goes_on() -> None:
    node = new_node()
    node.start(11)

    (answer,) = node.ask(stop_of(load_of(claim(10))))

    assert isinstance(answer, Answer)
    assert isinstance(answer.reply, StopFailed)
    assert answer.reply.refusal.text == "stale coordinator term 10 < 11"
    assert node.states == [StageState.READY]


def test_a_stop_reaches_a_load_that_waits() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11)
    newer = load_of(claim(11))
    node.ask(newer)
    waiting = node.count

    effects = node.ask(stop_of(newer))

    assert load_reason(replies(effects)[waiting]) is LoadRefusalReason.STOPPED
    assert replies(effects)[node.count] == StageStopped(newer.stage)
    assert StartStage(newer) not in node.end(load)


def test_a_stop_of_the_old_generation_spares_the_local_one_that_waits() -> None:
    node = new_node()
    old, new = local_load(), local_load(generation=2)
    node.ask(old, Origin.ADMIN)
    node.ask(new, Origin.ADMIN)

    node.ask(stop_of(old), Origin.ADMIN)

    assert StartStage(new) in node.end(old)
