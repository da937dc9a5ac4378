"""Machines on one switch: network namespaces joined by veth, and daemons in them.

Needs root, `ip`, `nft` and `nsenter`; `reason_against` says what is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

from support.daemons import Daemon


if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

TOOLS = ("ip", "nft", "nsenter")
SWITCH = "switch"
BRIDGE = "br0"
LINK = "eth0"
CONTROL_PORT = 9401
DOOR_PORT = 9337
TOOL_SECONDS = 20.0
CLONE_NEWNET = 0x40000000
ASK_SECONDS = 90.0

ASK = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(
    sys.argv[1], sys.stdin.buffer.read(), {"content-type": "application/json"}
)
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
sys.stdout.buffer.write(answer.read())
"""
"""Post standard input to a URL; runs inside a namespace."""

SHOWN_CERTIFICATE = """
import ssl, sys
host, _, port = sys.argv[1].rpartition(":")
sys.stdout.write(ssl.get_server_certificate((host, int(port))))
"""
"""Print the certificate that an address shows; runs inside a namespace."""


def reason_against() -> str | None:
    """Say why namespaces cannot be made here; None when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"network namespaces need {', '.join(missing)}"
    try:
        with Switch(("probe",)) as switch:
            switch.silence("probe")
    except ToolError as error:
        return f"network namespaces cannot be made here: {error}"
    return None


class ToolError(Exception):
    """A tool that arranges the network failed; the message is what it said."""


class Switch:
    """Namespaces, one for each name, with an address each on one bridge."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._made: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._make(SWITCH)
            switch = self.namespace(SWITCH)
            run("ip", "-n", switch, "link", "add", BRIDGE, "type", "bridge")
            run("ip", "-n", switch, "link", "set", BRIDGE, "up")
            for name in self._names:
                self._plug(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take every namespace away, and with it its devices and rules."""
        while self._made:
            with contextlib.suppress(ToolError):
                run("ip", "netns", "del", self._made.pop())

    def namespace(self, name: str) -> str:
        """What the kernel's tools call the namespace of a name."""
        return f"skippy-{os.getpid()}-{name}"

    def address(self, name: str) -> str:
        """The address of a name on the switch."""
        return f"10.77.31.{1 + self._names.index(name)}"

    def within(self, name: str) -> tuple[str, ...]:
        """What to write before a command so that it runs there, under the same pid."""
        return ("nsenter", f"--net=/run/netns/{self.namespace(name)}", "--")

    def silence(self, name: str) -> None:
        """Drop what a name says to others; it still hears them."""
        there = self.within(name)
        run(*there, "nft", "add", "table", "inet", "cut")
        hook = "{ type filter hook output priority 0 ; }"
        run(*there, "nft", f"add chain inet cut out {hook}")
        run(*there, "nft", f"add rule inet cut out oifname {LINK} drop")

    def part(self, name: str, others: Iterable[str]) -> None:
        """Drop what a name and others say to each other, both ways."""
        there = self.within(name)
        run(*there, "nft", "add", "table", "inet", "cut")
        for hook, side in (("output", "daddr"), ("input", "saddr")):
            chain = f"{{ type filter hook {hook} priority 0 ; }}"
            run(*there, "nft", f"add chain inet cut {hook} {chain}")
            for other in others:
                match = f"ip {side} {self.address(other)}"
                run(*there, "nft", f"add rule inet cut {hook} {match} drop")

    def connect(self, name: str, other: str, port: int) -> socket.socket:
        """Connect from a name's namespace to a port of another one."""
        with ThreadPoolExecutor(1) as pool:
            # A thread may move to another network alone, and it ends here.
            return pool.submit(self._connected, name, other, port).result()

    def _connected(self, name: str, other: str, port: int) -> socket.socket:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{self.namespace(name)}").open("rb") as network:
            if libc.setns(network.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        return socket.create_connection((self.address(other), port), TOOL_SECONDS)

    def heal(self, name: str) -> None:
        """Let it be heard again, and hear."""
        run(*self.within(name), "nft", "delete", "table", "inet", "cut")

    def _make(self, name: str) -> None:
        namespace = self.namespace(name)
        run("ip", "netns", "add", namespace)
        self._made.append(namespace)
        run("ip", "-n", namespace, "link", "set", "lo", "up")

    def _plug(self, name: str) -> None:
        self._make(name)
        here, switch = self.namespace(name), self.namespace(SWITCH)
        port = f"port{self._names.index(name)}"
        far_end = ("peer", "name", LINK, "netns", here)
        run("ip", "-n", switch, "link", "add", port, "type", "veth", *far_end)
        run("ip", "-n", switch, "link", "set", port, "master", BRIDGE, "up")
        run("ip", "-n", here, "addr", "add", f"{self.address(name)}/24", "dev", LINK)
        run("ip", "-n", here, "link", "set", LINK, "up")


def run(*command: str) -> str:
    """Run a tool and return what it prints.

    Raises:
        ToolError: It failed.
    """
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
    )
    if done.returncode != 0:
        raise ToolError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@attrs.define(eq=False, kw_only=True)
class PluggedDaemon(Daemon):
    """A daemon in a namespace of its own, reached by the others over the switch.

    Args:
        switch: Where it is plugged in under its own name.
        stage_lines: Further lines of `[stages]`.
    """

    switch: Switch
    stage_lines: str = ""

    def __attrs_post_init__(self) -> None:
        self.door_port = DOOR_PORT
        self.control_port = CONTROL_PORT
        self.folder.mkdir(exist_ok=True)
        address = self.switch.address(self.name)
        self.config.write_text(
            f'[node]\nname = "{self.name}"\nstate_dir = "{self.folder}/state"\n'
            f'[control]\nbind = "{address}:{CONTROL_PORT}"\n'
            f'[stages]\nhost = "{address}"\n{self.stage_lines}'
            f'[models]\npaths = ["{self.models}"]\n'
            f'[openai]\nbind = "127.0.0.1:{DOOR_PORT}"\n'
            f'[admin]\nsocket = "{self.socket}"\n{self.extra}'
        )

    def start(self) -> None:
        """Start it in its namespace, without waiting."""
        command = (sys.executable, "-m", "skippyd", "run", "--config", self.config)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.switch.within(self.name), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
            )

    def shown_certificate(self, address: str) -> str:
        """The certificate, as PEM, that a TLS server shows to this namespace.

        Raises:
            subprocess.CalledProcessError: It speaks no TLS.
        """
        return subprocess.run(
            [
                *self.switch.within(self.name),
                *(sys.executable, "-c", SHOWN_CERTIFICATE, address),
            ],
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS,
            check=True,
        ).stdout

    def post(self, body: str) -> str:
        """Post a chat request at its front door, from inside its namespace."""
        return subprocess.run(
            [
                *self.switch.within(self.name),
                *(sys.executable, "-c", ASK, f"{self.door}/chat/completions"),
            ],
            input=body,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=True,
        ).stdout
