"""Builds the native library beside the Python files; the rest is in pyproject.toml."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build


PACKAGE = Path("skippyd/runtime/llama")
SOURCES = sorted(PACKAGE.glob("*.cpp"))
LIBRARY = PACKAGE / "libskippy_native.so"
FLAGS = ("-O2", "-std=c++17", "-fPIC", "-shared", "-Wall", "-Wextra")


class BuildNative(Command):
    """Compile the native part with the system's C++ compiler; no Python headers."""

    description = "compile the native library"
    user_options = []
    editable_mode = False  # set by setuptools: build into the source tree

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        output = self._output()
        output.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: a process that has the old library open keeps it whole.
        unfinished = output.with_name(f"{output.name}.{os.getpid()}")
        command = [*_compiler(), *FLAGS, *map(str, SOURCES), "-o", str(unfinished)]
        self.announce(shlex.join(command), level=2)
        try:
            subprocess.run(command, check=True)
        except subprocess.CalledProcessError as error:
            unfinished.unlink(missing_ok=True)
            sys.exit(f"skippyd: compiling {PACKAGE} failed (see above): {error}")
        unfinished.replace(output)

    def get_source_files(self) -> list[str]:
        return [str(path) for path in (*SOURCES, *PACKAGE.glob("*.hpp"))]

    def get_outputs(self) -> list[str]:
        return [str(self._output())]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _output(self) -> Path:
        if self.editable_mode or self.build_lib is None:
            return LIBRARY
        return Path(self.build_lib) / LIBRARY


class Build(build):
    """The usual build, then the native part."""

    sub_commands = [*build.sub_commands, ("build_native", None)]


class NativeDistribution(Distribution):
    """A distribution that is not the same on every platform."""

    def has_ext_modules(self) -> bool:
        return True


class NativeWheel(bdist_wheel):
    """A wheel for one platform and any Python: the library does not link to it."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CXX", ""))
    for candidate in [named] if named else [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(candidate[0]):
            return candidate
    sys.exit(
        f"skippyd: no C++ compiler ({' '.join(named) or 'c++, g++, clang++'}) found; "
        "install one (Debian, Ubuntu: apt-get install g++) or set CXX"
    )


if not sys.platform.startswith("linux"):
    sys.exit(f"skippyd: runs on Linux only, this is {sys.platform}")

setup(
    cmdclass={
        "build": Build,
        "build_native": BuildNative,
        "bdist_wheel": NativeWheel,
    },
    distclass=NativeDistribution,
)
