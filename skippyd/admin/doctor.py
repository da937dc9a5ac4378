"""What often goes wrong on a node, looked at in turn, each with what to do about it.

Facts come from the kernel's files, so tests give them folders of their own. Nothing
here waits for another machine; everything may block for a moment: run it in a thread.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from skippyd.admin.schema import CheckRow
from skippyd.units import MIB, counted, format_bytes


if TYPE_CHECKING:
    from collections.abc import Mapping

OTHERS_BITS = 0o077
LEAST_FREE_BYTES = 64 * MIB
LEAST_DESCRIPTORS = 1024
PORTS_TRIED = 100
CAPABILITIES_SECONDS = 30.0
CAPABILITIES_MAX_BYTES = 65_536

_CAPABILITIES = (
    "import json; from skippyd.runtime.build import build_facts; f = build_facts(); "
    "print(json.dumps([f.llama_cpp_build, f.cpu_features, f.capture]))"
)


@attrs.frozen(kw_only=True)
class NodeFacts:
    """Where to look.

    Args:
        state_directory: The state directory.
        identity_key: The private key.
        stage_host: Where stages listen.
        stage_ports: First and last port for them; None when the kernel chooses.
        allows_plaintext: Whether stages may speak plaintext off loopback.
        is_fence_well: Whether the fence store answers.
        model_count: Model files that this node has.
        model_problems: Files and folders that are no models, with the reason.
        proc: Normally `/proc`.
        run: Normally `/run`.
    """

    state_directory: Path
    identity_key: Path
    stage_host: str
    stage_ports: tuple[int, int] | None
    allows_plaintext: bool = False
    is_fence_well: bool = True
    model_count: int = 0
    model_problems: Mapping[Path, str] = attrs.Factory(dict)
    proc: Path = Path("/proc")
    run: Path = Path("/run")


def local_checks(facts: NodeFacts) -> tuple[CheckRow, ...]:
    """Look at everything that concerns this machine alone; blocks for a moment."""
    return (
        private_check("state directory", facts.state_directory),
        private_check("identity key", facts.identity_key),
        fence_check(is_well=facts.is_fence_well),
        disk_check(facts.state_directory),
        clock_check(facts.run),
        descriptor_check(),
        swap_check(facts.proc),
        models_check(facts.model_count, facts.model_problems),
        host_check(facts),
        port_check(facts),
        llama_check(),
    )


def private_check(name: str, path: Path) -> CheckRow:
    """Nobody else may look at it, and it is ours."""
    try:
        status = path.stat()
    except OSError as error:
        finding = f"{path}: {error.strerror or error}"
        return failed(name, finding, "restore it from a backup, or start as a new node")
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        return failed(
            name,
            f"{path} belongs to user id {status.st_uid}, the daemon is {os.geteuid()}",
            f"chown {os.geteuid()} {path}",
        )
    if mode & OTHERS_BITS:
        return failed(
            name,
            f"{path} has mode {mode:04o}",
            f"chmod go-rwx {path}: it holds secrets",
        )
    return well(name, f"{path} (mode {mode:04o})")


def fence_check(*, is_well: bool) -> CheckRow:
    """The store takes writes."""
    if is_well:
        return well("fence store", "answers")
    remedy = "look at skippyctl logs and at the disk; no claim is answered meanwhile"
    return failed("fence store", "does not answer", remedy)


def disk_check(directory: Path) -> CheckRow:
    """There is room for the fence store to write."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return failed("disk", f"{directory}: {error.strerror or error}", "mount it")
    finding = f"{format_bytes(free)} free for {directory}"
    if free >= LEAST_FREE_BYTES:
        return well("disk", finding)
    return failed("disk", finding, "free some space: a full disk stops the fence store")


def clock_check(run: Path) -> CheckRow:
    """A time service has set the clock; leases and terms are made of wall time."""
    if (run / "systemd" / "timesync" / "synchronized").exists():
        return well("clock", "set by systemd-timesyncd")
    for service in ("chrony", "ntpd.pid", "ntpsec"):
        if (run / service).exists():
            return well("clock", f"looked after by {service.removesuffix('.pid')}")
    return doubtful(
        "clock",
        "no time service was found on this machine",
        "timedatectl set-ntp true, unless the host keeps the time: leases of nodes "
        "whose clocks differ end early",
    )


def descriptor_check() -> CheckRow:
    """Enough files and connections may be open."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= LEAST_DESCRIPTORS or soft == resource.RLIM_INFINITY:
        return well("descriptors", f"{soft} may be open")
    remedy = f"set LimitNOFILE={LEAST_DESCRIPTORS} in the service"
    return doubtful("descriptors", f"only {soft} may be open", remedy)


def swap_check(proc: Path) -> CheckRow:
    """Layers that are swapped out make every token slow."""
    try:
        lines = (proc / "swaps").read_text(encoding="utf-8").splitlines()[1:]
    except OSError as error:
        return doubtful("swap", f"cannot be seen: {error.strerror or error}", "")
    if not lines:
        return well("swap", "none")
    used = sum(int(fields[3]) for line in lines if len(fields := line.split()) > 3)  # noqa: PLR2004 - KiB in use
    if used == 0:
        return well("swap", "unused")
    finding = f"{format_bytes(used * 1024)} in use"
    remedy = "lower [stages] max_memory, or swapoff: a swapped layer slows every token"
    return doubtful("swap", finding, remedy)


def models_check(count: int, problems: Mapping[Path, str]) -> CheckRow:
    """What [models] paths names is there, and can be read."""
    finding = counted(count, "model")
    if not problems:
        return well(
            "models", finding if count else "none; [models] paths names folders"
        )
    (path, reason), *others = problems.items()
    more = f", and {counted(len(others), 'more problem')}" if others else ""
    return doubtful(
        "models",
        f"{finding}; {path}: {reason}{more}",
        "correct [models] paths, copy the file anew, or make it readable",
    )


def host_check(facts: NodeFacts) -> CheckRow:
    """Stages can listen where they are told to, and it is wise to."""
    host = facts.stage_host
    try:
        _try_to_bind(host, 0)
    except OSError as error:
        return failed(
            "stage address",
            f"{host}: {error.strerror or error}",
            "set [stages] host to an address of this machine (ip -brief address)",
        )
    if host.startswith("127.") or host == "::1":
        return well("stage address", f"{host}: only nodes on this machine reach it")
    if facts.allows_plaintext:
        return doubtful(
            "stage address",
            f"{host} with allow_plaintext: whoever is on that network can read along",
            "set [stages] allow_plaintext = false",
        )
    return well("stage address", host)


def port_check(facts: NodeFacts) -> CheckRow:
    """Enough ports are free."""
    if facts.stage_ports is None:
        return well("stage ports", "chosen by the kernel")
    first, last = facts.stage_ports
    tried = range(first, min(last, first + PORTS_TRIED - 1) + 1)
    free = sum(_is_free(facts.stage_host, port) for port in tried)
    finding = f"{free} of {len(tried)} free from {first} on"
    if free:
        return well("stage ports", finding)
    return failed(
        "stage ports", finding, "set [stages] first_port and last_port to free ones"
    )


def llama_check() -> CheckRow:
    """The llama.cpp library loads, in a process of its own: a crash is one finding."""
    name = "llama.cpp"
    command = [sys.executable, "-c", _CAPABILITIES]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=CAPABILITIES_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed(name, f"cannot be tried: {error}", "install skippyd again")
    lines = done.stdout[-CAPABILITIES_MAX_BYTES:].decode(errors="replace").splitlines()
    if done.returncode != 0 or not lines:
        said = done.stderr[-CAPABILITIES_MAX_BYTES:].decode(errors="replace")
        last = (said.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return failed(name, f"does not load: {last}", "install skippyd again")
    build, features, capture = json.loads(lines[-1])
    if capture != "native":
        return doubtful(
            name,
            f"{build}: the native part is missing, the slow capture is used",
            "install a C++ compiler and build skippyd again",
        )
    return well(name, f"{build} ({features})")


def well(name: str, finding: str) -> CheckRow:
    """Nothing to do."""
    return CheckRow(check=name, verdict="ok", finding=finding)


def doubtful(name: str, finding: str, remedy: str) -> CheckRow:
    """It works, but not as it should."""
    return CheckRow(check=name, verdict="warning", finding=finding, remedy=remedy)


def failed(name: str, finding: str, remedy: str) -> CheckRow:
    """It does not work."""
    return CheckRow(check=name, verdict="failed", finding=finding, remedy=remedy)


def _is_free(host: str, port: int) -> bool:
    try:
        _try_to_bind(host, port)
    except OSError:
        return False
    return True


def _try_to_bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind((host, port))
