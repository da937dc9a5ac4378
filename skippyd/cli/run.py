"""`skippyd run`: the daemon of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from skippyd.config.daemon import DEFAULT_CONFIG_PATH


if TYPE_CHECKING:
    import argparse

    from skippyd.config.layers import LoadedConfig

HELP = "be a node: hold its fence, run its stages, coordinate what is deployed here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_config_flags(parser)


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the file, and `--set`, which wins over files and the environment."""
    parser.add_argument(
        "--config",
        type=Path,
        default=Path(DEFAULT_CONFIG_PATH),
        metavar="PATH",
        help=f"default {DEFAULT_CONFIG_PATH}, with PATH.d/*.toml after it",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="TABLE.KEY=VALUE",
        dest="settings",
        help="one value of the configuration; may be repeated",
    )


def loaded_config(arguments: argparse.Namespace) -> LoadedConfig:
    """Read the configuration that the flags name.

    Raises:
        ConfigError: With every complaint.
    """
    import os  # noqa: PLC0415 - `--help` is quick

    from skippyd.config.layers import (  # noqa: PLC0415 - as above
        layer_of_setting,
        load_daemon_config,
    )

    return load_daemon_config(
        arguments.config,
        environment=os.environ,
        flags=[layer_of_setting(text, "--set") for text in arguments.settings],
        is_required=arguments.config != Path(DEFAULT_CONFIG_PATH),
    )


def run(arguments: argparse.Namespace) -> int:
    """Be a node until told to stop."""
    import faulthandler  # noqa: PLC0415 - `--help` is quick
    import functools  # noqa: PLC0415 - as above
    import os  # noqa: PLC0415 - as above
    import signal  # noqa: PLC0415 - as above

    import trio  # noqa: PLC0415 - as above

    from skippyd.daemon.app import run_daemon  # noqa: PLC0415 - as above
    from skippyd.daemon.logs import start_logging  # noqa: PLC0415 - as above
    from skippyd.errors import ExitCode, SkippyError  # noqa: PLC0415 - as above

    config = loaded_config(arguments).config
    ring = start_logging(config.node.log_level, os.environ)
    # SIGUSR1 prints every thread's stack: what a person needs when a daemon hangs.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    serve = functools.partial(
        run_daemon,
        config,
        log_ring=ring,
        environment=os.environ,
        reload=lambda: loaded_config(arguments).config,
    )
    try:
        is_restarting = trio.run(serve)
    except BaseExceptionGroup as group:
        error = _first_error(group)
        if isinstance(error, SkippyError | KeyboardInterrupt):
            raise error from None
        raise
    # The service restarts a daemon that says "try again"; it did not fail.
    return ExitCode.TRY_AGAIN if is_restarting else ExitCode.DONE


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error of a group is what a person needs; ours before what it caused."""
    from skippyd.errors import SkippyError  # noqa: PLC0415 - `--help` is quick

    ours = group.subgroup(SkippyError)
    error = (ours or group).exceptions[0]
    return _first_error(error) if isinstance(error, BaseExceptionGroup) else error
