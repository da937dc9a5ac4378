"""What the repository promises around its code: locks, examples, commands, contracts."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from skippyd.config.examples import example_stage_text, example_topology_text
from support.tree import ROOT, shown, text_files


# Spelt apart, so that this file is not its own first finding.
NOT_OURS = re.compile(
    r"/ro"
    r"ot/|/wo"
    r"rk/|/home/[a-z]|/opt/[a-z]|file:"
    r"//|"
    r"py"
    r"pi\.org|python"
    r"hosted|\bnpmjs\b|deb\.deb"
    r"ian\.org"
)
# In code: after a backtick, or at the start of a line of a code block.
MAKE_COMMAND = re.compile(r"(?:`|^[ $]*)make ([a-z-]+)", re.MULTILINE)
REQUIREMENT = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked(name: str) -> dict[str, str]:
    return dict(REQUIREMENT.findall((ROOT / name).read_text()))


def test_examples_in_etc_are_what_the_program_prints() -> None:
    etc = ROOT / "etc"
    assert (etc / "stage.example.json").read_text() == example_stage_text()
    assert (etc / "topology.example.json").read_text() == example_topology_text()


def test_the_development_lock_holds_the_other_one_whole() -> None:
    """The environment script relies on it: an environment for tests also runs."""
    running, developing = locked("requirements.lock"), locked("requirements-dev.lock")
    assert running.items() <= developing.items()
    assert len(running) < len(developing)


def test_every_locked_package_has_hashes() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text()
        blocks = re.split(r"\n(?=[a-z0-9])", text)
        bare = [b.split()[0] for b in blocks if "==" in b and "--hash=sha256:" not in b]
        assert bare == []


def test_every_dependency_is_locked() -> None:
    project = pyproject()["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {re.split(r"[<>=\[]", requirement)[0] for requirement in wanted}
    assert names <= locked("requirements-dev.lock").keys()


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        f"{shown(path)}:{number}: {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(_lines(path.read_bytes()), 1)
        if NOT_OURS.search(line)
    ]
    assert found == []


def test_no_file_is_large_or_binary() -> None:
    large = [shown(p) for p in text_files() if p.stat().st_size > 300_000]
    binary = [shown(p) for p in text_files() if b"\0" in p.read_bytes()]
    assert large + binary == []


def test_commands_in_the_readmes_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    texts = [path.read_text() for path in text_files() if path.name == "README.md"]
    named = {word for text in texts for word in MAKE_COMMAND.findall(text)}
    assert {"run", "test"} <= named <= targets


def test_every_documented_command_is_described_by_make_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    described = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert phony is not None
    internal = {"environment-run", "environment-dev"}
    assert described == set(phony[1].replace("\\", " ").split()) - internal


def test_every_room_has_its_place_in_the_layers() -> None:
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    layers = " ".join(contracts[0]["layers"])
    placed = set(re.findall(r"skippyd\.(\w+)", layers))
    rooms = {p.stem for p in (ROOT / "skippyd").glob("[a-z]*.py")}
    rooms |= {p.parent.name for p in (ROOT / "skippyd").glob("*/__init__.py")}
    assert rooms <= placed


def test_skippyctl_is_kept_from_every_room_that_serves() -> None:
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    kept_from = {
        name.removeprefix("skippyd.")
        for contract in contracts
        if contract.get("source_modules") == ["skippyctl"]
        for name in contract["forbidden_modules"]
    }
    serving = {"runtime", "stage", "frontend", "coordination", "daemon", "cli"}
    serving |= {"embedding", "proving"}
    there = {name for name in serving if _room_exists(name)}
    assert there <= kept_from


def _room_exists(name: str) -> bool:
    room = ROOT / "skippyd" / name
    return room.with_suffix(".py").exists() or (room / "__init__.py").exists()


def _lines(data: bytes) -> list[str]:
    return data.decode(errors="replace").splitlines()
