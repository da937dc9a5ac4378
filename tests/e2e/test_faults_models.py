"""A model or configuration that cannot be served ends a stage with one clear line."""

from __future__ import annotations

import json
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ExitCode
from support import gguf_bytes as gb
from support.gguf_bytes import TinyLlama
from support.stage_cli import COMMAND


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.slow]

BIG_ENDIAN = b"GGUF" + b"\x00\x00\x00\x03" + bytes(16)


def config_of(model: Path, **changes: object) -> dict[str, object]:
    document: dict[str, object] = {
        "run_id": "r",
        "topology_id": "t",
        "model_id": "m",
        "stage_id": "stage-0",
        "stage_index": 0,
        "layer_start": 0,
        "layer_end": 3,
        "load_mode": "runtime-slice",
        "bind_addr": "127.0.0.1:0",
        "model_path": str(model),
    }
    return document | changes


def serve(folder: Path, document: dict[str, object]) -> tuple[int, str]:
    """Exit code and the one line of `skippyd serve-binary` with this configuration."""
    path = folder / "stage.json"
    path.write_text(json.dumps(document))
    done = subprocess.run(
        [*COMMAND, "serve-binary", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return done.returncode, line


MODELS: dict[str, tuple[bytes, str]] = {
    "truncated": (TinyLlama().to_bytes()[:-100], "truncated: tensor"),
    "wrong magic": (gb.gguf(magic=b"GGML"), "not a GGUF file"),
    "big-endian": (BIG_ENDIAN, "big-endian"),
    "oversized count": (gb.gguf(tensor_count=2**40), "tensors"),
    "vocabulary only": (
        gb.gguf(TinyLlama().entries()),
        "holds a vocabulary and no weights",
    ),
    "zero layers": (
        TinyLlama(
            replaced={"llama.block_count": gb.u32("llama.block_count", 0)}
        ).to_bytes(),
        "has 0 layers",
    ),
    "missing tensor": (
        TinyLlama(without=frozenset({"blk.1.ffn_up.weight"})).to_bytes(),
        "blk.1.ffn_up.weight",
    ),
}


@pytest.mark.parametrize("fault", MODELS)
def test_a_broken_model_is_named_with_what_is_wrong(tmp_path: Path, fault: str) -> None:
    data, words = MODELS[fault]
    model = tmp_path / "broken.gguf"
    model.write_bytes(data)
    code, line = serve(tmp_path, config_of(model))
    assert code == ExitCode.FAILED
    assert line.startswith("skippyd: ")
    assert "broken.gguf" in line
    assert words in line


def test_a_cut_out_of_range_is_refused_with_the_layers_there_are(
    tmp_path: Path,
) -> None:
    model = TinyLlama().write(tmp_path / "m.gguf")
    code, line = serve(tmp_path, config_of(model, layer_end=4))
    assert code == ExitCode.REFUSED
    assert "out of range: the model has 3 layers" in line


def test_a_last_layer_without_end_of_the_chain_is_a_contradiction(
    tmp_path: Path,
) -> None:
    model = TinyLlama().write(tmp_path / "m.gguf")
    code, line = serve(tmp_path, config_of(model, layer_end=2))
    assert code == ExitCode.BAD_CONFIGURATION
    assert "no downstream stage; name the stage that holds the next layers" in line


def test_a_port_in_use_is_named_before_the_model_is_loaded(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        missing = tmp_path / "not-looked-at.gguf"
        code, line = serve(tmp_path, config_of(missing, bind_addr=address))
    assert code == ExitCode.FAILED
    assert f"cannot listen on {address}: Address already in use" in line
    assert "choose another bind_addr" in line


def test_a_misspelt_key_is_named_with_the_one_that_is_meant(tmp_path: Path) -> None:
    document = config_of(tmp_path / "m.gguf", lane_cuont=2)
    code, line = serve(tmp_path, document)
    assert code == ExitCode.BAD_CONFIGURATION
    assert "lane_cuont" in line
    assert "lane_count" in line


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, line = serve(tmp_path, config_of(tmp_path / "nowhere.gguf"))
    assert code in {ExitCode.FAILED, ExitCode.BAD_CONFIGURATION}
    assert "nowhere.gguf" in line
    assert "No such file" in line
