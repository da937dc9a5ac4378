from __future__ import annotations

import argparse
import io
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyctl.channel import DaemonUnreachableError
from skippyctl.client import AdminClient
from skippyctl.following import follow
from skippyd.admin.wishes import WatchEvents
from skippyd.errors import ExitCode
from support.admin_daemon import admin_daemon
from support.admin_documents import DEPLOYMENT, event
from support.admin_view import FakeNodeView


if TYPE_CHECKING:
    from pathlib import Path


def arguments(*, as_json: bool = False, color: str = "never") -> argparse.Namespace:
    return argparse.Namespace(json=as_json, color=color)


def watched(path: Path, *, ends: bool, color: str = "never") -> ExitCode:
    with AdminClient(path) as client:
        return follow(
            client, arguments(color=color), WatchEvents(), ends_when_final=ends
        )


def test_a_final_event_ends_it_with_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s"
    view = FakeNodeView()
    view.story = (attrs.evolve(DEPLOYMENT[-1], exit_code=7),)
    with admin_daemon(path, view):
        assert watched(path, ends=True) is ExitCode.STALE_TERM
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("color", ["never", "always"])
def test_without_an_end_it_goes_on_until_the_daemon_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], color: str
) -> None:
    """Two deployments end; then the daemon does, as in a restart."""
    path = tmp_path / "s"
    view = FakeNodeView()
    view.story = (*DEPLOYMENT, event(7, "withdraw", "gone", is_final=True))
    daemon = admin_daemon(path, view)
    daemon.__enter__()
    stopped: list[None] = []
    try:
        with AdminClient(path) as client:
            events = client.follow_events(WatchEvents(after=6))
            assert next(events) == view.story[-1]
        with AdminClient(path) as client, pytest.raises(DaemonUnreachableError):
            _stop_when_shown(client, color, daemon, stopped)
    finally:
        if not stopped:
            daemon.__exit__(None, None, None)
    captured = capsys.readouterr()
    assert "gone" in captured.out
    assert captured.err.endswith("--after 7 takes it up here\n")


def _stop_when_shown(
    client: AdminClient, color: str, daemon: object, stopped: list[None]
) -> None:
    plain = client.follow_events

    def follow_events(wish: WatchEvents) -> object:
        for each in plain(wish):
            yield each
            if each.sequence == 7:  # type: ignore[union-attr]
                daemon.__exit__(None, None, None)  # type: ignore[attr-defined]
                stopped.append(None)

    client.follow_events = follow_events  # type: ignore[method-assign,assignment]
    follow(client, arguments(color=color), WatchEvents(), ends_when_final=False)


def test_whoever_waits_for_a_deployment_gives_up_after_so_many_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The coordinator goes on: it is said how to watch that."""
    path = tmp_path / "s"
    view = FakeNodeView()
    view.story = tuple(event(n, "failed", "no answer") for n in range(1, 5))
    with admin_daemon(path, view), AdminClient(path) as client:
        code = follow(
            client, arguments(), WatchEvents(), ends_when_final=True, most_failures=3
        )
    assert code is ExitCode.FAILED
    assert "skippyctl watch --after 3 --once" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_told_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    path = tmp_path / "s"
    with admin_daemon(path, FakeNodeView()), AdminClient(path) as client:
        monkeypatch.setattr("sys.stdout", Closed())
        with pytest.raises(BrokenPipeError):
            follow(client, arguments(), WatchEvents(), ends_when_final=True)
    assert capsys.readouterr().err == ""
