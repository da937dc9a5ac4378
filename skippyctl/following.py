"""Watching a deployment until it ends: in place on a terminal, line by line else.

Progress goes to standard error and only to a terminal. What is said when a watch is cut
short is how to take it up again: the deployment itself goes on in the daemon.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skippyctl.deploy_view import Progress, event_lines, is_progress
from skippyctl.lists import node_names
from skippyctl.output import (
    json_line,
    print_page,
    show,
    wants_colours,
    wants_terminal,
)
from skippyctl.page import Tone, line
from skippyd.admin.schema_live import Event
from skippyd.errors import ExitCode
from skippyd.units import counted


if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from skippyctl.client import AdminClient
    from skippyctl.page import Page
    from skippyd.admin.schema import Deployment
    from skippyd.admin.wishes import WatchEvents


def follow(
    client: AdminClient,
    arguments: argparse.Namespace,
    wish: WatchEvents,
    *,
    ends_when_final: bool,
    is_dry_run: bool = False,
    most_failures: int | None = None,
) -> ExitCode:
    """Show events until a final one, or for ever; return what the final one asks for.

    Args:
        is_dry_run: A dry run is waited for: it has one event, which ends nothing else.
        most_failures: Failed attempts after which nobody waits any more here, although
            the coordinator goes on trying; None waits as long as the model is wanted.

    Raises:
        DaemonUnreachableError: The daemon is gone; standard error says how to resume.
    """
    cursor = wish.after
    code, failures = ExitCode.DONE, 0
    try:
        names = {} if arguments.json else node_names(client)
        for event in _shown(_events(client, wish), arguments, names):
            cursor = event.sequence
            is_end = event.is_dry_run if is_dry_run else event.is_final
            if is_end:
                code = _exit_code(event)
            if is_end and ends_when_final:
                return code
            failures += event.event == "failed"
            if failures == most_failures:
                _say_how_to_resume(wish, cursor, is_once=ends_when_final)
                return ExitCode.FAILED
    except BrokenPipeError:
        # Whoever read this has seen enough, and wants to hear no more.
        raise
    except BaseException:
        _say_how_to_resume(wish, cursor, is_once=ends_when_final)
        raise
    return code


def _events(client: AdminClient, wish: WatchEvents) -> Iterator[Event]:
    for each in client.follow_events(wish):
        if isinstance(each, Event):
            yield each
        else:
            gone = counted(each.missed, "event")
            print(f"({gone} no longer kept)", file=sys.stderr)


def _shown(
    events: Iterator[Event], arguments: argparse.Namespace, names: Mapping[str, str]
) -> Iterator[Event]:
    if arguments.json:
        for event in events:
            print(json_line(event), flush=True)
            yield event
    elif wants_terminal(sys.stderr, arguments.color):
        yield from _in_place(events, arguments, names)
    else:
        for event in events:
            if not is_progress(event):
                print_page(
                    tuple(event_lines(event, names)), sys.stdout, arguments.color
                )
            yield event


def _in_place(
    events: Iterator[Event], arguments: argparse.Namespace, names: Mapping[str, str]
) -> Iterator[Event]:
    from rich.live import Live  # noqa: PLC0415 - costs 60 ms

    from skippyctl.page_terminal import (  # noqa: PLC0415 - as above
        rich_page,
        terminal_console,
    )

    progress = Progress(names)
    is_plain = not wants_colours(sys.stderr, arguments.color)
    console = terminal_console(sys.stderr, is_plain=is_plain)
    last: Event | None = None
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for event in events:
            progress.take(event)
            live.update(rich_page(progress.page(), console.width), refresh=True)
            if event.is_final or event.is_dry_run:
                last = event
                break
            yield event
    if last is not None:
        if not sys.stdout.isatty():
            # On the terminal itself the last line says it already.
            print_page(_result(last), sys.stdout, arguments.color)
        yield last
        yield from _in_place(events, arguments, names)


def _result(event: Event) -> Page:
    if event.is_dry_run:
        return (line(event.message),)
    tone = Tone.GOOD if _exit_code(event) is ExitCode.DONE else Tone.BAD
    return (line(event.message, tone=tone),)


def _exit_code(event: Event) -> ExitCode:
    if event.exit_code is not None and event.exit_code in set(ExitCode):
        return ExitCode(event.exit_code)
    return ExitCode.FAILED if event.event == "failed" else ExitCode.DONE


def _say_how_to_resume(wish: WatchEvents, cursor: int, *, is_once: bool) -> None:
    model = "" if wish.model_id is None else f" {wish.model_id}"
    once = " --once" if is_once else ""
    print(
        "no longer watching; what was begun goes on in the daemon: "
        f"skippyctl watch{model} --after {cursor}{once} takes it up here",
        file=sys.stderr,
    )


def begun(deployment: Deployment, arguments: argparse.Namespace) -> ExitCode:
    """Say that it has begun, and how to watch it."""
    hint = f"skippyctl watch {deployment.model_id} --after {deployment.after} --once"
    show(deployment, (line(f"begun; {hint} shows it"),), arguments)
    return ExitCode.DONE
