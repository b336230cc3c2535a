#!/usr/bin/env bash
# Installs a build into a scratch folder, builds a small program against it
# with find_package (shared and static) and with pkg-config (shared and
# static), runs each, and compiles every public header alone, as C11 and C++.
#
#   install-test.sh CMAKE BUILD_FOLDER C_COMPILER LIBRARY_FOLDER GENERATOR
set -euo pipefail

cmake=$1 build=$2 cc=$3 libdir=$4 generator=$5
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix

"$cmake" --install "$build" --prefix "$prefix" >"$tmp/install.log"
version=$(sed -n 's/^#define IDEM_VERSION "\(.*\)"/\1/p' \
    "$prefix/include/idem/version.h")

fail() {
    echo "install test: $*" >&2
    exit 1
}

check() {
    local answer
    answer=$("$1") || fail "$1 does not run"
    [ "$answer" = "$version" ] || fail "$1 says $answer, not $version"
    echo "ok: $2"
}

for file in libidem.so libidem.a pkgconfig/idem.pc; do
    [ -e "$prefix/$libdir/$file" ] || fail "$file was not installed"
done

for kind in shared static; do
    "$cmake" -S "$here/program" -B "$tmp/$kind" -G "$generator" -DKIND=$kind \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
        >"$tmp/$kind.log" || { cat "$tmp/$kind.log" >&2; fail "$kind"; }
    "$cmake" --build "$tmp/$kind" >"$tmp/$kind.log" ||
        { cat "$tmp/$kind.log" >&2; fail "$kind"; }
    check "$tmp/$kind/program" "find_package(idem), $kind"
done

# Our own .pc file alone comes from the scratch folder, and what it requires
# from where the system keeps it.
export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig
# shellcheck disable=SC2046 # The flags are words.
"$cc" -std=c11 -o "$tmp/pc-shared" "$here/program/main.c" \
    $(pkg-config --cflags --libs idem) "-Wl,-rpath,$prefix/$libdir"
check "$tmp/pc-shared" "pkg-config idem, shared"
mv "$prefix/$libdir" "$prefix/both"
mkdir "$prefix/$libdir"
cp -r "$prefix/both/pkgconfig" "$prefix/both/libidem.a" "$prefix/$libdir"
# shellcheck disable=SC2046
"$cc" -std=c11 -o "$tmp/pc-static" "$here/program/main.c" \
    $(pkg-config --static --cflags --libs idem)
check "$tmp/pc-static" "pkg-config idem, static"

warnings="-Wall -Wextra -Werror -pedantic-errors"
for header in "$prefix"/include/idem/*.h; do
    name=idem/$(basename "$header")
    # ISO C forbids an empty file, which export.h alone would be.
    printf '#include <%s>\nextern int alone;\n' "$name" >"$tmp/alone.c"
    # shellcheck disable=SC2086
    "$cc" -std=c11 $warnings -Wstrict-prototypes -I"$prefix/include" \
        -fsyntax-only "$tmp/alone.c" || fail "$name alone as C11"
    if command -v c++ >/dev/null; then
        # shellcheck disable=SC2086
        c++ -std=c++11 $warnings -I"$prefix/include" -x c++ \
            -fsyntax-only "$tmp/alone.c" || fail "$name alone as C++"
    fi
    echo "ok: $name"
done
command -v c++ >/dev/null || fail "no C++ compiler to try the headers with"

# Users see what begins with idem_ and nothing else.
others=$(nm -D --defined-only "$prefix/both/libidem.so" |
    awk '$3 !~ /^idem_/ { print $3 }')
[ -z "$others" ] || fail "the library also exports: $others"
echo "ok: exported names"
