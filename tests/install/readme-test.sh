#!/usr/bin/env bash
# The quick start in the README is the compiled sample, word for word.
#
#   readme-test.sh README SAMPLE
set -euo pipefail
awk -v marker="<!-- samples/consumer/main.c -->" '
    $0 == marker { found = 1; next }
    found && $0 == "```c" { inside = 1; next }
    inside && $0 == "```" { exit }
    inside { print }' "$1" | diff - "$2" || {
    echo "README.md does not show $2 as it is" >&2
    exit 1
}
