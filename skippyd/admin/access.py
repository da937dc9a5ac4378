"""Who may look and who may change, decided by what the kernel says about the peer."""

from __future__ import annotations

import grp
import os
from enum import IntEnum
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from skippyd.net.unix import PeerCredentials

READERS = "skippy"
WRITERS = "skippy-admin"
ROOT = 0


class Permission(IntEnum):
    """What a peer may do; a greater one includes the smaller."""

    NONE = 0
    READ = 1
    WRITE = 2


@attrs.frozen(kw_only=True)
class Access:
    """The rule of one daemon.

    Args:
        owner_uid: The user that the daemon runs as; it may do everything, as root may.
        readers_gid: Group that may look; None when this machine has none.
        writers_gid: Group that may change; None when this machine has none.
    """

    owner_uid: int
    readers_gid: int | None
    writers_gid: int | None

    @classmethod
    def of_this_machine(cls, readers: str = READERS, writers: str = WRITERS) -> Access:
        """The rule of a daemon that runs as the current user."""
        return cls(
            owner_uid=os.geteuid(),
            readers_gid=group_id(readers),
            writers_gid=group_id(writers),
        )

    def permission(self, peer: PeerCredentials) -> Permission:
        """What a peer may do."""
        groups = peer.groups | {peer.gid}
        if peer.uid in {ROOT, self.owner_uid} or self.writers_gid in groups:
            return Permission.WRITE
        return Permission.READ if self.readers_gid in groups else Permission.NONE


def group_id(name: str) -> int | None:
    """The group of this name, None when this machine has none."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
