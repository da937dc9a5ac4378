"""Which work of a node a claim ends."""

from __future__ import annotations

from skippyd.core.coordinator.superseding import fenced_work
from support.claims import KEY, changed, claim, load_of, local_load


def test_older_terms_local_work_and_rivals_of_the_same_term_are_ended_in_order() -> (
    None
):
    rival = load_of(claim(10, coordinator="b"))
    twin = changed(load_of(claim(10)), stage=changed(rival.stage, run_id="run-a-10"))
    older = load_of(claim(9))
    work = [rival, older, local_load(), twin]

    assert fenced_work(claim(10), work) == (local_load(), older, twin, rival)


def test_own_newer_and_foreign_work_is_spared() -> None:
    own = load_of(claim(10))
    newer = load_of(claim(11))
    other_model = changed(load_of(claim(9)), key=changed(KEY, package_ref="other"))

    assert fenced_work(claim(10), [own, newer, other_model]) == ()
