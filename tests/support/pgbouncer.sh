#!/usr/bin/env bash
# A private PgBouncer, which pools by transaction, before a PostgreSQL of
# postgres.sh.
#
#   pgbouncer.sh create DIR POSTGRES_DIR   write an instance
#   pgbouncer.sh start DIR [POSTGRES_DIR]  start it, wait until it answers,
#                                          print its DSN
#   pgbouncer.sh stop|kill|restart|status|dsn|pid|destroy DIR
#
# Read by create, all optional:
#   PGBOUNCER_PORT  a port in place of a free one
#   PGBOUNCER_CONF  more lines for its [pgbouncer] section
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/support/common.sh
. "$here/common.sh"

create() { # DIR POSTGRES_DIR
    local port upstream dir
    # shellcheck disable=SC1091
    upstream=$(. "$2/instance.env" && echo "$PORT $PASSWORD")
    port=${PGBOUNCER_PORT:-$(free_port)}
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    cat >"$dir/pgbouncer.ini" <<EOF
[databases]
* = host=127.0.0.1 port=${upstream% *}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = scram-sha-256
auth_file = $dir/users.txt
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
logfile = $dir/log
pidfile = $dir/pid
${PGBOUNCER_CONF:-}
EOF
    (
        umask 077
        printf '"idem" "%s"\n' "${upstream#* }" >"$dir/users.txt"
        printf 'PORT=%q\nPASSWORD=%q\n' "$port" "${upstream#* }" \
            >"$dir/instance.env"
    )
    own "$dir"
    own "$dir/users.txt"
}

load() { # DIR
    [ -f "$1/instance.env" ] || die "$1 holds no PgBouncer"
    DIR=$(cd "$1" && pwd)
    # shellcheck disable=SC1091
    . "$DIR/instance.env"
    DSN="host=127.0.0.1 port=$PORT user=idem password=$PASSWORD dbname=postgres"
}

running_pid() {
    local pid
    pid=$(cat "$DIR/pid" 2>/dev/null) || return 1
    grep -q "$DIR/pgbouncer.ini" "/proc/$pid/cmdline" 2>/dev/null || return 1
    echo "$pid"
}

answers() {
    psql -XAtq "$DSN connect_timeout=2" -c 'SELECT 1' >/dev/null 2>&1
}

start() { # DIR [POSTGRES_DIR]
    [ -f "$1/instance.env" ] || create "$1" "${2:?POSTGRES_DIR}"
    load "$1"
    as_server "$(PATH=$PATH:/usr/sbin command -v pgbouncer)" -d -q \
        "$DIR/pgbouncer.ini" </dev/null >"$DIR/out.log" 2>&1 || {
        cat "$DIR/out.log" >&2
        die "PgBouncer does not start"
    }
    local end=$((SECONDS + 20))
    until answers; do
        [ $SECONDS -lt $end ] || {
            tail -n 20 "$DIR/log" >&2
            die "PgBouncer does not answer; is its PostgreSQL up?"
        }
        sleep 0.05
    done
    echo "$DSN"
}

finish() { # SIGNAL
    local pid
    pid=$(running_pid) || return 0
    kill "-$1" "$pid"
    wait_ended 10 "$pid" || die "process $pid does not end"
    rm -f "$DIR/pid"
}

command=${1:-help}
case $command in
create)
    [ $# = 3 ] || die "create DIR POSTGRES_DIR"
    create "$2" "$3"
    ;;
start)
    [ $# -ge 2 ] || die "start DIR [POSTGRES_DIR]"
    start "$2" "${3:-}"
    ;;
stop | kill | restart | status | dsn | pid | destroy)
    [ $# = 2 ] || die "$command DIR"
    if [ "$command" = destroy ] && [ ! -f "$2/instance.env" ]; then
        exit 0
    fi
    load "$2"
    case $command in
    # Its SIGTERM ends at once, SIGINT once no transaction is open.
    stop) finish TERM ;;
    kill) finish KILL ;;
    restart)
        finish TERM
        start "$DIR"
        ;;
    status) answers ;;
    dsn) echo "$DSN" ;;
    pid) running_pid ;;
    destroy)
        finish KILL
        rm -rf "$DIR"
        ;;
    esac
    ;;
*)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
    [ "$command" = help ] || exit 2
    ;;
esac
