from __future__ import annotations

import attrs
import pytest

from skippyctl.list_views import (
    claims_page,
    doctor_page,
    fence_page,
    lanes_page,
    leases_page,
    log_page,
    nodes_page,
    safe_mode_page,
    sessions_page,
)
from skippyctl.page import Page, plain_text
from skippyd.admin import schema, wishes
from support.admin_documents import NOW_UNIX_MS, node_rows
from support.admin_view import FakeNodeView


def lines(page: Page) -> list[str]:
    return plain_text(page).split("\n")


async def test_claims() -> None:
    claims = await FakeNodeView().claims()
    head, row = lines(claims_page(claims))
    assert head.split() == [
        "model", "term", "coordinator", "run", "lease", "until", "artifact",
    ]  # fmt: skip
    assert row.split() == [
        "smollm2",
        "1764460800123456789",
        "a1a1a1a1a1a1",
        "mesh-split-1764460800123456789",
        "held",
        "2025-11-30T05:12:00Z",
        "local-gguf://sha256/" + "d4" * 32,
    ]
    released = attrs.evolve(claims.items[0], is_lease_held=False)
    assert "not held" in lines(claims_page(schema.Claims(items=(released,))))[1]


async def test_leases() -> None:
    leases = await FakeNodeView().leases()
    assert lines(leases_page(leases)) == [
        "model          left  state  until                 coordinator                  term  run",
        "smollm2  3 h 12 min  held   2025-11-30T05:12:00Z  a1a1a1a1a1a1  1764460800123456789  mesh-split-1764460800123456789",
    ]
    ended = attrs.evolve(leases.items[0], left_ms=0, state="expired")
    assert (
        "smollm2     -  expired "
        in lines(leases_page(schema.Leases(items=(ended,))))[1]
    )


async def test_lanes_and_sessions() -> None:
    view = FakeNodeView()
    assert lines(lanes_page(await view.lanes())) == [
        "stage    lane  state   for  positions  request               session",
        "stage-0     0  decode  2 s      1,234       42  18446744073709551615",
        "stage-0     1  idle    2 s          0        -                     -",
    ]
    assert lines(sessions_page(await view.sessions())) == [
        "             session  request  stage    lane  state   positions        age   idle",
        "18446744073709551615       42  stage-0     0  decode      1,234  1 min 1 s  0.0 s",
    ]


async def test_a_lane_that_is_overdue_and_rows_that_are_not_told_are_said() -> None:
    row = (await FakeNodeView().lanes()).items[0]
    late = attrs.evolve(row, is_overdue=True, working_ms=130_000)
    text = lines(lanes_page(schema.Lanes(items=(late,), left_off=1_000)))
    assert "decode, overdue" in text[1]
    assert text[2] == "(1,000 more, not told by their processes)"
    assert text[3].startswith("stage-0, lane 0: at one message for 2 min 10 s")


async def test_empty_lists_say_so() -> None:
    view = FakeNodeView(has_claims=False)
    assert lines(claims_page(await view.claims())) == ["no claim was accepted here yet"]
    assert "no lease" in plain_text(leases_page(await view.leases()))
    assert "no stage runs" in plain_text(lanes_page(await view.lanes()))
    assert "no session" in plain_text(sessions_page(await view.sessions()))
    fence = plain_text(fence_page(await view.fence()))
    assert "no record" in fence
    assert "votes     yes" in fence


def test_nodes_show_the_way_that_is_really_used() -> None:
    assert lines(nodes_page(schema.Nodes(items=node_rows()), NOW_UNIX_MS)) == [
        "node     id            address        health      rtt  via              memory  version  heard",
        "alpha *  a1a1a1a1a1a1  10.0.0.1:9401  ok            -  -              14.0 GiB  0.1.0    -",
        "beta     b2b2b2b2b2b2  10.0.0.2:9401  ok      0.23 ms  eth0 10.0.0.1  14.0 GiB  0.1.0    1 s ago",
        "gamma    c3c3c3c3c3c3  10.0.0.3:9401  silent        -  -                     -  -        never",
        "gamma: five status messages missed",
    ]


def test_a_node_alone_is_told_how_others_join() -> None:
    alone = attrs.evolve(node_rows()[0], safe_mode=True)
    shown = lines(nodes_page(schema.Nodes(items=(alone,)), NOW_UNIX_MS))
    assert shown[2:] == [
        "alpha: in safe mode",
        "no other node is known; skippyctl invite lets one join",
    ]


def test_a_node_not_heard_for_days_is_shown_with_its_date() -> None:
    old = attrs.evolve(node_rows()[1], last_heard_unix_ms=NOW_UNIX_MS - 90_000_000)
    shown = lines(nodes_page(schema.Nodes(items=(old,)), NOW_UNIX_MS))
    assert shown[1].endswith("  2025-11-29T01:00:00Z")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
async def test_lists_fit_and_keep_what_says_most(width: int) -> None:
    view = FakeNodeView()
    far = attrs.evolve(
        node_rows()[1],
        address="192.168.178.201:9401",
        last_heard_unix_ms=NOW_UNIX_MS - 7_400_000,
        local_address="192.168.178.200",
        interface="enp0s31f6",
    )
    pages = {
        "node": nodes_page(schema.Nodes(items=(far, *node_rows())), NOW_UNIX_MS),
        "model": claims_page(await view.claims()),
    }
    pages |= {"left": leases_page(await view.leases())}
    pages |= {"term": fence_page(await view.fence())}
    for column, page in pages.items():
        shown = plain_text(page, width).split("\n")
        # Sentences are wrapped by a terminal, and are no cells of a table.
        rows = [text for text in shown if ": " not in text and "://" not in text]
        assert max(map(len, rows)) <= width
        assert any(column in row.split() for row in rows)
    if width >= 60:
        assert "192.168.178.201:9401" in plain_text(pages["node"], width)


async def test_the_fence_and_its_quarantine() -> None:
    shown = lines(fence_page(await FakeNodeView(is_quarantined=True).fence()))
    assert shown[:6] == [
        "store     /var/lib/skippyd/fence.sqlite3",
        "instance  0123456789abcdef",
        "votes     no",
        (
            "quarantined: the store is older than this node's word; it votes by "
            "itself in 3 h 53 min"
        ),
        "  skippyctl fence init vouches that nothing was forgotten and ends it now",
        "",
    ]
    assert shown[-1].split()[:5] == [
        "smollm2",
        "1764460800123456789",
        "a1a1a1a1a1a1",
        "mesh-split-1764460800123456789",
        "1",
    ]


def test_safe_mode() -> None:
    off = schema.SafeModeReport(
        safe_mode=schema.SafeMode(requested=False, effective=False)
    )
    assert lines(safe_mode_page(off)) == ["safe mode is off"]
    on = schema.SafeModeReport(
        safe_mode=schema.SafeMode(
            requested=True, effective=False, reason="odd", since="T"
        ),
        origin="file",
        by_uid=1000,
    )
    assert lines(safe_mode_page(on)) == [
        "SAFE MODE is requested since T, takes effect at restart: odd",
        "requested  yes",
        "effective  no",
        "by         file",
        "user id    1000",
    ]


def test_checks_come_with_what_to_do() -> None:
    checks = (
        schema.CheckRow(check="disk", verdict="ok", finding="9 GiB free"),
        schema.CheckRow(
            check="identity key",
            verdict="failed",
            finding="mode 0644",
            remedy="chmod\nit",
        ),
        schema.CheckRow(check="clock", verdict="warning", finding="?", remedy="set it"),
    )
    assert lines(doctor_page(checks)) == [
        "ok       disk          9 GiB free",
        "failed   identity key  mode 0644",
        "         chmod",
        "         it",
        "warning  clock         ?",
        "         set it",
        "",
        "3 checks: 1 failed, 1 warning",
    ]


@pytest.mark.parametrize("missed", [0, 7])
async def test_log_lines(missed: int) -> None:
    logs = await FakeNodeView().logs(wishes.After())
    shown = lines(log_page(attrs.evolve(logs, missed=missed)))
    before = ["(7 lines no longer kept)"] if missed else []
    assert shown == [
        *before,
        "2025-11-30T02:00:00Z info    daemon  event=ready",
        "2025-11-30T02:00:01Z error   stage-2  event=stage_lost reason='killed by signal 9'",
    ]
