"""One node, put together: what is started in which order, and stopped in the other.

    run_daemon
      ├── Supervisor.run          children are reaped here, last of all
      ├── Inventory.run           model files and their digests
      ├── NodeStages.run          fences and stages: the rules' events, one after another
      ├── serve_latency_echo      where others measure the way to our stages
      ├── NodeRegistry.run        one link to every trusted node
      ├── serve_control           requests of other nodes
      ├── Rollouts.run            what this node coordinates; takes over from lost ones
      ├── serve_door              the OpenAI address that follows the route, if wanted
      ├── serve_admin             operators; the daemon is ready when it answers
      ├── Notifier.run            status and signs of life for the service manager
      └── watch_signals           TERM and INT end, HUP reads the configuration again

Stopping: no new stages, own runs withdrawn and drained, stages ended and reaped, then
the rest. A part that fails ends the daemon: the service manager starts it again, and
the fence on disk is what it goes on with.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from skippyd.admin.access import Access
from skippyd.admin.server import serve_admin
from skippyd.coordination.fence_store import FenceStore
from skippyd.core.coordinator.instant import MS_PER_S
from skippyd.daemon.config_checks import checked_config
from skippyd.daemon.fail_points import FailPoints
from skippyd.daemon.listeners import bound_listeners
from skippyd.daemon.node_health import check_node
from skippyd.daemon.notify import Notifier
from skippyd.daemon.safe_mode import SafeModeSwitch
from skippyd.daemon.signals import watch_signals
from skippyd.daemon.starting import NodeStart, read_wall_ms
from skippyd.daemon.state_directory import open_state_directory
from skippyd.daemon.view import DaemonView
from skippyd.frontend.door import serve_door


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from skippyd.config.daemon import DaemonConfig
    from skippyd.daemon.logs import LogRing
    from skippyd.daemon.node import Node
    from skippyd.frontend.door_keys import DoorKeys

logger = logging.getLogger("skippyd.daemon")

STAGE_GRACE_SECONDS = 10.0
STOP_EXTRA_SECONDS = 5.0
"""For sockets, files and the last child, after stages have had their grace."""


async def run_daemon(
    config: DaemonConfig,
    *,
    log_ring: LogRing,
    environment: Mapping[str, str],
    reload: Callable[[], DaemonConfig],
) -> bool:
    """Be a node until told to stop.

    Args:
        config: What it is to be.
        log_ring: The newest lines of the log.
        environment: Variables of this process.
        reload: Reads the configuration again.

    Returns:
        Whether the service manager is to start it again.

    Raises:
        ConfigError: The configuration cannot be served; the message says why.
        StateDirectoryBusyError: Another daemon uses the state directory.
        FenceStoreError: The fence cannot be relied on.
    """
    notifier = Notifier.from_environment(environment)
    node_running = running_node(config, log_ring=log_ring, environment=environment)
    async with node_running as view, trio.open_nursery() as nursery:
        admin = config.admin
        access = Access.of_this_machine(admin.read_group, admin.write_group)
        serve = functools.partial(serve_admin, Path(admin.socket), view, access=access)
        await nursery.start(serve)
        await nursery.start(watch_signals, view.node, notifier, reload)
        await _live(nursery, view, notifier)
        nursery.cancel_scope.cancel()
    logger.info("event=stopped")
    return view.node.is_restarting


@contextlib.asynccontextmanager
async def running_node(
    config: DaemonConfig,
    *,
    log_ring: LogRing,
    environment: Mapping[str, str],
) -> AsyncIterator[DaemonView]:
    """Start a node without its operators' socket; at the end everything is ended.

    Raises:
        ConfigError: See `run_daemon`, also for the others.
    """
    checked = checked_config(config, environment)
    for warning in checked.warnings:
        logger.warning("%s", warning)
    reach = FailPoints.from_environment(environment).reach
    with (
        open_state_directory(Path(config.node.state_dir)) as state,
        bound_listeners(config) as listeners,
        # Before the identity: then one without a store means that it was lost.
        FenceStore.open(
            state.path, is_known_identity=state.has_identity, reach=reach
        ) as store,
    ):
        async with trio.open_nursery() as nursery:
            start = NodeStart(
                config=config,
                state=state,
                store=store,
                nursery=nursery,
                listeners=listeners,
                safe_mode=SafeModeSwitch.at_start(state.safe_mode, environment),
                log_ring=log_ring,
                reach=reach,
            )
            node = await start.node()
            if listeners.openai is not None:
                await _open_door(nursery, node, listeners.openai, checked.keys)
            yield DaemonView(node, nursery)
            nursery.cancel_scope.cancel()


async def _open_door(
    nursery: trio.Nursery,
    node: Node,
    listener: trio.SocketListener,
    keys: DoorKeys | None,
) -> None:
    door = functools.partial(
        serve_door,
        [listener],
        node.routes,
        created_unix_s=read_wall_ms() // MS_PER_S,
        keys=keys,
        record=node.telemetry.record,
    )
    await nursery.start(door)
    logger.info("event=door address=%s", node.config.openai.bind)


async def _live(nursery: trio.Nursery, view: DaemonView, notifier: Notifier) -> None:
    """Tell that the node is ready, and how it goes; end it when that is wanted."""
    node = view.node
    check = functools.partial(check_node, node.stages)
    tell = functools.partial(notifier.run, status=view.summary, check=check)
    nursery.start_soon(tell)
    logger.info(
        "event=ready node=%s name=%s control=%s safe_mode=%s",
        node.identity.node_id,
        node.name,
        node.address,
        "on" if node.safe_mode.is_effective else "off",
    )
    notifier.ready(view.summary())
    await node.stopping.wait()
    drain_s = node.config.timers.drain_ms / MS_PER_S
    bound_s = drain_s + STAGE_GRACE_SECONDS + STOP_EXTRA_SECONDS
    notifier.stopping("stopping: answers that run may end", within_s=bound_s)
    await _stop(node, drain_s)


async def _stop(node: Node, drain_s: float) -> None:
    """End what others rely on, in order; bounded whatever clients do."""
    logger.info("event=stopping drain_s=%g", drain_s)
    node.stages.begin_drain()
    with trio.move_on_after(drain_s) as patience:
        await node.rollouts.stop()
    if patience.cancelled_caught:
        logger.warning("event=drain_cut_short after_s=%g", drain_s)
    with trio.move_on_after(STAGE_GRACE_SECONDS + STOP_EXTRA_SECONDS / 2):
        await node.stages.stop_all(STAGE_GRACE_SECONDS)
