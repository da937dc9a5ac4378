"""Every command against a real admin socket over a made-up node: texts, JSON, codes."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyctl import lists
from skippyctl.commands import (
    claims,
    completion,
    deploy,
    doctor,
    drain,
    fence,
    invite,
    join,
    lanes,
    leases,
    load_local,
    logs,
    nodes,
    safe_mode,
    sessions,
    status,
    stop,
    telemetry,
    watch,
    withdraw,
)
from skippyctl.main import COMMANDS, main
from skippyd.admin import schema, wishes
from skippyd.errors import SkippyError
from support.admin_documents import degraded


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.admin_view import FakeNodeView

    Run = Callable[..., tuple[int, str, str]]

MODULES = (
    claims, completion, deploy, doctor, drain, fence, invite, join, lanes, leases,
    load_local, logs, nodes, safe_mode, sessions, status, stop, telemetry, watch, withdraw,
)  # fmt: skip
DOCUMENTS = {
    "claims": "skippy.claims/1",
    "deploy m --detach": "skippy.deployment/1",
    "doctor": "skippy.doctor/1",
    "drain": "skippy.done/1",
    "fence init --reason r --yes": "skippy.done/1",
    "fence show": "skippy.fence/1",
    "invite": "skippy.invite/1",
    "join t": "skippy.join/1",
    "lanes": "skippy.lanes/1",
    "leases": "skippy.leases/1",
    "load-local m": "skippy.done/1",
    "logs": "skippy.logs/1",
    "nodes": "skippy.nodes/1",
    "safe-mode off": "skippy.safe-mode/1",
    "safe-mode on --reason r": "skippy.safe-mode/1",
    "safe-mode status": "skippy.safe-mode/1",
    "sessions": "skippy.sessions/1",
    "status": "skippy.status/1",
    "stop --all": "skippy.done/1",
    "telemetry": "skippy.telemetry/1",
    "withdraw --detach": "skippy.deployment/1",
}


def test_every_command_has_its_module() -> None:
    named = {module.__name__.rpartition(".")[2] for module in MODULES} | {"plan"}
    assert named == {name.replace("-", "_") for name in COMMANDS}


@pytest.mark.parametrize("words", DOCUMENTS)
def test_json_is_the_last_line_and_says_what_it_is(run: Run, words: str) -> None:
    code, out, _ = run(*words.split(), "--json")
    assert code == 0
    (text,) = out.splitlines()
    assert json.loads(text)["schema"] == DOCUMENTS[words]


def test_status_in_words(run: Run, view: FakeNodeView) -> None:
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert out.splitlines()[:4] == [
        "alpha (a1a1a1a1a1a1)  serving  skippyd 0.1.0, up 2 h 14 min",
        "",
        "model        smollm2",
        "served at    http://10.0.0.1:9337/v1",
    ]
    assert "lease        3 h 12 min left" in out
    view.now = degraded()
    code, out, err = run("status")
    assert (code, err) == (3, "")
    assert out.startswith("SAFE MODE is on since")


def test_a_terminal_that_is_forced_gets_colours(run: Run) -> None:
    _, out, _ = run("status", "--color", "always")
    assert "\x1b[32mserving" in out
    _, out, _ = run("nodes", "--color", "always")
    assert "\x1b[" in out


@pytest.mark.parametrize("words", ["claims", "leases", "fence show"])
def test_lists_call_coordinators_by_their_names(run: Run, words: str) -> None:
    code, out, _ = run(*words.split())
    assert code == 0
    assert "alpha" in out.splitlines()[-1].split()


def test_logs_and_telemetry_in_words(run: Run) -> None:
    code, out, _ = run("logs", "-n", "1")
    assert code == 0
    assert out == (
        "2025-11-30T02:00:01Z error   stage-2  "
        "event=stage_lost reason='killed by signal 9'\n"
    )
    code, out, _ = run("telemetry", "--spans", "0")
    assert code == 0
    assert out.startswith("window    last 60 s\n")
    assert "stage." not in out


@pytest.mark.parametrize(
    ("words", "wish", "said"),
    [
        ("stop stage-1", wishes.Stop(stage_id="stage-1"), "1 stage is stopped\n"),
        ("stop --all", wishes.Stop(), "1 stage is stopped\n"),
        ("drain", wishes.Drain(), "draining; 1 stage is given up in order\n"),
        ("drain --undo", wishes.Drain(is_undone=True), None),
        (
            "join T",
            wishes.Join(token="T"),
            "joined beta (b2b2b2b2b2b2) at 10.0.0.2:9401\n",
        ),
    ],
)
def test_changes_say_what_was_done(
    run: Run, view: FakeNodeView, words: str, wish: object, said: str | None
) -> None:
    code, out, _ = run(*words.split())
    assert code == 0
    assert said is None or out == said
    assert [each for each, _ in view.changes] == [wish]


def test_an_invitation_is_the_token_alone(run: Run) -> None:
    code, out, err = run("invite")
    assert (code, out) == (0, "skippy1-secret\n")
    assert "before 2025-11-30T02:15:00Z: skippyctl join TOKEN" in err


@pytest.mark.parametrize("said", ["skippy1-abc\n", "  skippy1-abc  \nmore\n"])
def test_a_token_may_come_on_standard_input(
    run: Run, view: FakeNodeView, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    assert run("join", "-")[0] == 0
    assert view.changes == [(wishes.Join(token="skippy1-abc"), None)]


@pytest.mark.parametrize("said", ["", "\n", "x" * 5000])
def test_no_token_and_an_endless_one_are_refused(
    run: Run, view: FakeNodeView, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    code, _, err = run("join", "-")
    assert code == 2
    assert "copy the whole line once" in err
    assert view.changes == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("said", "code"), [("yes\n", 0), ("y\n", 2), ("", 2)])
def test_ending_a_quarantine_asks_first(
    run: Run,
    view: FakeNodeView,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    code: int,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(said))
    ended, _, err = run("fence", "init", "--reason", "new disk")
    assert ended == code
    assert 'Type "yes":' in err
    assert len(view.changes) == (1 if code == 0 else 0)


def test_without_a_terminal_a_flag_is_needed(
    run: Run, view: FakeNodeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    code, _, err = run("fence", "init", "--reason", "new disk")
    assert code == 2
    assert "needs --yes" in err
    assert run("fence", "init", "--reason", "new disk", "--yes")[0] == 0
    assert [wish for wish, _ in view.changes] == [wishes.InitFence(reason="new disk")]


def test_a_quarantine_is_exit_3(run: Run, view: FakeNodeView) -> None:
    view.is_quarantined = True
    code, out, _ = run("fence", "show")
    assert code == 3
    assert "quarantined: the store is older" in out


def test_safe_mode_says_when_it_takes_effect(run: Run, view: FakeNodeView) -> None:
    code, out, err = run("safe-mode", "on", "--reason", "odd answers")
    assert code == 0
    assert out.startswith("SAFE MODE is requested since 2025-11-30T02:00:00Z")
    assert err == "takes effect at restart; skippyctl status shows it\n"
    code, _, err = run("safe-mode", "on", "--reason", "odd", "--restart")
    assert err == "skippyd restarts now; skippyctl status shows it\n"
    code, out, err = run("safe-mode", "off")
    assert (code, out, err) == (0, "safe mode is off\n", "")
    view.safe = schema.SafeModeReport(safe_mode=degraded().safe_mode)
    assert run("safe-mode", "status")[0] == 3


def test_a_failed_check_is_exit_1(run: Run, view: FakeNodeView) -> None:
    code, out, _ = run("doctor")
    assert code == 0
    assert "ok       admin socket" in out
    broken = attrs.evolve(view.checks[0], verdict="failed", remedy="free some space")
    view.checks = (broken,)
    code, out, _ = run("doctor")
    assert code == 1
    assert "         free some space" in out


@pytest.mark.parametrize("words", ["status", "doctor", "deploy m", "nodes --json"])
def test_no_daemon_is_exit_4(
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skippyctl.connection.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("skippyctl.channel.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(
        "skippyctl.connection.AdminConnection.__init__.__kwdefaults__",
        {"patience_s": 0.0, "silence_s": 30.0},
        raising=False,
    )
    code = main([*words.split(), "--socket", str(tmp_path / "none.sock")])
    captured = capsys.readouterr()
    assert code == 4
    text = captured.out + captured.err
    assert "there is no such socket; is skippyd running?" in text


@pytest.mark.parametrize(
    "words",
    [
        "stop", "stop a --all", "deploy", "deploy m --nodes a,a", "deploy m --lanes 0", "load-local",
        "safe-mode on", "safe-mode on --reason", "fence", "fence forget", "join",
        "logs -n 0", "completion tcsh", "watch --after -1",
    ],
)  # fmt: skip
def test_words_that_make_no_command_are_exit_2(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert "usage: skippyctl" in capsys.readouterr().err


@pytest.mark.slow
def test_lists_can_be_watched(
    run: Run, view: FakeNodeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "EVERY_SECONDS", 0.0)
    seen: list[str] = []

    class Twice(io.StringIO):
        def write(self, text: str) -> int:
            seen.append(text)
            if sum('"skippy.claims/1"' in each for each in seen) == 3:
                raise KeyboardInterrupt
            return super().write(text)

    monkeypatch.setattr("sys.stdout", Twice())
    assert run("claims", "--watch", "--json")[0] == 130


def test_the_daemons_refusal_of_a_user_is_exit_5(run: Run, view: FakeNodeView) -> None:
    class NotAllowedError(SkippyError):
        exit_code = 5  # type: ignore[assignment] # as a newer daemon may say

    view.refusal = NotAllowedError("permission denied: not you")
    code, _, err = run("drain")
    assert (code, err) == (5, "skippyctl drain: permission denied: not you\n")
