#!/usr/bin/env bash
# The servers that the integration tests share, or that a script uses.
#
#   servers.sh start FILE   start a broker where anybody may do everything,
#                           one where users must log in, and a PostgreSQL,
#                           and write to FILE where they are
#   servers.sh stop FILE    end them, delete their folder and FILE
#
# FILE has lines NAME=value:
#   IDEM_TEST_URL         the broker             amqp://127.0.0.1:PORT
#   IDEM_TEST_LOGIN_URL   the one with a login   amqp://127.0.0.1:PORT
#   IDEM_TEST_DSN         PostgreSQL             host=127.0.0.1 port=...
#   IDEM_TEST_DIR         a folder for more servers of the same run
#   IDEM_TEST_ARTEMIS_DIR, IDEM_TEST_LOGIN_DIR, IDEM_TEST_PG_DIR
#                         their folders, for artemis.sh and postgres.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/support/common.sh
. "$here/common.sh"

start() { # FILE
    # A run that was broken off may have left its servers behind.
    stop "$1"
    local dir failed="" job
    dir=$(server_tmp)
    mkdir -p "$(dirname "$1")"
    echo "IDEM_TEST_DIR=$dir" >"$1"
    "$here/artemis.sh" fetch >/dev/null
    local jobs=()
    "$here/postgres.sh" start "$dir/postgres" >"$dir/dsn" &
    jobs+=($!)
    "$here/artemis.sh" start "$dir/artemis" >"$dir/url" &
    jobs+=($!)
    ARTEMIS_LOGIN=1 "$here/artemis.sh" start "$dir/login" >"$dir/login-url" &
    jobs+=($!)
    for job in "${jobs[@]}"; do
        wait "$job" || failed=1
    done
    if [ -n "$failed" ]; then
        stop "$1"
        die "the servers do not start"
    fi
    (
        umask 077
        cat >"$1.new" <<EOF
IDEM_TEST_DIR=$dir
IDEM_TEST_URL=$(cat "$dir/url")
IDEM_TEST_ARTEMIS_DIR=$dir/artemis
IDEM_TEST_LOGIN_URL=$(cat "$dir/login-url")
IDEM_TEST_LOGIN_DIR=$dir/login
IDEM_TEST_DSN=$(cat "$dir/dsn")
IDEM_TEST_PG_DIR=$dir/postgres
EOF
    )
    mv "$1.new" "$1"
}

stop() { # FILE
    local dir
    [ -f "$1" ] || return 0
    dir=$(sed -n 's/^IDEM_TEST_DIR=//p' "$1")
    if [ -n "$dir" ] && [ -d "$dir" ]; then
        # Those that tests started for themselves, too.
        local server
        for server in "$dir"/*/; do
            if [ -f "$server/pgbouncer.ini" ]; then
                "$here/pgbouncer.sh" destroy "$server"
            elif [ -d "$server/etc" ]; then
                "$here/artemis.sh" destroy "$server"
            else
                "$here/postgres.sh" destroy "$server"
            fi
        done
        rm -rf "$dir"
    fi
    rm -f "$1"
}

case ${1:-} in
start | stop)
    [ $# = 2 ] || die "$1 FILE"
    "$1" "$2"
    ;;
*)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
    ;;
esac
