# shellcheck shell=bash
# What the scripts of this tree share. It is sourced, never run.

# What a Debian 12 machine needs, by purpose. Each list holds what it adds to
# the one before.
IDEM_PACKAGES_SAMPLES=(
    gcc libc6-dev cmake ninja-build pkg-config
    libqpid-proton11-dev libpq-dev libssl-dev uthash-dev
    check libjansson-dev
    postgresql procps
    openjdk-17-jre-headless maven unzip
)
IDEM_PACKAGES_TESTS=("${IDEM_PACKAGES_SAMPLES[@]}" g++ pgbouncer)
# shellcheck disable=SC2034 # The script that sources this one uses it.
IDEM_PACKAGES_CI=("${IDEM_PACKAGES_TESTS[@]}"
    git clang clang-format clang-tidy shellcheck)

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# heading TEXT: marks a step in a long log.
heading() {
    printf '\n== %s\n' "$*"
}

# need_packages NAME...: installs what is missing, or says what to run.
need_packages() {
    local name missing=()
    for name; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" \
            = installed ] || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        die "these Debian packages, or their like, are needed: ${missing[*]}"
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        # A sudo that would ask for a password must not stop a script.
        sudo -n true 2>/dev/null || {
            echo "Packages are missing. As root, run:" >&2
            echo "apt-get update && apt-get install -y ${missing[*]}" >&2
            exit 1
        }
        as_root=(sudo -n)
    fi
    heading "Installing ${missing[*]}"
    local log
    log=$(mktemp)
    if ! {
        "${as_root[@]}" apt-get -q update &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q \
                install -y --no-install-recommends "${missing[@]}"
    } >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        die "apt-get failed"
    fi
    rm -f "$log"
}

# free_port: a loopback port that nobody listens on. It lies below the range
# from which Linux serves outgoing connections, so that none of these takes it
# before its server does.
free_port() {
    local port try
    for ((try = 0; try < 100; try++)); do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return 0
        fi
    done
    die "no free port"
}

# server_tmp: a new folder for servers. It is outside any home, since the
# account that PostgreSQL runs as has to get into it.
server_tmp() {
    local dir
    dir=$(mktemp -d "${TMPDIR:-/tmp}/idem.XXXXXX")
    chmod 711 "$dir"
    echo "$dir"
}

# as_server COMMAND...: runs it, as an ordinary account when we are root:
# PostgreSQL and PgBouncer refuse to run as root.
as_server() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid "$(server_user)" --regid "$(server_user -g)" \
            --clear-groups "$@"
    else
        "$@"
    fi
}

# server_user [-g]: the name of that account, or the number of its group.
server_user() {
    local user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    if [ "${1:-}" = -g ]; then
        id -g "$user"
    else
        echo "$user"
    fi
}

# own DIR: gives a folder to the account that the servers run as.
own() {
    if [ "$(id -u)" = 0 ]; then
        chown "$(server_user):$(server_user -g)" "$1"
    fi
}

# process_ended PID: true for a process that is gone, or dead and not yet
# waited for by its parent.
process_ended() {
    local state
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" \
        2>/dev/null) || return 0
    [ -z "$state" ] || [ "$state" = Z ]
}

# wait_ended SECONDS PID...: waits until all of them have ended.
wait_ended() {
    local end=$((SECONDS + $1)) pid
    shift
    for pid; do
        until process_ended "$pid"; do
            [ $SECONDS -lt $end ] || return 1
            sleep 0.02
        done
    done
}
