"""What is installed beside the program says what the program does."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING

import attrs
import pytest

import skippyctl.main
import skippyd.cli.main
from skippyd.cli.config import values_by_path
from skippyd.config.daemon import DaemonConfig, PeerTable
from skippyd.config.layers import load_daemon_config
from skippyd.daemon.safe_mode import VARIABLE
from support.tree import ROOT


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNIT = ROOT / "packaging" / "systemd" / "skippyd.service"
EXAMPLE = ROOT / "etc" / "skippyd.toml"
MAN = ROOT / "packaging" / "man"
MOST_EXPOSED = 1.5
HARDENING = {
    "CapabilityBoundingSet=",
    "LimitCORE=0",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "NoNewPrivileges=yes",
    "PrivateDevices=yes",
    "PrivateMounts=yes",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHome=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectProc=invisible",
    "ProtectSystem=strict",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged",
    "UMask=0077",
    "User=skippyd",
}
KEY_LINE = re.compile(r"^#(?=\[\[|[a-z_]+ = )", re.MULTILINE)


def test_the_example_as_shipped_is_the_default() -> None:
    loaded = load_daemon_config(EXAMPLE, environment={})
    assert loaded.config == DaemonConfig()


def test_the_example_describes_every_key_with_its_default() -> None:
    document = tomllib.loads(KEY_LINE.sub("", EXAMPLE.read_text()))
    (peer,) = document.pop("peers")
    assert set(peer) == {field.name for field in attrs.fields(PeerTable)}
    shown = {
        f"{t}.{key}": value for t in document for key, value in document[t].items()
    }
    loaded = load_daemon_config(EXAMPLE, environment={})
    defaults = dict(values_by_path(loaded))
    del defaults["peers"]
    assert set(shown) == set(defaults)
    known = {path: value for path, value in defaults.items() if value is not None}
    assert {path: shown[path] for path in known} == known


def test_the_examples_of_keys_without_a_default_are_valid(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().partition("#[[peers]]")[0]
    path = tmp_path / "skippyd.toml"
    path.write_text(KEY_LINE.sub("", text))
    config = load_daemon_config(path, environment={}).config
    assert config.control.advertise is not None
    assert config.stages.max_memory is not None
    assert config.openai.bind is not None


def test_the_service_is_hardened() -> None:
    lines = set(UNIT.read_text().splitlines())
    assert lines >= HARDENING
    tool = shutil.which("systemd-analyze")
    if tool is None:
        # What was measured where the tool exists stands in the lines above.
        return
    done = subprocess.run(
        [tool, "security", "--offline=true", "--no-pager", UNIT],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"exposure level for skippyd\.service: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= MOST_EXPOSED


def test_the_service_and_its_drop_in_name_what_exists() -> None:
    unit = UNIT.read_text()
    assert "Type=notify" in unit
    assert "ExecStart=/usr/bin/skippyd run --config /etc/skippyd/skippyd.toml" in unit
    assert "RestartPreventExitStatus=78" in unit
    drop_in = UNIT.with_name("safe-mode.conf").read_text()
    assert f"Environment={VARIABLE}=1" in drop_in


def test_the_users_and_folders_are_those_of_the_service() -> None:
    users = (ROOT / "packaging" / "sysusers.d" / "skippyd.conf").read_text()
    assert re.search(r"^u skippyd ", users, re.MULTILINE)
    config = DaemonConfig()
    for group in (config.admin.read_group, config.admin.write_group):
        assert re.search(rf"^g {group} ", users, re.MULTILINE)
    folders = (ROOT / "packaging" / "tmpfiles.d" / "skippyd.conf").read_text()
    assert re.search(r"^d /etc/skippyd 0750 root skippyd", folders, re.MULTILINE)


def test_the_operators_page_has_the_flags_of_each_command_and_no_others() -> None:
    described, parsed = _flags((MAN / "skippyctl.1"), skippyctl.main.whole_parser())
    assert described == parsed


def test_the_programs_page_has_the_flags_of_each_command_and_no_others() -> None:
    page = MAN / "skippyd.8"
    described, parsed = _flags(page, skippyd.cli.main.whole_parser())
    assert described == parsed
    synopsis = _section(page.read_text(), "SYNOPSIS").replace("\\-", "-")
    for name in ("run", "config check", "demo", "verify", "bench"):
        assert f"skippyd {name}" in synopsis


Flags = dict[str, set[str]]


def _flags(page: Path, parser: argparse.ArgumentParser) -> tuple[Flags, Flags]:
    """Each command's flags, as its entry has them and as it has them itself.

    Flags that stand under OPTIONS are left out of both; what stands there and no
    command has is told as the flags of a command without a name.
    """
    text = page.read_text()
    entries = {
        _words(first): rest
        for entry in _section(text, "COMMANDS").split(".TP\n")[1:]
        for first, _, rest in [entry.partition("\n")]
    }
    general = _flags_in(_section(text, "OPTIONS"))
    found = {
        " ".join(path): {flag for a in actions for flag in a.option_strings}
        for path, actions in _commands(parser)
    }
    described = {
        next((c for c in found if f"{words} ".startswith(f"{c} ")), words): rest
        for words, rest in entries.items()
    }
    unknown = general - set().union(*found.values()) - {"--version"}
    left_out = general | {"--help"}
    return (
        {name: _flags_in(rest) - left_out for name, rest in described.items()}
        | {"": unknown},
        {
            name: {f for f in flags if f.startswith("--")} - left_out
            for name, flags in found.items()
        }
        | {"": set()},
    )


def _section(page: str, name: str) -> str:
    return page.partition(f".SH {name}\n")[2].partition(".SH ")[0]


def _words(first_line: str) -> str:
    macro, _, rest = first_line.replace("\\-", "-").partition(" ")
    assert macro in {".B", ".BI"}
    return " ".join(rest.replace('"', "").split())


def _flags_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]*", text.replace("\\-", "-")))


def _commands(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[argparse.Action]]]:
    """Every command that does something, with its arguments."""
    inner = [a for a in parser._actions if isinstance(a.choices, dict)]
    for action in inner:
        for name, sub in dict(action.choices or {}).items():
            yield from _commands(sub, (*path, name))
    if not inner:
        told = [a for a in parser._actions if a.help != argparse.SUPPRESS]
        yield path, told


@pytest.mark.parametrize("page", ["skippyd.8", "skippyctl.1"])
def test_manual_pages_are_well_formed(page: str) -> None:
    text = (MAN / page).read_text()
    assert text.startswith(".TH SKIPPY")
    assert ".SH EXIT STATUS" in text
    groff = shutil.which("groff")
    if groff is None:
        return
    done = subprocess.run(
        [groff, "-man", "-ww", "-Tascii", MAN / page],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
