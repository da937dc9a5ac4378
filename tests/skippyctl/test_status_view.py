from __future__ import annotations

import attrs
import pytest

from skippyctl.page import plain_text
from skippyctl.status_view import (
    bar,
    node_label,
    safe_mode_banner,
    status_exit_code,
    status_page,
)
from skippyd.admin.schema import SafeMode, Status
from skippyd.errors import ExitCode
from support.admin_documents import NOW_UNIX_MS, degraded, idle, serving, stage


def text(status: Status) -> list[str]:
    return plain_text(status_page(status, NOW_UNIX_MS)).split("\n")


def test_a_chain_that_serves() -> None:
    assert text(serving()) == [
        "alpha (a1a1a1a1a1a1)  serving  skippyd 0.1.0, up 2 h 14 min",
        "",
        "model        smollm2",
        "served at    http://10.0.0.1:9337/v1",
        "run          mesh-split-1764460800123456789  term 1764460800123456789",
        "coordinator  alpha (a1a1a1a1a1a1)",
        "lease        3 h 12 min left, until 2025-11-30T05:12:00Z",
        "",
        "stage    node   layers  state  for         memory   pid  address",
        "stage-0  alpha  0..10   READY  2 h 1 min  117 MiB  4000  10.0.0.1:19000",
        "stage-1  beta   10..20  READY  2 h 1 min  117 MiB  4001  10.0.0.2:19000",
        "stage-2  gamma  20..30  READY  2 h 1 min  117 MiB  4002  10.0.0.3:19000",
    ]


def test_trouble_comes_first_and_says_why() -> None:
    assert text(degraded()) == [
        "SAFE MODE is on since 2025-11-30T01:00:00Z: bad answers since the upgrade",
        "alpha (a1a1a1a1a1a1)  degraded  skippyd 0.1.0, up 2 h 14 min",
        "  stage-2 on gamma is lost",
        "",
        "model        smollm2",
        "served at    not published",
        "run          mesh-split-1764460800123456789  term 1764460800123456789",
        "coordinator  alpha (a1a1a1a1a1a1)",
        "lease        expired at 2025-11-30T01:59:59Z: no new loads",
        "",
        "stage    node   layers  state                    for         memory   pid  address",
        "stage-0  alpha  0..10   READY                    2 h 1 min  117 MiB  4000  10.0.0.1:19000",
        "stage-1  beta   10..20  STARTING ███······· 34%  4 s        117 MiB  4001  10.0.0.2:19000",
        "stage-2  gamma  20..30  FAILED                   0.9 s            -     -  10.0.0.3:19000",
        "stage-2: killed by signal 9",
        "    llama_model_load: loading",
        r"    last words \x1b[2J",
    ]


def test_a_ready_stage_without_a_whole_chain_is_not_shown_as_well() -> None:
    status = serving()
    lost = "degraded: stage-1 at 10.0.0.2:19000 is not there"
    stages = (stage(0, health=lost), stage(1), stage(2, health="ok"))
    shown = text(attrs.evolve(status, stages=stages))
    states = [line.split()[3:5] for line in shown[-4:-1]]
    assert states == [["READY,", "degraded"], ["READY", "2"], ["READY", "2"]]
    assert shown[-1] == f"stage-0: {lost}"


def test_what_is_not_known_is_not_made_up() -> None:
    status = serving()
    assert status.run is not None
    gone = stage(2, state="unknown", layer_start=0, layer_end=0, reason="silent")
    run = attrs.evolve(status.run, lease_until_unix_ms=0)
    shown = text(attrs.evolve(status, run=run, stages=(gone,)))
    assert "lease        not known on this node" in shown
    assert shown[-2].split()[:4] == ["stage-2", "gamma", "-", "unknown"]
    assert shown[-1] == "stage-2: silent"


def test_a_node_with_nothing_to_do() -> None:
    assert text(idle()) == [
        "alpha (a1a1a1a1a1a1)  idle  skippyd 0.1.0, up 0.4 s",
        "",
        "no run: nothing is deployed; skippyctl deploy MODEL begins one",
    ]


def test_a_stage_that_an_operator_loaded_is_no_run() -> None:
    shown = text(attrs.evolve(idle(), stages=(stage(0, stage_id="local-smollm2"),)))
    assert shown[2] == "no run: an operator loaded what is here (skippyctl load-local)"
    assert shown[-1].startswith("local-smollm2  alpha")


@pytest.mark.parametrize(
    ("requested", "effective", "banner"),
    [
        (False, False, None),
        (True, True, "SAFE MODE is on since T: why"),
        (True, False, "SAFE MODE is requested since T, takes effect at restart: why"),
        (
            False,
            True,
            "SAFE MODE is on until the next restart; it is no longer requested",
        ),
    ],
)
def test_the_banner_tells_requested_and_effective_apart(
    requested: bool, effective: bool, banner: str | None
) -> None:
    mode = SafeMode(requested=requested, effective=effective, reason="why", since="T")
    assert safe_mode_banner(mode) == banner
    first = text(attrs.evolve(serving(), safe_mode=mode))[0]
    assert (first == banner) is (banner is not None)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("serving", ExitCode.DONE),
        ("idle", ExitCode.DONE),
        ("starting", ExitCode.DEGRADED),
        ("loading", ExitCode.DEGRADED),
        ("degraded", ExitCode.DEGRADED),
        ("draining", ExitCode.DEGRADED),
        ("stopping", ExitCode.DEGRADED),
    ],
)
def test_the_exit_code_is_3_unless_it_serves_or_has_nothing_to_serve(
    state: str, code: ExitCode
) -> None:
    daemon = attrs.evolve(serving().daemon, state=state)
    assert status_exit_code(attrs.evolve(serving(), daemon=daemon)) is code


@pytest.mark.parametrize(("requested", "effective"), [(True, False), (False, True)])
def test_safe_mode_is_exit_3(requested: bool, effective: bool) -> None:
    mode = SafeMode(requested=requested, effective=effective)
    status = attrs.evolve(serving(), safe_mode=mode)
    assert status_exit_code(status) is ExitCode.DEGRADED


def test_names_and_bars() -> None:
    assert node_label("", "a1" * 32) == "a1a1a1a1a1a1"
    assert (bar(0, 10), bar(99, 100), bar(10, 10)) == (
        "··········",
        "█████████·",
        "██████████",
    )
