#!/bin/sh
# Brings .venv up to date: `environment.sh run` for running, `dev` for testing as well.
# Reuses what is current, and talks on standard error only: standard output belongs to
# the program that is started afterwards.
set -eu
exec >&2
cd "$(dirname "$0")/.."

PIP_VERSION=26.3 # the first step needs a pip that reuses built wheels under hashes
venv=.venv
profile=${1:?usage: environment.sh run|dev}

say() { echo "[environment] $*"; }
die() { say "$*"; exit 1; }

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
}

find_compiler() {
    for candidate in ${CXX:-c++ g++ clang++}; do
        if command -v "$candidate" >/dev/null; then return 0; fi
    done
    return 1
}

need_compiler() {
    find_compiler || die "a C++ compiler is needed to build llama.cpp and none of" \
        "${CXX:-c++, g++, clang++} is there; on Debian and Ubuntu: apt-get install g++"
}

# The place is part of it: scripts in an environment name their interpreter absolutely.
key() { { pwd -P; "$venv/bin/python" -VV; cat "$@"; } | sha256sum | cut -d' ' -f1; }
is_current() { [ -f "$venv/.stamp-$1" ] && [ "$(cat "$venv/.stamp-$1")" = "$2" ]; }

create() {
    python=$(find_python)
    [ -n "$python" ] || die "Python 3.11 or newer is needed and none of" \
        "${PYTHON:-python3, python3.14 ... python3.11} is; install one, or name it: make PYTHON=/path/to/python3"
    need_compiler # said before anything is made
    say "creating $venv with $("$python" -V)"
    rm -rf "$venv"
    "$python" -m venv "$venv" || {
        rm -rf "$venv"
        die "creating $venv failed; on Debian and Ubuntu: apt-get install python3-venv"
    }
    pwd -P >"$venv/.place"
}

install_requirements() {
    need_compiler
    pip="$venv/bin/python -m pip --disable-pip-version-check -qq"
    [ "$($venv/bin/python -c 'import pip; print(pip.__version__)')" = "$PIP_VERSION" ] ||
        $pip install "pip==$PIP_VERSION"
    llama=$(sed -n 's/^llama-cpp-python==\([0-9.]*\).*/\1/p' requirements.lock)
    if [ ! -d "$(echo "$venv"/lib/python3*/site-packages/llama_cpp_python-"$llama".dist-info)" ]; then
        say "llama.cpp is compiled now: about five minutes, once (pip keeps the result)"
    fi
    say "installing $1"
    $pip install --require-hashes --requirement "$1"
}

install_project() {
    say "building the native part and installing skippyd in place"
    $venv/bin/python -m pip --disable-pip-version-check -qq \
        install --no-deps --no-build-isolation --editable .
}

if ! "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    { [ -f "$venv/.place" ] && [ "$(cat "$venv/.place")" != "$(pwd -P)" ]; }; then
    create
fi

run_key=$(key requirements.lock)
dev_key=$(key requirements-dev.lock)
case $profile in
dev)
    if ! is_current dev "$dev_key"; then
        install_requirements requirements-dev.lock
        echo "$dev_key" >"$venv/.stamp-dev"
        # The development lock holds the other one whole (a test says so).
        echo "$run_key" >"$venv/.stamp-run"
    fi
    ;;
run)
    if ! is_current run "$run_key"; then
        install_requirements requirements.lock
        echo "$run_key" >"$venv/.stamp-run"
        rm -f "$venv/.stamp-dev"
    fi
    ;;
*) die "unknown profile $profile; run or dev" ;;
esac

project_key=$(key requirements.lock setup.py pyproject.toml skippyd/runtime/llama/*.[ch]pp)
if ! is_current project "$project_key" || [ ! -f skippyd/runtime/llama/libskippy_native.so ]; then
    install_project
    echo "$project_key" >"$venv/.stamp-project"
fi
