"""Every order of events of two coordinators and three stages, within small scopes."""

from __future__ import annotations

import pytest

from simulation.exhaustive import Scope, Search


SMALL = Scope(duplicates=0, crashes=0, stopping=(), has_leases_end=False)

SCOPES = {
    "crash, two duplicates, leases end": Scope(stopping=()),
    "crash, duplicate, the older coordinator stops": Scope(
        duplicates=1, has_leases_end=False
    ),
    "crash, two duplicates, one and the same term": Scope(terms=(7, 7)),
}


def test_a_quiet_small_world_has_no_bad_state() -> None:
    search = Search(SMALL)
    search.run()
    assert search.state_count > 1_000
    assert search.local_count > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", SCOPES)
def test_no_order_of_events_is_bad(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    search = Search(SCOPES[name])
    search.run()
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{name}: {search.state_count} states, {search.step_count} steps, "
            f"{search.local_count} states of one stage"
        )
    assert search.state_count > 10_000
