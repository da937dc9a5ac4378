#!/usr/bin/env bash
# The whole suite as two runs side by side, on two cores nearly twice as fast as one: what
# starts processes in the background, the rest before your eyes. With arguments: one run.
set -uo pipefail
cd "$(dirname "$0")/.."
pytest=(.venv/bin/python -m pytest)
(($#)) && exec "${pytest[@]}" "$@"

processes=(tests/e2e tests/soak tests/daemon tests/cli tests/proving)
output=$(mktemp)
trap 'rm -f "$output"' EXIT
echo "[test] ${processes[*]}: beside the rest, shown when that has ended" >&2
"${pytest[@]}" "${processes[@]}" >"$output" 2>&1 &
beside=$!
trap 'kill -INT "$beside" 2>/dev/null' INT TERM

"${pytest[@]}" "${processes[@]/#/--ignore=}"
rest=$?
wait "$beside"
processes_verdict=$?
cat "$output"
exit $((rest | processes_verdict))
