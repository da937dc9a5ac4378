#!/bin/sh
# Writes requirements-dev.lock, then requirements.lock as the part of it that running
# needs: exact versions with hashes, no index and no place of this machine in the files.
set -eu
cd "$(dirname "$0")/.."

PIP_TOOLS_VERSION=7.6.2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

echo "[lock] resolving; a few minutes" >&2
"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip --disable-pip-version-check --quiet \
    install "pip-tools==$PIP_TOOLS_VERSION"

compile() { # output, further options
    output=$1
    shift
    "$scratch/venv/bin/pip-compile" pyproject.toml --build-deps-for editable \
        --allow-unsafe --generate-hashes --strip-extras --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
        --no-emit-options --quiet --output-file "$output" "$@"
}

compile "$scratch/dev.lock" --extra dev
compile "$scratch/run.lock" --constraint "$scratch/dev.lock"
cp "$scratch/dev.lock" requirements-dev.lock
cp "$scratch/run.lock" requirements.lock
