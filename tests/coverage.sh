#!/usr/bin/env bash
# Coverage of lines and branches: of the package by the default tests and the integrations, of the engine by its tests.
# Needs `pip install pytest-cov gcovr`, and gcc with its gcov.
#     tests/coverage.sh [python|engine]
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/native/kernels.sh
least=97 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

of_python() {
    export OMP_NUM_THREADS=1 COVERAGE_FILE=$work/coverage
    local measure=(--cov=iou_losses --cov-branch --cov-append)
    "${PYTHON:-python}" -m pytest -q "${measure[@]}" --cov-report=
    "${PYTHON:-python}" -m pytest -q tests/integrations "${measure[@]}" --cov-report=term-missing:skip-covered \
        --cov-fail-under="$least"
}

of_engine() {
    local compiler=${CXX:-g++}
    # Out of line, and with no way out by an exception, a formula's branches are those that are written there. What is
    # left are ways out of other calls by exceptions that nothing throws. Threads may lose a count, which atomic
    # counters would cost three times the time to keep.
    compile "$work" generic "$compiler" -O0 --coverage -Dalways_inline=nothrow
    "$compiler" --coverage -shared -o "$work/engine.so" "$work"/*.o -pthread
    test_engine "$work/engine.so"
    "${PYTHON:-python}" -m gcovr --root . --filter iou_losses/native/csrc/ --gcov-object-directory "$work" \
        --gcov-suspicious-hits-threshold 0 --gcov-ignore-parse-errors=negative_hits.warn_once_per_file --merge-lines \
        --exclude-throw-branches --exclude-unreachable-branches --txt --txt-summary \
        --fail-under-line "$least" --fail-under-branch "$least"
}

for part in ${1:-python engine}; do "of_$part"; done
