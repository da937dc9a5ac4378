"""Daemons as their operators know them: configuration files, processes, `skippyctl`.

Knows nothing of the package: what is tested through this is what is shipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs


if TYPE_CHECKING:
    from collections.abc import Callable

START_SECONDS = 60.0
COMMAND_SECONDS = 180.0
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.1
CHUNK_BYTES = 65_536


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Wire:
    """A TCP forwarder in front of a node, which can be made deaf in one direction."""

    def __init__(self, target_port: int) -> None:
        self.is_cut = False
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End every connection and thread."""
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5.0)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(
                    target=self._forward, args=(client,), daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _forward(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._target_port), 5.0) as server,
        ):
            server.settimeout(None)
            self._open += [client, server]
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for source in ready:
                    data = source.recv(CHUNK_BYTES)
                    if not data:
                        return
                    if source is client:
                        server.sendall(data)
                    elif not self.is_cut:
                        client.sendall(data)


@attrs.frozen(kw_only=True)
class Census:
    """What a process holds.

    Args:
        descriptors: Open files, sockets included.
        children: Processes that it has started and not reaped.
    """

    descriptors: int
    sockets: int
    threads: int
    children: int
    resident_bytes: int


@attrs.define(eq=False)
class Daemon:
    """One `skippyd run` with a folder of its own.

    Args:
        name: What people call the node.
        folder: Its configuration, state, socket and log.
        models: Folder of model files.
        extra: Further lines of its configuration.
    """

    name: str
    folder: Path
    models: Path
    extra: str = ""
    has_wire: bool = attrs.field(default=False, kw_only=True)
    environment: dict[str, str] = attrs.field(factory=dict, kw_only=True)
    door_port: int = attrs.field(factory=free_port, init=False)
    control_port: int = attrs.field(factory=free_port, init=False)
    wire: Wire | None = attrs.field(default=None, init=False)
    process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        advertise = ""
        if self.has_wire:
            self.wire = Wire(self.control_port)
            advertise = f'advertise = "127.0.0.1:{self.wire.port}"\n'
        self.config.write_text(
            f'[node]\nname = "{self.name}"\nstate_dir = "{self.folder}/state"\n'
            f'[control]\nbind = "127.0.0.1:{self.control_port}"\n{advertise}'
            f'[models]\npaths = ["{self.models}"]\n'
            f'[openai]\nbind = "127.0.0.1:{self.door_port}"\n'
            f'[admin]\nsocket = "{self.socket}"\n{self.extra}'
        )

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.folder / "skippyd.toml"

    @property
    def socket(self) -> Path:
        """Its admin socket."""
        return self.folder / "admin.sock"

    @property
    def certificate(self) -> str:
        """What it shows to other nodes, as PEM."""
        return (self.folder / "state" / "identity.pem").read_text()

    @property
    def log(self) -> str:
        """What it has written to standard error."""
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start it without waiting."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "skippyd", "run", "--config", self.config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
            )

    def until_ready(self) -> None:
        """Wait until operators can ask it."""
        until(self._is_ready, f"{self.name} is ready", within_s=START_SECONDS)

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        if not self.socket.exists():
            return False
        return self.ctl("status").returncode in {0, 3}

    def ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `skippyctl` against it."""
        return subprocess.run(
            [
                *(sys.executable, "-m", "skippyctl", *arguments),
                *("--socket", str(self.socket)),
            ],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def ask(self, *arguments: str) -> dict[str, Any]:
        """The document that `skippyctl --json` prints."""
        done = self.ctl(*arguments, "--json")
        assert done.stdout, f"{self.name}: {arguments}: {done.stderr}"
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def join(self, other: Daemon) -> None:
        """Join another node with an invitation of that one."""
        token = other.ctl("invite").stdout.strip()
        joined = self.ctl("join", token)
        assert joined.returncode == 0, joined.stderr

    def sees(self) -> dict[str, str]:
        """Health of every node by its name."""
        return {row["name"]: row["health"] for row in self.ask("nodes")["items"]}

    @property
    def door(self) -> str:
        """Base URL of its front door."""
        return f"http://127.0.0.1:{self.door_port}/v1"

    def answer(
        self, model: str, prompt: str, tokens: int, *, at: str | None = None
    ) -> str:
        """Ask a question at its front door, or at another base URL.

        Raises:
            urllib.error.HTTPError: It is refused.
        """
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
        }
        request = urllib.request.Request(
            f"{at or self.door}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            document = json.loads(response.read())
        return str(document["choices"][0]["message"]["content"])

    def refusal(self, model: str) -> tuple[int, str | None, str]:
        """How its front door refuses: status, `Retry-After`, message."""
        try:
            self.answer(model, "?", 1)
        except urllib.error.HTTPError as error:
            document = json.loads(error.read())
            retry_after = error.headers.get("retry-after")
            return error.code, retry_after, document["error"]["message"]
        raise AssertionError("it answered")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        """End it as a service manager does; returns its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end."""
        assert self.process is not None
        return self.process.wait(STOP_SECONDS)

    def census(self) -> Census:
        """What it holds of the machine now."""
        assert self.process is not None
        proc = Path("/proc") / str(self.process.pid)
        targets = []
        for entry in (proc / "fd").iterdir():
            # One may be closed while we look.
            with contextlib.suppress(FileNotFoundError):
                targets.append(str(entry.readlink()))
        children = (proc / "task" / str(self.process.pid) / "children").read_text()
        fields = dict(
            line.split(":", 1) for line in (proc / "status").read_text().splitlines()
        )
        return Census(
            descriptors=len(targets),
            sockets=sum(target.startswith("socket:") for target in targets),
            threads=int(fields["Threads"]),
            children=len(children.split()),
            resident_bytes=int(fields["VmRSS"].split()[0]) * 1024,
        )

    def close(self) -> None:
        """End it whatever happens, and what belongs to it."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(STOP_SECONDS)
        if self.wire is not None:
            self.wire.close()


def until(is_so: Callable[[], bool], what: str, *, within_s: float) -> None:
    """Look again and again until something is so.

    Raises:
        AssertionError: It did not become so in time.
    """
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
        time.sleep(LOOK_SECONDS)
