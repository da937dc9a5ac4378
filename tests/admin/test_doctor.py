from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from skippyd.admin import doctor as doctor_module
from skippyd.admin.doctor import (
    NodeFacts,
    clock_check,
    descriptor_check,
    disk_check,
    fence_check,
    host_check,
    llama_check,
    local_checks,
    models_check,
    port_check,
    private_check,
    swap_check,
)


if TYPE_CHECKING:
    from pathlib import Path


def facts(folder: Path, **changes: object) -> NodeFacts:
    key = folder / "identity.key"
    key.write_text("secret")
    key.chmod(0o600)
    folder.chmod(0o700)
    host = str(changes.get("stage_host", "127.0.0.1"))
    ports = changes.get("stage_ports")
    return NodeFacts(
        state_directory=folder,
        identity_key=key,
        stage_host=host,
        stage_ports=ports if isinstance(ports, tuple) else None,
        allows_plaintext=bool(changes.get("allows_plaintext", False)),
        proc=folder,
        run=folder,
    )


def test_secrets_are_to_be_ours_alone(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o600)
    assert private_check("key", key).verdict == "ok"
    key.chmod(0o640)
    open_to_others = private_check("key", key)
    assert open_to_others.verdict == "failed"
    assert "mode 0640" in open_to_others.finding
    assert f"chmod go-rwx {key}" in open_to_others.remedy
    missing = private_check("key", tmp_path / "none")
    assert "No such file" in missing.finding


def test_a_key_of_another_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    monkeypatch.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
    check = private_check("key", key)
    assert check.verdict == "failed"
    assert f"chown {key.stat().st_uid + 1} {key}" in check.remedy


def test_the_fence_store_and_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fence_check(is_well=True).verdict == "ok"
    assert fence_check(is_well=False).verdict == "failed"
    assert disk_check(tmp_path / "none").verdict == "failed"
    monkeypatch.setattr(doctor_module, "LEAST_FREE_BYTES", 0)
    assert disk_check(tmp_path).verdict == "ok"
    monkeypatch.setattr(doctor_module, "LEAST_FREE_BYTES", 2**62)
    full = disk_check(tmp_path)
    assert (full.verdict, "free some space" in full.remedy) == ("failed", True)


def test_a_clock_that_nobody_sets_is_doubtful(tmp_path: Path) -> None:
    check = clock_check(tmp_path)
    assert check.verdict == "warning"
    assert "timedatectl" in check.remedy
    (tmp_path / "chrony").mkdir()
    assert clock_check(tmp_path).finding == "looked after by chrony"
    (tmp_path / "systemd" / "timesync").mkdir(parents=True)
    (tmp_path / "systemd" / "timesync" / "synchronized").touch()
    assert clock_check(tmp_path).finding == "set by systemd-timesyncd"


def test_few_descriptors_are_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "LEAST_DESCRIPTORS", 1)
    assert descriptor_check().verdict == "ok"
    monkeypatch.setattr(doctor_module, "LEAST_DESCRIPTORS", 2**62)
    assert descriptor_check().verdict == "warning"


HEAD = "Filename Type Size Used Priority\n"


@pytest.mark.parametrize(
    ("swaps", "verdict", "finding"),
    [
        (HEAD, "ok", "none"),
        (HEAD + "/dev/x partition 999 0 -2\n", "ok", "unused"),
        (HEAD + "/dev/x partition 9999 2048 -2\n", "warning", "2.00 MiB in use"),
        (None, "warning", "cannot be seen: No such file or directory"),
    ],
)
def test_layers_in_swap_are_told(
    tmp_path: Path, swaps: str | None, verdict: str, finding: str
) -> None:
    if swaps is not None:
        (tmp_path / "swaps").write_text(swaps)
    check = swap_check(tmp_path)
    assert (check.verdict, check.finding) == (verdict, finding)


def test_an_address_of_another_machine_is_told(tmp_path: Path) -> None:
    check = host_check(facts(tmp_path, stage_host="192.0.2.1"))
    assert check.verdict == "failed"
    assert "[stages] host" in check.remedy
    near = host_check(facts(tmp_path))
    assert "only nodes on this machine" in near.finding


def test_plaintext_off_loopback_is_doubtful(tmp_path: Path) -> None:
    check = host_check(facts(tmp_path, stage_host="0.0.0.0", allows_plaintext=True))
    assert check.verdict == "warning"
    assert "allow_plaintext" in check.remedy
    assert host_check(facts(tmp_path, stage_host="0.0.0.0")).verdict == "ok"


def test_ports_that_are_taken_are_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        check = port_check(facts(tmp_path, stage_ports=(port, port)))
    assert (check.verdict, check.finding) == ("failed", f"0 of 1 free from {port} on")
    assert port_check(facts(tmp_path, stage_ports=(port, port))).verdict == "ok"
    assert port_check(facts(tmp_path)).finding == "chosen by the kernel"


@pytest.mark.parametrize(
    ("code", "verdict", "finding"),
    [
        ('print(\'["b1", "AVX2", "native"]\')', "ok", "b1 (AVX2)"),
        ('print(\'["b1", "", "python"]\')', "warning", "the native part is missing"),
        ("raise SystemExit('no libllama')", "failed", "does not load: no libllama"),
        ("pass", "failed", "does not load: exit code 0"),
    ],
)
@pytest.mark.slow
def test_the_library_is_tried_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, code: str, verdict: str, finding: str
) -> None:
    monkeypatch.setattr(doctor_module, "_CAPABILITIES", code)
    check = llama_check()
    assert check.verdict == verdict
    assert finding in check.finding


def test_a_library_that_cannot_be_tried_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert "cannot be tried" in llama_check().finding


@pytest.mark.slow
def test_everything_is_looked_at_and_every_failure_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "_CAPABILITIES", "raise SystemExit('x')")
    checks = local_checks(facts(tmp_path))
    assert len({check.check for check in checks}) == len(checks) == 11
    assert all(check.remedy for check in checks if check.verdict == "failed")


@pytest.mark.slow
@pytest.mark.native
def test_the_real_library_loads() -> None:
    assert llama_check().verdict == "ok"


def test_models_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    assert models_check(2, {}).finding == "2 models"
    none = models_check(0, {})
    assert (none.verdict, none.finding[:4]) == ("ok", "none")
    missing = tmp_path / "absent"
    one = models_check(1, {missing: "No such file or directory"})
    assert one.verdict == "warning"
    assert one.finding.startswith(f"1 model; {missing}: No such file")
    more = {missing / str(n): "is no GGUF file" for n in range(3)}
    assert models_check(0, more).finding.endswith(", and 2 more problems")
