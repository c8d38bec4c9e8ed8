#!/usr/bin/env bash
# The engine under the address and undefined-behaviour sanitizers, of one instruction set: its tests, then a million
# random pairs.
#     tests/native/sanitize.sh [generic|avx2|avx512]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/native/kernels.sh
compiler=${CXX:-g++} isa=${1:-generic}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile "$work" "$isa" "$compiler" "${sanitize[@]}"
"$compiler" "${sanitize[@]}" -shared -o "$work/engine.so" "$work"/*.o -pthread
"$compiler" "${sanitize[@]}" -o "$work/soak" tests/native/soak.cpp "$work"/*.o -pthread
"$work/soak" 1000000

# Python itself has no sanitizer in it, so the runtime is loaded before it, and libstdc++ with it, whose exceptions it
# intercepts. Python and torch keep memory until they exit, which is no leak of the engine's.
libraries=$("$compiler" -print-file-name=libasan.so):$("$compiler" -print-file-name=libstdc++.so.6)
LD_PRELOAD=$libraries ASAN_OPTIONS=detect_leaks=0 test_engine "$work/engine.so"
