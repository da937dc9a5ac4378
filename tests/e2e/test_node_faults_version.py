"""Nodes of different releases: refused by name on both sides, or told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.daemons import Daemon, until
from support.other_release import Release, ReleasedDaemon
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from collections.abc import Iterator

    Pair = tuple[Daemon, ReleasedDaemon]

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.watchdog(120)]

SEEN_S = 30.0
REFUSED = 6
FEATURES = (
    "stage-control",
    "stage-generation-8",
    "status-list",
    "local-gguf-content-id-v1",
)
NEXT_GENERATION = Release(version="9.0.0", generation=9, features=FEATURES)
LACKS_A_FEATURE = Release(version="0.0.9", generation=8, features=FEATURES[:-1])
OTHER_VERSION = Release(version="0.9.0", generation=8, features=FEATURES)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two nodes of one release that have met; the second one can change its release."""
    folder = tmp_path_factory.mktemp("release")
    models = folder / "models"
    models.mkdir()
    write_random_model(models / "small.gguf", RandomModel(with_tokenizer=True))
    atlas = Daemon("atlas", folder / "atlas", models)
    borea = ReleasedDaemon("borea", folder / "borea", models)
    try:
        for daemon in (atlas, borea):
            daemon.start()
        for daemon in (atlas, borea):
            daemon.until_ready()
        borea.join(atlas)
        until(lambda: atlas.sees().get("borea") == "ok", "they met", within_s=SEEN_S)
        yield atlas, borea
        assert [daemon.stop() for daemon in (atlas, borea)] == [0, 0]
    finally:
        for daemon in (atlas, borea):
            daemon.close()


def test_a_node_of_another_generation_is_refused_and_both_say_which_they_expect(
    pair: Pair,
) -> None:
    atlas, borea = pair
    _change_release(borea, NEXT_GENERATION)
    words = "bad skippy stage generation: expected {}, got {}"
    for daemon, other, own, wants in ((atlas, borea, 8, 9), (borea, atlas, 9, 8)):
        accepted = {words.format(own, wants)}
        accepted.add("it refuses this node: " + words.format(wants, own))
        until(
            lambda daemon=daemon, other=other, accepted=accepted: (  # type: ignore[misc]
                _row(daemon, other)["reason"] in accepted
            ),
            f"{daemon.name} says why",
            within_s=SEEN_S,
        )
        assert _row(daemon, other)["health"] != "ok"
        assert f"reason='node {_node_id(other)}: {words.format(own, wants)}" in (
            daemon.log
        )
    check = _finding(atlas, borea)
    assert check["verdict"] == "failed"
    assert words.format(9, 8) in check["finding"]
    assert check["remedy"] == "install the same version on both"
    refused = atlas.ctl("deploy", "small", "--nodes", "atlas,borea")
    assert refused.returncode == REFUSED, refused.stdout + refused.stderr
    assert f"borea ({_node_id(borea)[:12]}): " in refused.stderr
    assert words.format(9, 8) in refused.stderr


def test_a_node_that_lacks_a_feature_is_refused_and_both_name_the_feature(
    pair: Pair,
) -> None:
    atlas, borea = pair
    _change_release(borea, LACKS_A_FEATURE)
    lacks = f"node {_node_id(borea)} (version 0.0.9) lacks local-gguf-content-id-v1"
    for daemon, other in ((atlas, borea), (borea, atlas)):
        until(
            lambda daemon=daemon, other=other: (  # type: ignore[misc]
                lacks in _row(daemon, other)["reason"]
            ),
            f"{daemon.name} says what is missing",
            within_s=SEEN_S,
        )
        assert _row(daemon, other)["health"] != "ok"
        assert "needs its feature bundle whole" in daemon.log


def test_another_version_of_the_same_generation_works_and_is_pointed_out(
    pair: Pair,
) -> None:
    atlas, borea = pair
    _change_release(borea, OTHER_VERSION)
    for daemon, other in ((atlas, borea), (borea, atlas)):
        until(
            lambda daemon=daemon, other=other: daemon.sees().get(other.name) == "ok",  # type: ignore[misc]
            f"{daemon.name} talks to {other.name}",
            within_s=SEEN_S,
        )
    assert _row(atlas, borea)["version"] == "0.9.0"
    check = _finding(atlas, borea)
    assert check["verdict"] == "warning"
    assert "0.9.0" in check["finding"]


def _change_release(daemon: ReleasedDaemon, release: Release) -> None:
    assert daemon.stop() == 0, daemon.log
    daemon.release = release
    daemon.start()
    daemon.until_ready()


def _row(daemon: Daemon, other: Daemon) -> dict[str, str]:
    return next(
        row
        for row in daemon.ask("nodes")["items"]
        if not row["is_this_node"] and row["address"].endswith(f":{other.control_port}")
    )


def _node_id(daemon: Daemon) -> str:
    return str(daemon.ask("status")["daemon"]["node_id"])


def _finding(daemon: Daemon, other: Daemon) -> dict[str, str]:
    checks = daemon.ask("doctor")["items"]
    return next(row for row in checks if row["check"] == f"node {other.name}")
