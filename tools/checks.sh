# The checks of `tools/test --all` that are more than a build; sourced, never run.

# Files of git, or of the tree when this is an unpacked archive.
source_files() {
    cd "$ROOT"
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- '*.hpp' '*.cpp' '*.cu' '*.cuh'
    else
        find . -path './build*' -prune -o -path ./out -prune -o \
            \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -printf '%P\n'
    fi | while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done
}

check_format() {
    # One version for all: what another version lays out differently is nobody's mistake.
    if ! command -v clang-format-14 >/dev/null; then
        say "clang-format-14 is not to be had here: format not checked"
        return 0
    fi
    (cd "$ROOT" && source_files | xargs -r clang-format-14 --dry-run -Werror) || fail "run: clang-format-14 -i on the files named"
    say "format: $(source_files | wc -l) files"
}

# Nothing is built twice: where nvcc is, preset ci builds what needs it too. Preset cuda differs in nothing but in
# taking a missing toolkit for an error, and that is looked for here.
check_cuda() {
    local code
    # Not the programs kept beside a measurement: no target builds them.
    code="$(source_files | grep -E '\.cuh?$' | grep -v '^docs/measurements/' || true)"
    if [ -z "$code" ]; then
        say "there is no CUDA code yet: nothing for nvcc to compile"
    elif ! command -v nvcc >/dev/null; then
        say "no nvcc on PATH: not compiled: $(echo "$code" | wc -l) CUDA files"
    else
        build ci all  # the tests with the label gpu among it
        build ci stowage_gpu && [ -f "$ROOT/build/ci/libstowage_gpu.so" ] ||
            fail "nvcc is on PATH, yet build/ci is without CUDA: cmake --fresh --preset ci says why"
        say "nvcc compiled $(echo "$code" | wc -l) CUDA files, linked into libstowage_gpu.so"
        if has_command ci executor/workload/attention_missing.cpp; then
            say "attention is left out of it: cuDNN or its frontend was not found when build/ci was configured"
        fi
    fi
}

# has_command PRESET FILE: whether that build compiles it.
has_command() { grep -qF "\"file\": \"$ROOT/$2\"" "$ROOT/build/$1/compile_commands.json"; }

# The commit from which "changed" counts: as told, else where this branch left its upstream, else twenty commits ago.
tidy_base() {
    local base
    if [ -n "${STOWAGE_TIDY_BASE:-}" ]; then
        git rev-parse --verify "$STOWAGE_TIDY_BASE^{commit}"
        return
    fi
    base="$(git merge-base HEAD '@{upstream}' 2>/dev/null || true)"
    if [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ]; then
        echo "$base"
    else
        git rev-parse --verify -q HEAD~20 || git hash-object -t tree /dev/null
    fi
}

# Changed sources, newest first; a header stands for the source of its name.
changed_sources() {
    cd "$ROOT"
    local file
    {
        git status --porcelain --no-renames | cut -c4-
        git log --format= --name-only "$@"
    } | sed -n -e 's/\.hpp$/.cpp/' -e '/\.cpp$/p' | awk '!seen[$0]++' | while read -r file; do
        if [ -f "$file" ]; then echo "$file"; fi
    done
}

# Checks run over headers of others too before their findings are dropped: those of the cuDNN frontend take clang-tidy
# more than four minutes of processor time, more than the step has for all files.
includes_frontend() { grep -q '^#include <cudnn_frontend' "$ROOT/$1"; }

tidy_one() { # FILE: run by xargs, hence a function of its own arguments and the exported variables
    if [ "$(date +%s)" -ge "$TIDY_UNTIL" ]; then
        echo "$1" >>"$TIDY_LEFT"
        return 0
    fi
    "$TIDY" --quiet --extra-arg=-Wno-unknown-warning-option -p "$TIDY_BUILD" "$1" 2>/dev/null
}

check_tidy() {
    local base range
    TIDY="$(command -v clang-tidy-19 || command -v clang-tidy-18 || command -v clang-tidy || true)"
    if [ -z "$TIDY" ]; then
        say "no clang-tidy: not checked"
        return 0
    fi
    if ! git -C "$ROOT" rev-parse -q --verify HEAD >/dev/null; then
        say "not a git checkout, so nothing says what changed: clang-tidy left out"
        return 0
    fi
    configure "$1"
    cd "$ROOT"
    base="$(tidy_base)"
    if [ "$(git cat-file -t "$base")" = commit ]; then range="$base..HEAD"; else range=HEAD; fi
    TIDY_BUILD="$ROOT/build/$1"
    TIDY_UNTIL=$(($(date +%s) + ${STOWAGE_TIDY_SECONDS:-240}))
    TIDY_LEFT="$(mktemp)"
    export TIDY TIDY_BUILD TIDY_UNTIL TIDY_LEFT
    export -f tidy_one
    local sources file status=0
    # What this build does not compile (for want of CUDA, say) would be judged by flags guessed from another file.
    sources="$(changed_sources "$range" | while read -r file; do
        if ! has_command "$1" "$file"; then
            say "not in build/$1, so not looked at: $file"
        elif includes_frontend "$file"; then
            say "minutes in the headers of the cuDNN frontend, so not looked at: $file"
        else
            echo "$file"
        fi
    done)"
    say "$(basename "$TIDY") on $(echo "$sources" | grep -c .) files changed in $range"
    echo "$sources" | xargs -r -n 1 -P "$(nproc)" bash -c 'tidy_one "$1"' _ || status=1
    if [ -s "$TIDY_LEFT" ]; then say "out of time, not looked at: $(tr '\n' ' ' <"$TIDY_LEFT")"; fi
    rm -f "$TIDY_LEFT"
    return "$status"
}
