"""`skippyd config`: whether the daemon's configuration is valid, and what it comes to."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from skippyd.cli.run import add_config_flags, loaded_config
from skippyd.errors import ExitCode


if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from skippyd.config.layers import LoadedConfig

HELP = "check the daemon's configuration, or show every value and where it comes from"
SCHEMA = "skippy.config/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check", help="say whether a daemon could start with it on this machine"
    )
    add_config_flags(check)
    show = actions.add_parser("show", help="print every value that is in force")
    add_config_flags(show)
    show.add_argument(
        "--origin", action="store_true", help="say where each value comes from"
    )
    show.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Check or show.

    Raises:
        ConfigError: It is not valid, or no daemon could start with it on this machine;
            with every complaint.
    """
    loaded = loaded_config(arguments)
    if arguments.action == "check":
        _check(loaded, arguments.config)
    elif arguments.json:
        sys.stdout.write(json.dumps(document(loaded), sort_keys=True) + "\n")
    else:
        for line in lines(loaded, has_origin=arguments.origin):
            sys.stdout.write(line + "\n")
    return ExitCode.DONE


def _check(loaded: LoadedConfig, path: Path) -> None:
    import os  # noqa: PLC0415 - `--help` is quick

    from skippyd.daemon.config_checks import checked_config  # noqa: PLC0415 - as above

    checked = checked_config(loaded.config, os.environ)
    missing = () if path.exists() else ("there is no such file: defaults are checked",)
    for warning in (*missing, *checked.warnings):
        sys.stderr.write(f"{path}: warning: {warning}\n")
    sys.stdout.write(f"{path}: valid\n")


def document(loaded: LoadedConfig) -> dict[str, object]:
    """Every value with its origin, by its path."""
    values = {
        path: {"value": value, "origin": loaded.origin_of(path)}
        for path, value in values_by_path(loaded)
    }
    return {"schema": SCHEMA, "values": values}


def lines(loaded: LoadedConfig, *, has_origin: bool) -> Iterator[str]:
    """Every value as a line of TOML, its origin as a comment."""
    table = None
    for path, value in values_by_path(loaded):
        head, _, key = path.partition(".")
        if not key:
            head, key = "", path
        if head != table:
            if head:
                yield f"[{head}]"
            table = head
        text = f"{key} = {_toml(value)}" if value is not None else f"# {key} is not set"
        yield f"{text}  # {loaded.origin_of(path)}" if has_origin else text


def values_by_path(loaded: LoadedConfig) -> Iterator[tuple[str, object]]:
    """Paths and plain values, tables in the order of the class, lists of tables first."""
    from skippyd.config.convert import unstructure  # noqa: PLC0415 - `--help` is quick

    tables = unstructure(loaded.config)
    for name, table in tables.items():
        if not isinstance(table, dict):
            yield name, table
    for name, table in tables.items():
        if isinstance(table, dict):
            for key, value in table.items():
                yield f"{name}.{key}", value


def _toml(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{key} = {_toml(item)}" for key, item in value.items())
        return f"{{ {pairs} }}"
    return json.dumps(value, ensure_ascii=False)
