"""What `run`, `config check` and a reload refuse or warn about, without a start."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.config.daemon import (
    DEFAULT_ADMIN_SOCKET,
    AdminTable,
    ControlTable,
    ModelsTable,
    NodeTable,
    OpenAiTable,
    PeerTable,
    StagesTable,
)
from skippyd.config.endpoints import Endpoint
from skippyd.coordination.identity import load_or_create
from skippyd.daemon import config_checks
from skippyd.daemon.config_checks import checked_config
from skippyd.daemon.safe_mode import VARIABLE
from skippyd.errors import ConfigError
from skippyd.ids import NodeId
from support.running_nodes import node_config


if TYPE_CHECKING:
    from pathlib import Path

    from support.running_nodes import Table

KEY = "0123456789abcdef"


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The groups of this machine; both defaults are there."""
    known = {"skippy": 101, "skippy-admin": 102}
    monkeypatch.setattr(config_checks, "group_id", known.get)
    return known


def _refusals(folder: Path, **tables: Table) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        checked_config(node_config(folder, **tables), {})
    return str(refused.value).splitlines()


def _warnings(folder: Path, **tables: Table) -> tuple[str, ...]:
    return checked_config(node_config(folder, **tables), {}).warnings


def test_a_plain_configuration_is_fine_and_leaves_no_trace(tmp_path: Path) -> None:
    found = checked_config(node_config(tmp_path), {})
    assert (found.keys, found.warnings) == (None, ())
    assert list(tmp_path.iterdir()) == []


def test_a_door_off_loopback_needs_keys(tmp_path: Path) -> None:
    door = OpenAiTable(bind=Endpoint("0.0.0.0", 9337))
    (line,) = _refusals(tmp_path, openai=door)
    assert "[openai] bind: 0.0.0.0 is not loopback and there are no API keys" in line
    keys = tmp_path / "keys"
    (line,) = _refusals(tmp_path, openai=attrs.evolve(door, api_keys_file=str(keys)))
    assert line.startswith(f"API keys {keys}: No such file")
    keys.write_text(f"{KEY}\n")
    keys.chmod(0o600)
    with_keys = OpenAiTable(bind=Endpoint("0.0.0.0", 9337), api_keys_file=str(keys))
    found = checked_config(node_config(tmp_path, openai=with_keys), {})
    assert found.keys is not None
    assert found.keys.admits(f"Bearer {KEY}")


def test_every_reason_is_told_at_once(tmp_path: Path) -> None:
    lines = _refusals(
        tmp_path,
        control=ControlTable(bind=Endpoint("192.0.2.1", 9401)),
        stages=StagesTable(host="192.0.2.1"),
        openai=OpenAiTable(api_keys_file=str(tmp_path / "keys")),
        admin=AdminTable(socket="/" + "x" * 200, read_group="nobody-here"),
    )
    assert [line.partition(":")[0] for line in lines] == [
        "[control] bind 192.0.2.1",
        "[stages] host 192.0.2.1",
        f"API keys {tmp_path / 'keys'}",
        "/" + "x" * 200,
        "[admin] read_group 'nobody-here'",
    ]


def test_an_address_that_a_running_daemon_has_is_fine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = Endpoint("127.0.0.1", taken.getsockname()[1])
        assert not _warnings(tmp_path, control=ControlTable(bind=bind))


def test_an_unspecified_control_address_can_invite_nobody(tmp_path: Path) -> None:
    bind = Endpoint("0.0.0.0", 9401)
    (warning,) = _warnings(tmp_path, control=ControlTable(bind=bind))
    assert "set [control] advertise" in warning
    told = ControlTable(bind=bind, advertise=Endpoint("192.0.2.1", 9401))
    assert _warnings(tmp_path, control=told) == ()


def test_plaintext_off_loopback_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_checks, "check_address", lambda *_: None)
    (warning,) = _warnings(
        tmp_path, stages=StagesTable(host="192.0.2.1", allow_plaintext=True)
    )
    assert "not encrypted" in warning


def test_a_group_that_was_named_is_to_be_there(
    tmp_path: Path, groups: dict[str, int]
) -> None:
    named = AdminTable(socket=str(tmp_path / "s"), write_group="operators")
    (line,) = _refusals(tmp_path, admin=named)
    assert line.startswith("[admin] write_group 'operators': this machine has no such")
    groups["operators"] = 103
    assert _warnings(tmp_path, admin=named) == ()


def test_default_groups_that_are_not_there_are_told(
    tmp_path: Path, groups: dict[str, int]
) -> None:
    del groups["skippy-admin"]
    (warning,) = _warnings(tmp_path)
    assert "no group skippy-admin (write_group): only root" in warning
    assert "can change anything with skippyctl" in warning
    groups.clear()
    (warning,) = _warnings(tmp_path)
    assert "no group skippy (read_group) and skippy-admin (write_group)" in warning
    assert "can use skippyctl" in warning


def test_model_folders_that_are_no_help_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent, closed = tmp_path / "absent", tmp_path / "closed"
    closed.mkdir()
    monkeypatch.setattr("os.access", lambda path, _: path != closed)
    models = ModelsTable(paths=(str(absent), str(closed), str(tmp_path)))
    first, second = _warnings(tmp_path, models=models)
    assert first.startswith(f"[models] paths: {absent} does not exist")
    assert second.startswith(f"[models] paths: {closed} cannot be read by user id")


def test_a_socket_needs_a_folder_and_a_place_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = AdminTable(socket=str(tmp_path / "absent" / "s"))
    (line,) = _refusals(tmp_path, admin=lost)
    assert line.endswith("its folder does not exist; create it first")
    (tmp_path / "file").write_text("")
    (line,) = _refusals(tmp_path, admin=AdminTable(socket=str(tmp_path / "file")))
    assert "is there already and is no socket" in line
    # The folder of the packaged default comes and goes with the service.
    default = str(tmp_path / "absent" / "admin.sock")
    monkeypatch.setattr(config_checks, "DEFAULT_ADMIN_SOCKET", default)
    (warning,) = _warnings(tmp_path, admin=AdminTable(socket=default))
    assert "the service makes it" in warning
    assert default != DEFAULT_ADMIN_SOCKET


def test_a_state_directory_is_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = attrs.evolve(
        node_config(tmp_path), node=NodeTable(state_dir=str(tmp_path / "file" / "s"))
    )
    with pytest.raises(ConfigError, match="is no directory"):
        checked_config(config, {})


def test_a_state_directory_is_to_be_ours_or_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = node_config(tmp_path)
    monkeypatch.setattr("os.access", lambda path, _: path != tmp_path)
    with pytest.raises(ConfigError, match=f"cannot make it in {tmp_path}"):
        checked_config(config, {})
    (tmp_path / "state").mkdir()
    checked_config(config, {})
    monkeypatch.setattr("os.geteuid", lambda: 4_242)
    with pytest.raises(ConfigError, match=r"belongs to user id .* runs as 4242"):
        checked_config(config, {})


def test_the_certificates_of_peers_are_read(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = load_or_create(tmp_path / "other")
    peer = PeerTable(
        id=other.node_id,
        address=Endpoint("192.0.2.1", 9401),
        certificate=str(tmp_path / "other" / "identity.pem"),
    )
    config = node_config(tmp_path)
    checked_config(attrs.evolve(config, peers=(peer,)), {})
    liar = attrs.evolve(peer, id=NodeId("a" * 64))
    absent = attrs.evolve(peer, certificate=str(tmp_path / "absent.pem"))
    with pytest.raises(ConfigError, match=f"belongs to node {other.node_id}"):
        checked_config(attrs.evolve(config, peers=(liar,)), {})
    with pytest.raises(ConfigError, match=r"absent\.pem cannot be read"):
        checked_config(attrs.evolve(config, peers=(absent,)), {})


@pytest.mark.parametrize("name", [VARIABLE, "SKIPPY_TEST_FAIL_POINT"])
def test_variables_that_a_start_refuses_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='perhaps'"):
        checked_config(node_config(tmp_path), {name: "perhaps"})
