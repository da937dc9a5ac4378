"""API keys: read strictly, kept as digests, asked for off loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ConfigError
from skippyd.frontend.door_keys import DoorKeys, check_door_bind


if TYPE_CHECKING:
    from pathlib import Path

KEY = "0123456789abcdef"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "keys"
    path.write_bytes(text.encode())
    path.chmod(mode)
    return path


def test_each_line_is_a_key(tmp_path: Path) -> None:
    keys = DoorKeys.load(written(tmp_path, f"# comment\n\n {KEY} \n{KEY}-two\n"))
    for key in (KEY, f"{KEY}-two"):
        assert keys.admits(f"Bearer {key}")
        assert keys.admits(f"bearer {key}")


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY],
)
def test_nothing_else_is_admitted(tmp_path: Path, header: str | None) -> None:
    assert not DoorKeys.load(written(tmp_path, KEY)).admits(header)


def test_keys_are_not_shown(tmp_path: Path) -> None:
    assert repr(DoorKeys.load(written(tmp_path, KEY))) == "DoorKeys()"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds 0 keys"),
        ("# nothing\n", "holds 0 keys"),
        ("short", "line 1: a key has at least 16"),
        (f"{KEY}\nwith space in the key", "line 2"),
        (f"{KEY}ö", "line 1"),
        ("x" * (1 << 20) + "y", "longer than"),
        ("\n".join(f"{KEY}{n}" for n in range(10_001)), "holds 10001 keys"),
    ],
)
def test_a_file_that_is_not_right_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        DoorKeys.load(written(tmp_path, text))


def test_a_file_that_everybody_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chmod"):
        DoorKeys.load(written(tmp_path, KEY, 0o644))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        DoorKeys.load(tmp_path / "keys")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "atlas.example"])
def test_off_loopback_needs_keys(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="api_keys_file"):
        check_door_bind(host, None)
    check_door_bind(host, DoorKeys.load(written(tmp_path, KEY)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_does_not(host: str) -> None:
    check_door_bind(host, None)
