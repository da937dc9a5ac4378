from __future__ import annotations

from skippyctl.deploy_view import MOST_LINES, Progress, event_lines, is_progress
from skippyctl.page import plain_text
from support.admin_documents import DEPLOYMENT, GAMMA, event


def shown(progress: Progress) -> list[str]:
    return plain_text(progress.page()).split("\n")


def test_a_step_that_goes_on_is_one_line_with_a_bar() -> None:
    progress = Progress()
    for each in DEPLOYMENT[:4]:
        progress.take(each)
    assert shown(progress) == [
        "02:00:01  plan     3 stages, context 8,192, 4 lanes",
        "02:00:02  probe    3 of 3 accept",
        "02:00:04  load     stage-2 on c3c3c3c3c3c3  ██████····  60% of 95.3 MiB",
    ]
    for each in DEPLOYMENT[4:]:
        progress.take(each)
    assert shown(progress)[2:] == [
        "02:00:05  load     stage-2 on c3c3c3c3c3c3  ready",
        "02:00:06  publish  smollm2 is served at http://10.0.0.1:9337/v1",
    ]


def test_a_step_that_comes_again_begins_a_new_line() -> None:
    progress = Progress()
    for number, step in enumerate(("plan", "replan", "plan"), start=1):
        progress.take(event(number, step, str(number)))
    assert [text.split()[1:] for text in shown(progress)] == [
        ["replan", "2"],
        ["plan", "3"],
    ]


def test_old_steps_go_when_there_are_too_many() -> None:
    progress = Progress()
    for number in range(MOST_LINES + 5):
        progress.take(event(number, "load", "ready", stage_id=f"stage-{number}"))
    assert len(shown(progress)) == MOST_LINES
    assert shown(progress)[0].split()[2] == "stage-5"


def test_nodes_have_their_names() -> None:
    progress = Progress({GAMMA: "gamma"})
    progress.take(DEPLOYMENT[4])
    assert shown(progress) == ["02:00:05  load     stage-2 on gamma  ready"]


def test_small_counts_have_a_bar_without_a_size() -> None:
    half = event(1, "prepare", "", done=1, total=2)
    assert is_progress(half)
    assert plain_text(tuple(event_lines(half, {}))).endswith("█████·····  50%")
    assert not is_progress(event(1, "prepare", "", done=2, total=2))
    assert not is_progress(event(1, "prepare", ""))


def test_long_explanations_keep_their_lines() -> None:
    page = tuple(event_lines(event(1, "failed", "no room:\nalpha lacks 1 GiB"), {}))
    assert plain_text(page).split("\n") == [
        "02:00:01  failed   no room:",
        "                   alpha lacks 1 GiB",
    ]
