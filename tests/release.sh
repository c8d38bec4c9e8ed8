#!/usr/bin/env bash
# Before a release, beside `.ci/run`: what is declared and not run every day. Each part makes environments of its own in a
# temporary folder; all of them take gigabytes, a network, and an hour or more.
#     tests/release.sh [oldest] [alone] [built] [pure] [thorough] [audit]      (default: all)
# PYTHON and OLDEST_PYTHON name the interpreters: python3 and python3.10.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
export OMP_NUM_THREADS=1
root=$PWD work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# environment NAME PYTHON REQUIREMENT...: makes one and names its folder in $env.
environment() {
    env=$work/$1
    "$2" -m venv "$env"
    "$env/bin/pip" install -q "${@:3}"
}

# The oldest torch and Python that pyproject.toml declares, with the torchvision of that time.
oldest() {
    environment oldest "${OLDEST_PYTHON:-python3.10}" torch==2.6.0 torchvision==0.21.0
    "$env/bin/pip" freeze | grep -E '^(torch|torchvision)==' > "$work/oldest.txt"
    "$env/bin/pip" install -q -c "$work/oldest.txt" -e '.[test]'
    "$env/bin/python" -m pytest -n auto
}

# torch without torchvision: what compares with it is skipped, everything else passes.
alone() {
    environment alone "${PYTHON:-python3}" -e '.[test]'
    "$env/bin/pip" uninstall -q -y torchvision
    "$env/bin/python" -m pytest -n auto
}

# test_wheel NAME WHEEL: the tests against the installed wheel, in a folder without the sources of the package.
test_wheel() {
    environment "$1" "${PYTHON:-python3}" "iou-losses[test] @ file://$2"
    mkdir "$work/$1-elsewhere"
    cp -r tests examples benchmarks docs ./*.md mkdocs.yml pyproject.toml "$work/$1-elsewhere"
    cd "$work/$1-elsewhere"
    "$env/bin/python" -c 'import iou_losses; print(iou_losses.__file__, iou_losses.native_isa())'
    "$env/bin/python" -m pytest -n auto tests/test_*.py tests/machinery
    cd "$root"
}

# The wheel that the sdist gives, with the engine.
built() {
    environment build "${PYTHON:-python3}" build
    "$env/bin/python" -m build --outdir "$work/dist"
    test_wheel engine "$(ls "$work"/dist/*.whl)"
}

# The wheel of a machine without a compiler, which has no engine and skips the tests of it.
pure() {
    environment build-pure "${PYTHON:-python3}" build
    CXX=/bin/false "$env/bin/python" -m build --wheel --outdir "$work/pure"
    test_wheel pure "$(ls "$work"/pure/*-none-any.whl)"
}

# Every loss through what takes seconds each: inductor, aot_eager, ONNX, export.
thorough() {
    environment thorough "${PYTHON:-python3}" -e '.[test]' onnx onnxscript onnxruntime
    "$env/bin/python" -m pytest -n auto -m thorough
}

# Known vulnerabilities of what gets installed. Without a network it finds nothing and says so as if all were well.
audit() {
    environment audit "${PYTHON:-python3}" . pip-audit
    "$env/bin/pip-audit" --desc
}

(($#)) || set -- oldest alone built pure thorough audit
for part; do "$part"; done
