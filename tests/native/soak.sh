#!/usr/bin/env bash
# Random pairs of boxes of every kind through the whole engine under the address and undefined-behaviour sanitizers:
#     tests/native/soak.sh [--pairs N] [--seed N] [--isa generic|avx2|avx512]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/native/kernels.sh
compiler=${CXX:-g++} isa=generic pairs=1000000 seed=1
while [ $# -gt 0 ]; do
    case $1 in
        --pairs | --seed | --isa) printf -v "${1#--}" %s "${2:?$1 needs a value}" && shift 2 ;;
        *) echo "unknown argument: $1" >&2 && exit 2 ;;
    esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile "$work" "$isa" "$compiler" "${sanitize[@]}"
"$compiler" "${sanitize[@]}" -o "$work/soak" tests/native/soak.cpp "$work"/*.o -pthread
"$work/soak" "$pairs" "$seed"
