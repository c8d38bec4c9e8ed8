#!/usr/bin/env bash
# libFuzzer on the engine's C entry points under the sanitizers; needs clang and its runtimes (Debian: clang,
# libclang-rt-14-dev). Options of libFuzzer and folders of inputs follow:
#     tests/native/fuzz.sh -max_total_time=300
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/native/kernels.sh
compiler=${CXX:-clang++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile "$work" generic "$compiler" "${sanitize[@]}" -fsanitize=fuzzer-no-link
"$compiler" "${sanitize[@]}" -fsanitize=fuzzer -o "$work/fuzz" tests/native/fuzz.cpp "$work"/*.o -pthread
"$work/fuzz" -max_len=4096 -len_control=0 -artifact_prefix="$PWD/build/" "$@"
