"""`deploy`, `watch` and `withdraw`: followed to the end, refused, cut short, resumed."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from skippyd.admin import wishes
from support.admin_documents import DEPLOYMENT, event
from support.admin_view import FakeNodeView, infeasible


if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]


def test_a_deployment_is_followed_to_its_end(run: Run, view: FakeNodeView) -> None:
    code, out, err = run(
        "deploy",
        "smollm2",
        "--context",
        "8192",
        "--lanes",
        "4",
        "--nodes",
        "alpha,beta",
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "02:00:01  plan     3 stages, context 8,192, 4 lanes",
        "02:00:02  probe    3 of 3 accept",
        "02:00:05  load     stage-2 on gamma  ready",
        "02:00:06  publish  smollm2 is served at http://10.0.0.1:9337/v1",
    ]
    wish = wishes.Deploy(
        model="smollm2", context=8192, lanes=4, nodes=("alpha", "beta")
    )
    assert view.changes == [(wish, None)]


def test_a_deployment_for_scripts_is_one_event_a_line(run: Run) -> None:
    code, out, _ = run("deploy", "smollm2", "--json")
    events = [json.loads(text) for text in out.splitlines()]
    assert code == 0
    assert [each["event"] for each in events] == [e.event for e in DEPLOYMENT]
    assert {each["schema"] for each in events} == {"skippy.event/1"}
    assert events[3]["done"] == 60_000_000
    assert "stage_id" not in events[0]


def test_progress_goes_to_standard_error_on_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    code, out, err = run("deploy", "smollm2", "--color", "always")
    assert code == 0
    assert out == "\x1b[32msmollm2 is served at http://10.0.0.1:9337/v1\x1b[0m\n"
    assert "██████····  60%" in err


@pytest.mark.parametrize(("exit_code", "code"), [(6, 6), (7, 7), (None, 1), (1_000, 1)])
def test_a_failed_deployment_ends_with_what_the_daemon_says(
    run: Run, view: FakeNodeView, exit_code: int | None, code: int
) -> None:
    view.story = (
        event(1, "plan", "3 stages"),
        event(2, "failed", "no quorum", is_final=True, exit_code=exit_code),
    )
    ended, out, _ = run("deploy", "smollm2")
    assert ended == code
    assert out.splitlines()[-1] == "02:00:02  failed   no quorum"


DRY_RUN = event(2, "plan", "dry run, nothing was done: 3 stages", is_dry_run=True)


@pytest.mark.parametrize("color", ["never", "always"])
def test_a_dry_run_is_told_as_one_and_ends_with_its_plan(
    run: Run, view: FakeNodeView, color: str
) -> None:
    other = event(1, "publish", "smollm2 is served", is_final=True, exit_code=0)
    view.story = (other, DRY_RUN)
    code, out, _ = run("deploy", "smollm2", "--dry-run", "--color", color)
    assert code == 0
    assert out.endswith("dry run, nothing was done: 3 stages\n")


def test_the_plan_of_a_dry_run_ends_no_watch(run: Run, view: FakeNodeView) -> None:
    view.story = (DRY_RUN, event(3, "failed", "lost", is_final=True, exit_code=1))
    code, out, _ = run("watch", "--once")
    assert code == 1
    assert "plan     dry run, nothing was done: 3 stages" in out.splitlines()[0]


def test_a_dry_run_cannot_be_left_to_itself(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("deploy", "smollm2", "--dry-run", "--detach")
    assert ended.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_a_refused_deployment_says_why(run: Run, view: FakeNodeView) -> None:
    view.refusal = infeasible()
    code, out, err = run("deploy", "smollm2")
    assert (code, out) == (6, "")
    assert err == "skippyctl deploy: smollm2 needs 12 GiB, the nodes have 9.50 GiB\n"


def test_watching_can_be_taken_up_anywhere(run: Run, view: FakeNodeView) -> None:
    view.missed_events = 3
    code, out, err = run("watch", "--once", "--after", "4")
    assert (code, err) == (0, "")
    assert [text.split()[1] for text in out.splitlines()] == ["load", "publish"]
    code, _, err = run("watch", "smollm2", "--once")
    assert (code, err) == (0, "(3 events no longer kept)\n")


def test_a_watch_that_is_cut_short_says_how_to_go_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.StringIO):
        def write(self, text: str) -> int:
            if "publish" in text:
                raise KeyboardInterrupt
            return super().write(text)

    monkeypatch.setattr("sys.stdout", Interrupted())
    code, _, err = run("deploy", "smollm2")
    assert code == 130
    assert err == (
        "no longer watching; what was begun goes on in the daemon: "
        "skippyctl watch smollm2 --after 5 --once takes it up here\n"
    )


def test_detached_work_says_how_to_watch_it(run: Run) -> None:
    code, out, _ = run("withdraw", "--detach")
    assert code == 0
    assert out == "begun; skippyctl watch smollm2 --after 0 --once shows it\n"


def test_a_withdrawal_is_followed(run: Run, view: FakeNodeView) -> None:
    view.story = (event(1, "withdraw", "smollm2 is withdrawn", is_final=True),)
    code, out, _ = run("withdraw", "smollm2")
    assert (code, out) == (0, "02:00:01  withdraw smollm2 is withdrawn\n")
