"""Flags of the serve commands: each does what it says or is refused by name."""

from __future__ import annotations

import json
import logging
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from skippyd.cli import serve, serve_binary, serve_openai, stage_main, unbuilt
from skippyd.cli.logs import log_to_stderr
from skippyd.cli.main import main
from skippyd.errors import ConfigError, ExitCode


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType


@pytest.fixture(autouse=True)
def hand_over_as_before() -> Iterator[None]:
    """A stage hands the interpreter lock over more often; tests need not."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration of a final stage whose model is not there."""
    document = {
        "run_id": "r",
        "topology_id": "t",
        "model_id": "m",
        "stage_id": "stage-0",
        "stage_index": 0,
        "layer_start": 0,
        "layer_end": 6,
        "load_mode": "runtime-slice",
        "bind_addr": "127.0.0.1:0",
        "model_path": str(tmp_path / "nowhere.gguf"),
    }
    path = tmp_path / "stage.json"
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--max-inflight", "0"], "--max-inflight is 0; 1 is the least"),
        (["--reply-credit-limit", "-1"], "--reply-credit-limit is -1; 0 is the least"),
        (["--stage-reply-timeout-secs", "0"], "--stage-reply-timeout-secs is 0"),
        (["--stage-reply-timeout-secs", "nan"], "--stage-reply-timeout-secs is nan"),
        (["--downstream-connect-timeout-secs", "inf"], "connect-timeout-secs is inf"),
        (["--logits-fd", "9"], "--logits-fd is only for stages that"),
        (["--listen-fd", "0"], "--listen-fd 0 is no inherited socket"),
        (["--downstream-wire-mbps", "9"], "--downstream-wire-mbps is not supported"),
        (["--openai-guardrails"], "--openai-guardrails is not supported yet"),
        (["--telemetry-level", "debug"], "--telemetry-level is not supported yet"),
    ],
)
def test_a_flag_that_cannot_be_obeyed_is_named(
    config: str, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if flags[0] == "--listen-fd":
        with open("/dev/null", "rb") as file:  # noqa: PTH123 - a descriptor that is no socket
            flags = ["--listen-fd", str(file.fileno())]
            words = words.replace(" 0 ", f" {file.fileno()} ")
            code = main(["serve-binary", "--config", config, *flags])
    else:
        code = main(["serve-binary", "--config", config, *flags])
    assert code == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize("command", ["serve", "serve-binary", "serve-openai"])
def test_an_unknown_log_level_is_a_matter_of_usage(command: str, config: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--config", config, "--log-level", "loud"])
    assert caught.value.code == ExitCode.USAGE


def test_the_old_adapter_is_refused_with_its_successor(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["serve-openai", "--config", config, "--first-stage-addr", "h:1"]
    assert main(arguments) == ExitCode.USAGE
    assert "serve-binary --openai-bind-addr" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "serve-binary", "serve-openai"])
def test_a_topology_is_compared_by_every_command(
    command: str, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = {
        "topology_id": "t",
        "model_id": "m",
        "stages": [
            {
                "stage_id": "stage-0",
                "stage_index": 0,
                "endpoint": "127.0.0.1:1",
                "layer_start": 0,
                "layer_end": 5,
                "load_mode": "runtime-slice",
            }
        ],
    }
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(topology))
    arguments = [command, "--config", config, "--topology", str(path)]
    if command != "serve-binary":
        arguments += ["--bind-addr", "127.0.0.1:0"]
    assert main(arguments) == ExitCode.BAD_CONFIGURATION
    assert "does not match topology entry: layer_end" in capsys.readouterr().err


def test_a_bind_address_on_the_command_line_wins(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["serve-binary", "--config", config, "--bind-addr", address]
        assert main(arguments) == ExitCode.FAILED
    assert f"cannot listen on {address}" in capsys.readouterr().err


def test_errors_of_nurseries_are_told_without_their_groups() -> None:
    async def start(*, task_status: object) -> None:
        raise ExceptionGroup("one", [ExceptionGroup("two", [ConfigError("the line")])])

    with pytest.raises(ConfigError, match="the line"):
        stage_main.unwrapped(start)
    group = BaseExceptionGroup("g", [KeyboardInterrupt()])
    assert isinstance(stage_main.first_error(group), KeyboardInterrupt)


def test_an_interrupt_while_starting_ends_as_one() -> None:
    async def start(*, task_status: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage_main.unwrapped(start)


def test_every_log_line_has_a_time_and_a_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr("warning")
    logging.getLogger("skippyd.x").info("hidden")
    logging.getLogger("skippyd.x").warning("shown")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("Z WARNING skippyd.x shown")


def test_known_flags_of_later_are_each_known_once() -> None:
    flags = [*unbuilt.SERVE_LATER, *unbuilt.BINARY_LATER]
    assert len(flags) == len(set(flags))
    assert all(flag.startswith("--") for flag in flags)


@pytest.mark.parametrize("command", [serve, serve_binary, serve_openai])
def test_each_command_says_in_a_line_what_it_is_for(command: ModuleType) -> None:
    assert command.HELP.startswith(("serve", "load"))
    assert "\n" not in command.HELP
