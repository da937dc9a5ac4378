from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.config.daemon import LogLevel
from skippyd.config.endpoints import Endpoint
from skippyd.config.layers import (
    DEFAULT_ORIGIN,
    NOT_OURS,
    environment_layers,
    layer_of_setting,
    load_daemon_config,
)
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from pathlib import Path


def _file(folder: Path, text: str, name: str = "skippyd.toml") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_flag_beats_environment_beats_additions_beats_file(tmp_path: Path) -> None:
    path = _file(
        tmp_path, '[node]\nname = "file"\nlog_level = "error"\nstate_dir = "/f"\n'
    )
    _file(tmp_path, '[node]\nname = "b"\nstate_dir = "/b"\n', "skippyd.toml.d/20.toml")
    _file(tmp_path, '[node]\nname = "a"\nstate_dir = "/a"\n', "skippyd.toml.d/10.toml")
    loaded = load_daemon_config(
        path,
        environment={"SKIPPY_NODE_NAME": "environment", "PATH": "/bin"},
        flags=[layer_of_setting("node.log_level=debug", "--set")],
    )
    node = loaded.config.node
    assert (node.name, node.state_dir) == ("environment", "/b")
    assert node.log_level is LogLevel.DEBUG
    assert loaded.origin_of("node.name") == "SKIPPY_NODE_NAME"
    assert loaded.origin_of("node.state_dir").endswith("20.toml")
    assert loaded.origin_of("node.log_level") == "--set node.log_level"
    assert loaded.origin_of("control.bind") == DEFAULT_ORIGIN


def test_values_have_the_types_of_their_keys(tmp_path: Path) -> None:
    loaded = load_daemon_config(
        tmp_path / "absent.toml",
        environment={
            "SKIPPY_CONTROL_BIND": "0.0.0.0:9500",
            "SKIPPY_STAGES_ALLOW_PLAINTEXT": "true",
            "SKIPPY_STAGES_MAX_MEMORY": "4 GiB",
            "SKIPPY_STAGES_FIRST_PORT": "19000",
            "SKIPPY_STAGES_LAST_PORT": "19001",
            "SKIPPY_MODELS_PATHS": '["/models", "/more"]',
        },
        is_required=False,
    )
    config = loaded.config
    assert config.control.bind == Endpoint("0.0.0.0", 9500)
    assert config.stages.allow_plaintext
    assert config.stages.max_memory == 4 * 2**30
    assert (config.stages.first_port, config.stages.last_port) == (19000, 19001)
    assert config.models.paths == ("/models", "/more")


def test_every_complaint_has_its_path_and_its_file(tmp_path: Path) -> None:
    path = _file(tmp_path, '[node]\nnmae = "x"\n[stages]\nhost = 5\n')
    with pytest.raises(ConfigError) as caught:
        load_daemon_config(path, environment={})
    text = str(caught.value)
    assert str(path) in text
    assert "node.nmae: unknown key; did you mean name?" in text
    assert "stages.host" in text


@pytest.mark.parametrize(
    "name", ["SKIPPY_NODE", "SKIPPY_NODES_NAME", "SKIPPY_PEERS_ID"]
)
def test_a_variable_that_would_do_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        list(environment_layers({name: "x"}))


def test_variables_of_other_parts_are_left_alone() -> None:
    assert list(environment_layers(dict.fromkeys(NOT_OURS, "1"))) == []


@pytest.mark.parametrize("text", ["node.name", "name=x", "node.=x", ".name=x", "=x"])
def test_a_setting_has_one_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"TABLE\.KEY=VALUE"):
        layer_of_setting(text, "--set")


def test_a_missing_file_is_an_error_when_it_was_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        load_daemon_config(tmp_path / "absent.toml", environment={})


def test_the_schema_is_checked_when_it_is_written(tmp_path: Path) -> None:
    good = _file(tmp_path, 'schema = "skippy.daemon/1"\n')
    assert load_daemon_config(good, environment={}).config.peers == ()
    wrong = _file(tmp_path, 'schema = "skippy.daemon/2"\n', "other.toml")
    with pytest.raises(ConfigError, match="schema"):
        load_daemon_config(wrong, environment={})


def test_a_value_where_a_table_belongs_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path, "node = 5\n")
    with pytest.raises(ConfigError, match="node"):
        load_daemon_config(path, environment={"SKIPPY_NODE_NAME": "x"})


def test_peers_are_read_whole(tmp_path: Path) -> None:
    node_id = "ab" * 32
    path = _file(
        tmp_path,
        f'[[peers]]\nid = "{node_id}"\naddress = "192.0.2.1:9401"\n'
        'certificate = "/etc/skippyd/peers/b.pem"\n',
    )
    (peer,) = load_daemon_config(path, environment={}).config.peers
    assert (peer.id, peer.address) == (node_id, Endpoint("192.0.2.1", 9401))
