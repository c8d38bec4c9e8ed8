# Builds the engine for the scripts beside this file, which source it at the root of the repository.
declare -A isa_flags=([generic]="" [avx2]=-march=haswell [avx512]="-march=skylake-avx512 -mprefer-vector-width=512")

# The scopes of locals are left out: looking after them in always-inlined formulas, which keep no address of one,
# multiplies the time to compile by ten.
sanitize=(-std=c++17 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all
    -fno-sanitize-address-use-after-scope)

# compile FOLDER ISA COMPILER FLAG...: an object file in FOLDER for each source, by CMakeLists.txt's rules for
# floating point. Without -O3 most loops do not vectorise, and -w leaves out the warnings of that.
compile() {
    local folder=$1 isa=$2 compiler=$3
    shift 3
    printf '%s\n' iou_losses/native/csrc/*.cpp | xargs -P "$(nproc)" -I{} sh -c '"$@" -o "$0/$(basename {} .cpp).o" {}' \
        "$folder" "$compiler" -std=c++17 -w -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math \
        -fno-signed-zeros -ffp-contract=off ${isa_flags[$isa]} "$@" -c
}

# test_engine LIBRARY PYTEST_ARGUMENT...: the tests that reach every entry point, by the library. Where torch does the
# same job, they have nothing to find. What a sanitizer writes as it ends the process is not captured.
test_engine() {
    ENGINE=$1 OMP_NUM_THREADS=2 PYTHONPATH=tests/native${PYTHONPATH:+:$PYTHONPATH} \
        "${PYTHON:-python}" -m pytest -p engine_plugin -p no:cacheprovider --capture=sys -q -m "not slow" \
        -k "not (formula and (test_matching or test_suppression))" "${@:2}" \
        tests/test_native.py tests/test_dtypes_and_formats.py tests/test_pairwise.py tests/test_matching.py \
        tests/test_suppression.py tests/test_inputs.py tests/test_threads.py
}
