from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from skippyd.cli.main import main
from skippyd.errors import ExitCode


if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "skippyd.toml"
    file.write_text('[node]\nname = "atlas"\n')
    return str(file)


def test_check_says_that_it_is_valid(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", "--config", path]) == ExitCode.DONE
    assert capsys.readouterr().out == f"{path}: valid\n"


def test_check_says_what_is_wrong(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["config", "check", "--config", path, "--set", "node.nmae=x"]
    assert main(arguments) == ExitCode.BAD_CONFIGURATION
    assert "did you mean name?" in capsys.readouterr().err


def test_check_refuses_what_a_daemon_could_not_start_with(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--set", "openai.bind=0.0.0.0:9337", "--set", "admin.read_group=nobody-"]
    flags += ["--set", f"node.state_dir={tmp_path / 'state'}"]
    arguments = ["config", "check", "--config", path, *flags]
    assert main(arguments) == ExitCode.BAD_CONFIGURATION
    captured = capsys.readouterr()
    door, group = captured.err.splitlines()
    assert door.startswith("skippyd: [openai] bind: 0.0.0.0 is not loopback")
    assert group.startswith("skippyd: [admin] read_group 'nobody-'")
    assert captured.out == ""
    assert not (tmp_path / "state").exists()


def test_check_warns_about_what_a_daemon_would_start_with(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = tmp_path / "models"
    flags = ["--set", f'models.paths=["{absent}"]']
    assert main(["config", "check", "--config", path, *flags]) == ExitCode.DONE
    captured = capsys.readouterr()
    assert captured.out == f"{path}: valid\n"
    assert f"{path}: warning: [models] paths: {absent} does not exist" in captured.err


def test_check_says_that_the_default_file_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    default = tmp_path / "absent.toml"
    monkeypatch.setattr("skippyd.cli.run.DEFAULT_CONFIG_PATH", str(default))
    assert main(["config", "check", "--config", str(default)]) == ExitCode.DONE
    assert "there is no such file: defaults are checked" in capsys.readouterr().err


def test_show_prints_what_can_be_read_again(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["config", "show", "--config", path, "--origin"])
    shown = capsys.readouterr().out
    assert f'name = "atlas"  # {path}' in shown
    assert 'log_level = "info"  # default' in shown
    again = tmp_path / "again.toml"
    again.write_text(shown)
    main(["config", "show", "--config", str(again)])
    main(["config", "show", "--config", path])
    first, second = capsys.readouterr().out.split("peers = []", 2)[1:]
    assert first == second


def test_show_as_json_has_every_value_with_its_origin(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--set", "stages.host=::1"]
    main(["config", "show", "--config", path, "--json", *flags])
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "skippy.config/1"
    values = document["values"]
    assert values["node.name"] == {"value": "atlas", "origin": path}
    assert values["stages.host"] == {"value": "::1", "origin": "--set stages.host"}
    assert values["openai.bind"] == {"value": None, "origin": "default"}
