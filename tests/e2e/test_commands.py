"""The five command lines of the manual, as written, and how each is ended."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from skippyd.core.wire.encode import encode_ready
from skippyd.errors import ExitCode
from support.chat_call import Call, get
from support.cli_chain import SPEAKING, CliChain
from support.random_models import write_random_model
from support.running_command import RunningCommand, descendants, is_alive
from support.stage_cli import COMMAND, eventually, free_port


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.native, pytest.mark.slow]

READY = encode_ready()


@pytest.fixture
def example(tmp_path: Path) -> dict[str, object]:
    """What `example-config` prints, completed as it says."""
    done = subprocess.run(
        [*COMMAND, "example-config"],
        capture_output=True,
        text=True,
        timeout=15,
        check=True,
    )
    assert "model_path" in done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    model = write_random_model(tmp_path / "m.gguf", SPEAKING)
    port = free_port()
    document |= {
        "model_path": model.name,
        "layer_end": SPEAKING.layers,
        "model_id": "m",
        "bind_addr": f"127.0.0.1:{port}",
    }
    (tmp_path / "stage.json").write_text(json.dumps(document))
    return document | {"port": port}


def port_of(example: dict[str, object]) -> int:
    port = example["port"]
    assert isinstance(port, int)
    return port


def test_serve_shows_what_a_stage_holds_until_ctrl_c(
    tmp_path: Path, example: dict[str, object]
) -> None:
    arguments = ["serve", "--config", "stage.json"]
    with RunningCommand.start(arguments, tmp_path / "log", cwd=tmp_path) as command:
        command.wait_said("ready: ")
        assert get(port_of(example), "/health").document == {"status": "ok"}
        status = get(port_of(example), "/v1/status").document
        assert status["layer_end"] == SPEAKING.layers
        assert get(port_of(example), "/ready").document["ready"] is True
        command.signal(signal.SIGINT)
        assert command.exit_code() == ExitCode.INTERRUPTED


def test_serve_binary_says_that_it_is_ready_until_terminated(
    tmp_path: Path, example: dict[str, object]
) -> None:
    arguments = ["serve-binary", "--config", "stage.json"]
    with RunningCommand.start(arguments, tmp_path / "log", cwd=tmp_path) as command:
        command.wait_said("ready: ")
        with socket.create_connection(("127.0.0.1", port_of(example)), 5) as stage:
            assert stage.recv(4) == READY
            command.signal(signal.SIGTERM)
            assert command.exit_code() == ExitCode.DONE
            assert stage.recv(1) == b""


def test_serve_openai_answers_and_lets_a_stream_end_unless_hurried(
    tmp_path: Path, example: dict[str, object]
) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    arguments = ["serve-openai", "--config", "stage.json", "--bind-addr", address]
    with RunningCommand.start(arguments, tmp_path / "log", cwd=tmp_path) as command:
        command.wait_said("serving")
        assert get(port, "/v1/models").status == 200
        body: dict[str, object] = {"prompt": "a", "max_tokens": 400, "stream": True}
        with Call.send(port, body) as call:
            events = call.events()
            next(events)
            below = descendants(command.process.pid)
            command.signal(signal.SIGINT)
            command.wait_said("stopping: SIGINT")
            command.signal(signal.SIGINT)
            assert command.exit_code() == ExitCode.INTERRUPTED
        assert below, "the template worker"
        assert not [pid for pid in below if is_alive(pid)]


def test_a_chain_serves_openai_at_stage_0_with_bounded_concurrency(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path) as chain:
        chain.start(1, 2)
        address = f"127.0.0.1:{chain.openai_port}"
        arguments = ["serve-binary", "--config", "stage-0.json"]
        arguments += ["--topology", "topology.json", "--openai-bind-addr", address]
        arguments += ["--generation-concurrency", "1"]
        log = tmp_path / "log"
        with RunningCommand.start(arguments, log, cwd=tmp_path) as command:
            command.wait_said("ready: ")
            chain.wait_green()
            with chain.send("ab", max_tokens=400, stream=True) as call:
                events = call.events()
                next(events)
                assert chain.ask("ab", max_tokens=2).status == 429
                command.signal(signal.SIGTERM)
                drained = [event for event in events if "error" not in event]
            assert len(drained) > 100, "a running answer is finished first"
            assert command.exit_code() == ExitCode.DONE


def test_a_stage_that_is_told_to_stop_while_it_loads_ends_at_once(
    tmp_path: Path,
) -> None:
    with CliChain.prepare(tmp_path) as chain:
        stage = chain.spawn(1)
        stage.lifecycle.sendall(b"stop\n")
        assert stage.process.wait(10) == ExitCode.DONE
        assert not stage.said("Traceback")


def test_the_kill_of_a_parent_leaves_no_stage_process(tmp_path: Path) -> None:
    model = write_random_model(tmp_path / "m.gguf", SPEAKING)
    arguments = ["demo", "--model", str(model), "--stages", "3", "--max-tokens", "4"]
    arguments += ["--ctx-size", "512", "--openai-bind-addr", "127.0.0.1:0"]
    with RunningCommand.start(arguments, tmp_path / "log", cwd=tmp_path) as command:
        command.wait_said("http://127.0.0.1:", within_s=45)
        below = descendants(command.process.pid)
        assert len(below) >= 4, "three stages and stage 0's template worker"
        command.signal(signal.SIGKILL)
        command.process.wait()
        eventually(lambda: not any(map(is_alive, below)), "no stage is left")


def test_ctrl_c_ends_a_demo_and_its_stages(tmp_path: Path) -> None:
    model = write_random_model(tmp_path / "m.gguf", SPEAKING)
    arguments = ["demo", "--model", str(model), "--stages", "2", "--max-tokens", "4"]
    arguments += ["--ctx-size", "512", "--openai-bind-addr", "127.0.0.1:0"]
    with RunningCommand.start(arguments, tmp_path / "log", cwd=tmp_path) as command:
        command.wait_said("http://127.0.0.1:", within_s=45)
        below = descendants(command.process.pid)
        command.signal(signal.SIGINT)
        assert command.exit_code() == ExitCode.INTERRUPTED
        assert not [pid for pid in below if is_alive(pid)]
