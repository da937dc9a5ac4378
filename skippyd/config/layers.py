"""Joining the daemon's configuration from flags, environment and files.

Each layer is a plain document; the joined one is structured once, so that every
complaint carries its path, and the origin of each value is kept for people who ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from skippyd.config.complaints import Complaint, InvalidConfigError
from skippyd.config.convert import Edge, structure
from skippyd.config.daemon import DAEMON_SCHEMA, DaemonConfig
from skippyd.config.documents import parse_toml, read_document
from skippyd.config.stage import schema_complaints
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

DEFAULT_ORIGIN = "default"
PREFIX = "SKIPPY_"
LIST_TABLES = frozenset({"peers"})
NOT_OURS = frozenset(
    {
        "SKIPPY_ITERATION_SCHEDULER_SAFE_MODE",
        "SKIPPY_STAGE_CLIENT_READY_HELLO",
        "SKIPPY_BINARY_WARM_PRECONNECT",
        "SKIPPY_CAPTURE",
        "SKIPPY_TEST_FAIL_POINT",
        "SKIPPY_HYPOTHESIS_PROFILE",
        "SKIPPY_REWRITE_STORIES",
        "SKIPPY_SOAK",
    }
)
"""Variables of other parts; they are no keys of the configuration."""


@attrs.frozen(kw_only=True)
class Layer:
    """One source of values.

    Args:
        origin: How a person finds it: a path, a variable's or a flag's name.
        document: Tables of keys.
    """

    origin: str
    document: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class LoadedConfig:
    """The configuration and where each of its values comes from.

    Args:
        config: The value.
        origins: `table.key` to origin; what is missing has its default.
    """

    config: DaemonConfig
    origins: Mapping[str, str]

    def origin_of(self, path: str) -> str:
        """Where a value comes from."""
        return self.origins.get(path, DEFAULT_ORIGIN)


def load_daemon_config(
    path: Path,
    *,
    environment: Mapping[str, str],
    flags: Iterable[Layer] = (),
    is_required: bool = True,
) -> LoadedConfig:
    """Read the file, its folder of additions, the environment and flags.

    Args:
        path: The file; `PATH.d/*.toml` beside it are read after it, sorted.
        environment: Where `SKIPPY_TABLE_KEY` variables are looked for.
        flags: Layers of the command line; the last one wins.
        is_required: Whether a missing file is an error.

    Raises:
        ConfigError: With every complaint, its path and its file.
    """
    layers = [
        *_file_layers(path, is_required=is_required),
        *environment_layers(environment),
        *flags,
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        _merge(merged, origins, layer)
    sources = ", ".join(dict.fromkeys(layer.origin for layer in layers))
    found = schema_complaints(merged.pop("schema", DAEMON_SCHEMA), DAEMON_SCHEMA)
    config = structure(
        merged,
        DaemonConfig,
        source=sources or DEFAULT_ORIGIN,
        edge=Edge.TOML,
        found=found,
    )
    return LoadedConfig(config=config, origins=origins)


def environment_layers(environment: Mapping[str, str]) -> Iterator[Layer]:
    """One layer for each `SKIPPY_TABLE_KEY` variable.

    A variable that names no key of the configuration is refused, since it would do
    nothing; those of other parts are known by name.

    Raises:
        ConfigError: It names no table or no key.
    """
    tables = {
        field.name: field.type
        for field in attrs.fields(DaemonConfig)
        if field.name not in LIST_TABLES
    }
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in NOT_OURS:
            continue
        table, _, key = name.removeprefix(PREFIX).lower().partition("_")
        if table not in tables or not key:
            raise ConfigError(
                f"{name}: names no table of the configuration; write "
                f"{PREFIX}TABLE_KEY with one of {', '.join(sorted(tables))}"
            )
        value = _typed(environment[name])
        yield Layer(origin=name, document={table: {key: value}})


def layer_of_setting(text: str, origin: str) -> Layer:
    """The layer of one `table.key=value` of the command line.

    Raises:
        ConfigError: The text has another form.
    """
    path, equals, value = text.partition("=")
    table, dot, key = path.strip().partition(".")
    if not (equals and dot and table and key):
        raise ConfigError(
            f"{origin} {text!r}: write TABLE.KEY=VALUE, as in node.name=atlas"
        )
    return Layer(origin=f"{origin} {path}", document={table: {key: _typed(value)}})


def _file_layers(path: Path, *, is_required: bool) -> Iterator[Layer]:
    if path.exists() or is_required:
        yield _file_layer(path)
    folder = path.with_name(f"{path.name}.d")
    for addition in sorted(folder.glob("*.toml")):
        yield _file_layer(addition)


def _file_layer(path: Path) -> Layer:
    source = str(path)
    document = parse_toml(read_document(path), source=source)
    return Layer(origin=source, document=document)


def _typed(text: str) -> object:
    """A value as TOML would read it; anything else is the text itself."""
    lowered = text.strip().lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    if lowered.isascii() and lowered.isdigit():
        return int(lowered)
    if lowered.startswith("["):
        document = parse_toml(f"value = {text}", source=text)
        return document["value"]
    return text


def _merge(merged: dict[str, Any], origins: dict[str, str], layer: Layer) -> None:
    for table, values in layer.document.items():
        if not isinstance(values, dict):
            merged[table] = values
            origins[table] = layer.origin
            continue
        existing = merged.setdefault(table, {})
        if not isinstance(existing, dict):
            raise InvalidConfigError(
                [Complaint(table, "is a table here and a value elsewhere")],
                layer.origin,
            )
        for key, value in values.items():
            existing[key] = value
            origins[f"{table}.{key}"] = layer.origin
