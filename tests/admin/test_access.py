from __future__ import annotations

import os

import pytest

from skippyd.admin.access import Access, Permission, group_id
from skippyd.net.unix import PeerCredentials


RULE = Access(owner_uid=990, readers_gid=700, writers_gid=701)


def peer(uid: int, gid: int = 100, *groups: int) -> PeerCredentials:
    return PeerCredentials(pid=1, uid=uid, gid=gid, groups=frozenset(groups))


@pytest.mark.parametrize(
    ("who", "may"),
    [
        (peer(0), Permission.WRITE),
        (peer(990), Permission.WRITE),
        (peer(1000, 100, 701), Permission.WRITE),
        (peer(1000, 701), Permission.WRITE),
        (peer(1000, 100, 700, 701), Permission.WRITE),
        (peer(1000, 100, 700), Permission.READ),
        (peer(1000, 700), Permission.READ),
        (peer(1000), Permission.NONE),
        (peer(65_534, 65_534), Permission.NONE),
    ],
)
def test_root_owner_and_groups_decide(who: PeerCredentials, may: Permission) -> None:
    assert RULE.permission(who) is may


def test_without_the_groups_only_root_and_the_owner_may_do_anything() -> None:
    rule = Access(owner_uid=990, readers_gid=None, writers_gid=None)
    assert rule.permission(peer(1000, 100, 700, 701)) is Permission.NONE
    assert rule.permission(peer(990)) is Permission.WRITE


def test_a_group_that_does_not_exist_is_none() -> None:
    assert group_id("no-such-group-here") is None
    rule = Access.of_this_machine("no-such-group-here", "nor-this-one")
    assert rule == Access(owner_uid=os.geteuid(), readers_gid=None, writers_gid=None)
