"""A whole node in the test's own process, without signals and without a socket."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import attrs

from skippyd.config.daemon import (
    AdminTable,
    ControlTable,
    DaemonConfig,
    ModelsTable,
    NodeTable,
    OpenAiTable,
    StagesTable,
    TimersTable,
)
from skippyd.config.endpoints import Endpoint
from skippyd.daemon.app import running_node
from skippyd.daemon.logs import LogRing


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from skippyd.daemon.view import DaemonView

Table = (
    AdminTable | ControlTable | ModelsTable | OpenAiTable | StagesTable | TimersTable
)


def node_config(folder: Path, **tables: Table) -> DaemonConfig:
    """A configuration whose files lie in a folder and whose ports are free ones."""
    config = DaemonConfig(
        node=NodeTable(name=folder.name, state_dir=str(folder / "state")),
        control=ControlTable(bind=Endpoint("127.0.0.1", 0)),
        admin=AdminTable(socket=str(folder / "admin.sock")),
        timers=TimersTable(status_every_ms=200),
    )
    known = {name: getattr(config, name) for name in attrs.fields_dict(DaemonConfig)}
    return DaemonConfig(**known | tables)


@contextlib.asynccontextmanager
async def a_node(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    **tables: Table,
) -> AsyncIterator[DaemonView]:
    """A running node."""
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 - a test folder
    running = running_node(
        node_config(folder, **tables),
        log_ring=LogRing(),
        environment=environment or {},
    )
    async with running as view:
        yield view
