# Shared by the scripts of this folder; sourced, never run.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# What is going on, on standard error, so that standard output stays the answer.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

# configure PRESET: only when it has not been done yet; ninja itself redoes it when a CMake file changes.
configure() {
    local build="$ROOT/build/$1"
    if [ -f "$build/build.ninja" ] && [ ! "$ROOT/CMakePresets.json" -nt "$build/build.ninja" ]; then return 0; fi
    say "configuring build/$1"
    (cd "$ROOT" && cmake --preset "$1" >&2)
}

# build PRESET TARGET...: ninja's own words on standard error, nothing when everything is up to date.
build() {
    local preset="$1"
    shift
    configure "$preset" && cmake --build "$ROOT/build/$preset" --target "$@" >&2
}

# stowage_command PRESET: where that build put the command.
stowage_command() {
    local found
    found="$(find "$ROOT/build/$1" -name stowage -type f -perm -u+x -print -quit)"
    [ -n "$found" ] || fail "no stowage command below build/$1"
    echo "$found"
}
