#!/usr/bin/env bash
# A private PostgreSQL on a loopback port. Run by root, the server runs as an
# ordinary account, which has to be able to enter the folder above DIR.
#
#   postgres.sh create DIR   make a cluster; start does so too if need be
#   postgres.sh start DIR    start it, wait until it answers, print its DSN
#   postgres.sh stop DIR     end it (fast shutdown: sessions are cut off)
#   postgres.sh kill DIR     end the server and its sessions with SIGKILL
#   postgres.sh restart DIR  stop and start: same port, same data
#   postgres.sh status DIR   succeed when it answers
#   postgres.sh dsn DIR      print the connection string, of keyword=value
#                            pairs, so that more can be put behind it
#   postgres.sh pid DIR      the postmaster
#   postgres.sh destroy DIR  kill it and delete the folder
#
# Read by create, all optional:
#   POSTGRES_PORT   a port in place of a free one
#   POSTGRES_CONF   more lines for postgresql.conf. The rest is as PostgreSQL
#                   sets it: above all, commits are flushed to disk
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/support/common.sh
. "$here/common.sh"

# tool NAME: the server's programs, which Debian keeps out of PATH.
tool() {
    local path
    path=$(printf '%s\n' /usr/lib/postgresql/*/bin/"$1" | sort -V | tail -n 1)
    [ -x "$path" ] || path=$(command -v "$1") || die "PostgreSQL's $1 is missing"
    echo "$path"
}

create() { # DIR
    local port password
    port=${POSTGRES_PORT:-$(free_port)}
    password=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')
    mkdir -p "$1"
    own "$1"
    local dir
    dir=$(cd "$1" && pwd)
    (
        cd "$dir"
        printf '%s\n' "$password" >password
        own password
        # The password keeps others of this machine out.
        as_server "$(tool initdb)" -D "$dir/data" -U idem -E UTF8 \
            --locale=C --no-sync --auth=scram-sha-256 --pwfile=password \
            >initdb.log 2>&1 || {
            tail -n 20 initdb.log >&2
            die "initdb failed"
        }
        rm password
        cat >>data/postgresql.conf <<EOF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = ''
max_connections = 300
log_line_prefix = '%m [%p] %a '
${POSTGRES_CONF:-}
EOF
        umask 077
        printf 'PORT=%q\nPASSWORD=%q\n' "$port" "$password" >instance.env
    )
}

load() { # DIR
    [ -f "$1/instance.env" ] || die "$1 holds no PostgreSQL"
    DIR=$(cd "$1" && pwd)
    # shellcheck disable=SC1091
    . "$DIR/instance.env"
    DSN="host=127.0.0.1 port=$PORT user=idem password=$PASSWORD dbname=postgres"
}

running_pid() {
    local pid
    pid=$(sed -n 1p "$DIR/data/postmaster.pid" 2>/dev/null) || return 1
    # The file outlives a killed server, and its number may be another's.
    [ -n "$pid" ] && grep -q "$DIR/data" "/proc/$pid/cmdline" 2>/dev/null ||
        return 1
    echo "$pid"
}

answers() {
    psql -XAtq "$DSN connect_timeout=2" -c 'SELECT 1' >/dev/null 2>&1
}

start() { # DIR
    [ -f "$1/instance.env" ] || create "$1"
    load "$1"
    # From here on the server lives on by itself; nothing of ours may stay
    # open in it, or whoever reads our output would wait for its end.
    (
        cd "$DIR"
        as_server "$(tool pg_ctl)" -D "$DIR/data" -l "$DIR/log" -s -w -t 60 \
            start </dev/null >pg_ctl.log 2>&1
    ) || {
        tail -n 20 "$DIR/pg_ctl.log" "$DIR/log" >&2
        die "PostgreSQL does not start"
    }
    echo "$DSN"
}

stop() {
    running_pid >/dev/null || return 0
    (cd "$DIR" && as_server "$(tool pg_ctl)" -D "$DIR/data" -s -w -t 60 \
        -m fast stop) || die "PostgreSQL does not stop"
}

kill_all() {
    local pid children=()
    pid=$(running_pid) || return 0
    # The postmaster first, so that it starts no new ones.
    kill -STOP "$pid"
    mapfile -t children < <(pgrep -P "$pid")
    kill -KILL "$pid" "${children[@]}" 2>/dev/null || true
    wait_ended 10 "$pid" "${children[@]}" || die "process $pid does not end"
    # Where nobody collects orphans the dead postmaster keeps its number, and
    # the next one would take it for alive.
    rm -f "$DIR/data/postmaster.pid"
}

command=${1:-help}
case $command in
create | start)
    [ $# = 2 ] || die "$command DIR"
    "$command" "$2"
    ;;
stop | kill | restart | status | dsn | pid | destroy)
    [ $# = 2 ] || die "$command DIR"
    if [ "$command" = destroy ] && [ ! -f "$2/instance.env" ]; then
        exit 0
    fi
    load "$2"
    case $command in
    stop) stop ;;
    kill) kill_all ;;
    restart)
        stop
        start "$DIR"
        ;;
    status) answers ;;
    dsn) echo "$DSN" ;;
    pid) running_pid ;;
    destroy)
        kill_all
        rm -rf "$DIR"
        ;;
    esac
    ;;
*)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
    [ "$command" = help ] || exit 2
    ;;
esac
