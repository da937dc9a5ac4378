"""What a configuration is refused for on this machine, before any part starts.

`skippyd run` looks at its start, `skippyd config check` without one, and a reload before
anything is taken over: all three find the same. What the file says by itself was
checked when it was read (`skippyd.config.daemon`). Nothing is made, kept or locked here;
addresses are bound for a moment, on free ports.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from skippyd.admin.access import group_id
from skippyd.config.daemon import DEFAULT_ADMIN_SOCKET, UNSPECIFIED, AdminTable
from skippyd.daemon.fail_points import FailPoints
from skippyd.daemon.listeners import check_address, wanted_addresses
from skippyd.daemon.node import configured_peers
from skippyd.daemon.safe_mode import is_asked_for
from skippyd.daemon.state_directory import check_state_directory
from skippyd.daemon.supervisor import check_stage_address
from skippyd.errors import ConfigError
from skippyd.frontend.door_keys import DoorKeys, check_door_bind
from skippyd.net.unix import check_socket_path


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyd.config.daemon import DaemonConfig, ModelsTable, OpenAiTable

DEFAULT_ADMIN = AdminTable()
GROUP_KEYS = ("read_group", "write_group")


@attrs.frozen(kw_only=True)
class CheckedConfig:
    """What came of the look.

    Args:
        keys: The keys of the front door, if it has any.
        warnings: What a daemon starts with all the same, one line each.
    """

    keys: DoorKeys | None
    warnings: tuple[str, ...]


def checked_config(
    config: DaemonConfig, environment: Mapping[str, str]
) -> CheckedConfig:
    """Look at everything that can be looked at without starting; may block a moment.

    Args:
        config: What the files say.
        environment: Variables of the daemon's process.

    Raises:
        ConfigError: It cannot be served; one line for each reason.
    """
    refused = _Refusals()
    keys: DoorKeys | None = None
    with refused.noted():
        check_state_directory(Path(config.node.state_dir))
    for place, endpoint in wanted_addresses(config):
        with refused.noted():
            check_address(endpoint, place)
    with refused.noted():
        keys = _door_keys(config.openai)
    with refused.noted():
        _check_socket(Path(config.admin.socket))
    for key in GROUP_KEYS:
        with refused.noted():
            _check_group(config.admin, key)
    for peer in config.peers:
        with refused.noted():
            configured_peers([peer])
    with refused.noted():
        FailPoints.from_environment(environment)
    with refused.noted():
        is_asked_for(environment)
    refused.tell()
    return CheckedConfig(keys=keys, warnings=tuple(_warnings(config)))


@attrs.define
class _Refusals:
    """Every reason is told at once: each start that fails costs a person one more."""

    _texts: list[str] = attrs.Factory(list)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            self._texts.append(str(error))

    def tell(self) -> None:
        if self._texts:
            raise ConfigError("\n".join(self._texts))


def _door_keys(openai: OpenAiTable) -> DoorKeys | None:
    keys = (
        None
        if openai.api_keys_file is None
        else DoorKeys.load(Path(openai.api_keys_file))
    )
    if openai.bind is not None:
        check_door_bind(openai.bind.host, keys)
    return keys


def _check_socket(path: Path) -> None:
    # The folder of the default is made by the service manager at each start.
    is_made_by_service = str(path) == DEFAULT_ADMIN_SOCKET
    check_socket_path(path, is_folder_needed=not is_made_by_service)


def _check_group(admin: AdminTable, key: str) -> None:
    name = getattr(admin, key)
    if not _is_default(admin, key) and group_id(name) is None:
        raise ConfigError(
            f"[admin] {key} {name!r}: this machine has no such group; make it "
            "(groupadd), or name one that is there"
        )


def _warnings(config: DaemonConfig) -> Iterator[str]:
    stages = config.stages
    plaintext = check_stage_address(stages.host, allow_plaintext=stages.allow_plaintext)
    if plaintext is not None:
        yield plaintext
    control = config.control
    if control.bind.host in UNSPECIFIED and control.advertise is None:
        yield (
            f"[control] bind {control.bind} is no address to reach this node at: it can "
            "join others and invite none; set [control] advertise = HOST:PORT"
        )
    folder = Path(config.admin.socket).parent
    if not folder.exists():
        yield (
            f"[admin] socket: {folder} does not exist; the service makes it, before a "
            "start by hand make it yourself"
        )
    yield from _group_warnings(config.admin)
    yield from _model_warnings(config.models)


def _group_warnings(admin: AdminTable) -> Iterator[str]:
    missing = [
        key
        for key in GROUP_KEYS
        if _is_default(admin, key) and group_id(getattr(admin, key)) is None
    ]
    if missing:
        named = " and ".join(f"{getattr(admin, key)} ({key})" for key in missing)
        what = "use" if GROUP_KEYS[0] in missing else "change anything with"
        yield (
            f"[admin] this machine has no group {named}: only root and the daemon's "
            f"own user can {what} skippyctl; groupadd makes a group"
        )


def _is_default(admin: AdminTable, key: str) -> bool:
    """Whether nobody asked for this group by name: then it is no mistake."""
    return bool(getattr(admin, key) == getattr(DEFAULT_ADMIN, key))


def _model_warnings(models: ModelsTable) -> Iterator[str]:
    for text in models.paths:
        path = Path(text)
        wanted = os.R_OK | (os.X_OK if path.is_dir() else 0)
        if not os.path.lexists(path):
            yield f"[models] paths: {path} does not exist: no model is found there"
        elif not os.access(path, wanted):
            yield (
                f"[models] paths: {path} cannot be read by user id {os.geteuid()}: no "
                "model is found there"
            )
