#!/usr/bin/env bash
# A private ActiveMQ Artemis broker on loopback ports. Needs Java 17 and, the
# first time only, Maven and unzip.
#
#   artemis.sh fetch         get the distribution into the cache if it is not
#                            there; print where it is
#   artemis.sh create DIR    write an instance; start does so too if need be
#   artemis.sh start DIR     start it, wait until it answers, print its URL
#   artemis.sh stop DIR      end it in order and wait
#   artemis.sh kill DIR      end it with SIGKILL, as a crash would
#   artemis.sh restart DIR   stop and start: same ports, same data
#   artemis.sh status DIR    succeed when it answers
#   artemis.sh url DIR       print amqp://127.0.0.1:PORT
#   artemis.sh pid DIR       the process, for example to hang it with SIGSTOP
#   artemis.sh destroy DIR   kill it and delete the folder
#
# Read by create, all optional:
#   ARTEMIS_HOME      an unpacked distribution to use in place of the cache
#   ARTEMIS_PORT      a port in place of a free one
#   ARTEMIS_LOGIN     1: users must log in. admin/admin may do everything, and
#                     ro/ro may only consume, from ro.# alone. Without it any
#                     user and password will do, and none as well
#   ARTEMIS_ACCEPTOR  more parameters, such as ";amqpIdleTimeout=4000"
#   ARTEMIS_SETTINGS  more <address-setting> elements
#   ARTEMIS_XML       more elements of <core>
#   ARTEMIS_LARGE     1: a JVM and journal files as "artemis create" makes them,
#                     fast once they are warm. Without it they are small, and
#                     start fast
#   ARTEMIS_SYNC      1 flushes the journal to disk at each write. Without it
#                     messages survive kill, but not the end of the machine
#
# The first word of an address chooses what the broker does with it:
#   #         dead letters to DLQ, no redelivery delay, 10 delivery attempts,
#             queues and addresses made on demand
#   delay.#   redelivery delay of 500 ms
#   backoff.# redelivery delay of 200 ms, doubled up to 1 s
#   max3.#    3 delivery attempts            inf.#    no limit of attempts
#   noauto.#  nothing made on demand         nodla.#  no dead-letter address
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/support/common.sh
. "$here/common.sh"

VERSION=2.40.0
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/idem
# Class data that the JVM wrote down once, which makes every later start
# 40 % shorter. A JVM that does not fit to it ignores it.
ARCHIVE=$CACHE/apache-artemis-$VERSION.jsa

fetch() {
    local home=${ARTEMIS_HOME:-$CACHE/apache-artemis-$VERSION}
    if [ ! -f "$home/lib/artemis-boot.jar" ]; then
        [ -z "${ARTEMIS_HOME:-}" ] || die "no Artemis in $ARTEMIS_HOME"
        mkdir -p "$CACHE"
        # One download at a time, unpacked beside and then renamed, so that
        # an unfinished copy is never used.
        (
            flock 9
            [ ! -f "$home/lib/artemis-boot.jar" ] || exit 0
            tmp=$(mktemp -d "$CACHE/fetch.XXXXXX")
            trap 'rm -rf "$tmp"' EXIT
            mvn -q -B dependency:copy \
                "-Dartifact=org.apache.activemq:apache-artemis:$VERSION:zip:bin" \
                "-DoutputDirectory=$tmp" >&2 ||
                die "Maven could not fetch Artemis $VERSION"
            unzip -q "$tmp"/*.zip -d "$tmp"
            mv "$tmp/apache-artemis-$VERSION" "$home"
        ) 9>"$CACHE/lock"
    fi
    [ -f "$ARCHIVE" ] || (
        flock 9
        [ ! -f "$ARCHIVE" ] || exit 0
        write_archive "$home"
    ) 9>"$CACHE/lock-archive"
    echo "$home"
}

write_archive() {
    local dir
    dir=$(mktemp -d "$CACHE/archive.XXXXXX")
    # shellcheck disable=SC2064 # The folder is known now.
    trap "rm -rf '$dir'" EXIT
    write_instance "$dir/broker" "$1"
    load "$dir/broker"
    launch "-XX:ArchiveClassesAtExit=$dir/jsa" >/dev/null
    finish TERM
    # Without an archive a broker starts too, only later.
    if [ -f "$dir/jsa" ]; then
        mv "$dir/jsa" "$ARCHIVE"
    fi
}

permissions() { # ROLES-THAT-CONSUME
    local type
    for type in createNonDurableQueue deleteNonDurableQueue createDurableQueue \
        deleteDurableQueue createAddress deleteAddress browse send manage; do
        printf '<permission type="%s" roles="amq"/>' "$type"
    done
    printf '<permission type="consume" roles="%s"/>' "$1"
}

login_module() { # CLASS FLAG OPTION...
    printf '   org.apache.activemq.artemis.spi.core.security.jaas.%s %s\n' \
        "$1" "$2"
    shift 2
    printf '      org.apache.activemq.jaas.%s\n' "$@"
    printf '   ;\n'
}

write_instance() { # DIR HOME
    mkdir -p "$1/etc" "$1/data" "$1/tmp" "$1/log"
    local dir port
    dir=$(cd "$1" && pwd)
    port=${ARTEMIS_PORT:-$(free_port)}
    {
        echo 'activemq {'
        login_module PropertiesLoginModule sufficient \
            'properties.user="artemis-users.properties"' \
            'properties.role="artemis-roles.properties"'
        [ "${ARTEMIS_LOGIN:-0}" = 1 ] ||
            login_module GuestLoginModule sufficient \
                'guest.user="guest"' 'guest.role="amq"'
        echo '};'
    } >"$dir/etc/login.config"
    printf 'admin = admin\nro = ro\n' >"$dir/etc/artemis-users.properties"
    printf 'amq = admin\nro = ro\n' >"$dir/etc/artemis-roles.properties"
    cat >"$dir/etc/bootstrap.xml" <<EOF
<broker xmlns="http://activemq.apache.org/schema">
   <jaas-security domain="activemq"/>
   <server configuration="file:$dir/etc/broker.xml"/>
</broker>
EOF
    echo '<management-context xmlns="http://activemq.apache.org/schema"/>' \
        >"$dir/etc/management.xml"
    cat >"$dir/etc/log4j2.properties" <<'EOF'
rootLogger.level = INFO
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5level [%logger] %msg%n
EOF
    local sync=false more=${ARTEMIS_ACCEPTOR:-} file=1M scan=1000
    local buffer='<journal-buffer-timeout>100000</journal-buffer-timeout>'
    local jvm="-Xms32M -Xmx256M -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    [ "${ARTEMIS_SYNC:-0}" != 1 ] || sync=true
    if [ "${ARTEMIS_LARGE:-0}" = 1 ]; then
        jvm="-Xms512M -Xmx2G -XX:+UseG1GC -XX:+UseStringDeduplication"
        jvm+=" -XX:AutoBoxCacheMax=20000"
        file=10M
        scan=30000
        buffer=
    fi
    cat >"$dir/etc/broker.xml" <<EOF
<?xml version='1.0'?>
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
   <name>idem</name>
   <persistence-enabled>true</persistence-enabled>
   <journal-type>NIO</journal-type>
   <paging-directory>$dir/data/paging</paging-directory>
   <bindings-directory>$dir/data/bindings</bindings-directory>
   <journal-directory>$dir/data/journal</journal-directory>
   <large-messages-directory>$dir/data/large-messages</large-messages-directory>
   <journal-datasync>$sync</journal-datasync>
   <journal-min-files>2</journal-min-files>
   <journal-pool-files>10</journal-pool-files>
   <journal-file-size>$file</journal-file-size>
   $buffer
   <max-disk-usage>98</max-disk-usage>
   <message-expiry-scan-period>$scan</message-expiry-scan-period>
   ${ARTEMIS_XML:-}
   <acceptors>
      <acceptor name="amqp">tcp://127.0.0.1:$port?protocols=AMQP$more</acceptor>
   </acceptors>
   <security-settings>
      <security-setting match="#">$(permissions amq)</security-setting>
      <security-setting match="ro.#">$(permissions amq,ro)</security-setting>
   </security-settings>
   <address-settings>
      <address-setting match="#">
         <dead-letter-address>DLQ</dead-letter-address>
         <expiry-address>ExpiryQueue</expiry-address>
         <redelivery-delay>0</redelivery-delay>
         <max-delivery-attempts>10</max-delivery-attempts>
         <auto-delete-queues>false</auto-delete-queues>
         <auto-delete-addresses>false</auto-delete-addresses>
         <max-size-bytes>-1</max-size-bytes>
      </address-setting>
      <address-setting match="delay.#">
         <redelivery-delay>500</redelivery-delay>
      </address-setting>
      <address-setting match="backoff.#">
         <redelivery-delay>200</redelivery-delay>
         <redelivery-delay-multiplier>2</redelivery-delay-multiplier>
         <max-redelivery-delay>1000</max-redelivery-delay>
      </address-setting>
      <address-setting match="max3.#">
         <max-delivery-attempts>3</max-delivery-attempts>
      </address-setting>
      <address-setting match="inf.#">
         <max-delivery-attempts>-1</max-delivery-attempts>
      </address-setting>
      <address-setting match="noauto.#">
         <auto-create-queues>false</auto-create-queues>
         <auto-create-addresses>false</auto-create-addresses>
      </address-setting>
      <address-setting match="nodla.#">
         <dead-letter-address></dead-letter-address>
      </address-setting>
      ${ARTEMIS_SETTINGS:-}
   </address-settings>
   <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
      <address name="ExpiryQueue">
         <anycast><queue name="ExpiryQueue"/></anycast>
      </address>
   </addresses>
</core></configuration>
EOF
    printf 'HOME_DIR=%q\nPORT=%q\nJVM=(%s)\n' "$2" "$port" "$jvm" \
        >"$dir/instance.env"
}

create() { # DIR
    local home
    home=$(fetch)
    write_instance "$1" "$home"
}

load() { # DIR
    [ -f "$1/instance.env" ] || die "$1 holds no broker"
    DIR=$(cd "$1" && pwd)
    # shellcheck disable=SC1091
    . "$DIR/instance.env"
}

running_pid() {
    local pid
    pid=$(cat "$DIR/pid" 2>/dev/null) || return 1
    # The number may since have gone to another process.
    grep -q "$DIR/etc" "/proc/$pid/cmdline" 2>/dev/null || return 1
    echo "$pid"
}

answers() { # the protocol header comes back; the acceptors open last
    (
        exec 3<>"/dev/tcp/127.0.0.1/$PORT" &&
            printf 'AMQP\3\1\0\0' >&3 &&
            [ "$(timeout 2 head -c 4 <&3)" = AMQP ]
    ) 2>/dev/null
}

launch() { # JVM-OPTION
    running_pid >/dev/null && die "$DIR is already running"
    setsid java "${JVM[@]}" "$1" -Xlog:cds=off -Xlog:cds+dynamic=off \
        -Dlog4j2.disableJmx=true \
        --add-opens java.base/jdk.internal.misc=ALL-UNNAMED \
        "-Djava.security.auth.login.config=$DIR/etc/login.config" \
        -classpath "$(printf '%s:' "$HOME_DIR"/lib/*.jar)" \
        "-Dartemis.home=$HOME_DIR" "-Dartemis.instance=$DIR" \
        "-Dartemis.instance.etc=$DIR/etc" "-Ddata.dir=$DIR/data" \
        "-Djava.io.tmpdir=$DIR/tmp" \
        "-Dlog4j2.configurationFile=file:$DIR/etc/log4j2.properties" \
        org.apache.activemq.artemis.cli.Artemis run \
        >>"$DIR/log/out.log" 2>&1 </dev/null 9>&- &
    local pid=$! end=$((SECONDS + 60))
    echo "$pid" >"$DIR/pid"
    until answers; do
        kill -0 "$pid" 2>/dev/null || {
            tail -n 20 "$DIR/log/out.log" >&2
            die "the broker ended while it started"
        }
        [ $SECONDS -lt $end ] || {
            tail -n 20 "$DIR/log/out.log" >&2
            die "the broker is not ready after a minute"
        }
        sleep 0.05
    done
    echo "amqp://127.0.0.1:$PORT"
}

start() { # DIR
    [ -f "$1/instance.env" ] || create "$1"
    load "$1"
    local archive=-Xshare:auto
    [ ! -f "$ARCHIVE" ] || archive=-XX:SharedArchiveFile=$ARCHIVE
    launch "$archive"
}

finish() { # SIGNAL
    local pid
    if pid=$(running_pid); then
        kill "-$1" "$pid" 2>/dev/null || true
        wait_ended 20 "$pid" || {
            kill -KILL "$pid" 2>/dev/null || true
            wait_ended 10 "$pid" || die "process $pid does not end"
        }
    fi
    rm -f "$DIR/pid"
}

command=${1:-help}
case $command in
fetch) fetch ;;
create | start)
    [ $# = 2 ] || die "$command DIR"
    "$command" "$2"
    ;;
stop | kill | restart | status | url | pid | destroy)
    [ $# = 2 ] || die "$command DIR"
    if [ "$command" = destroy ] && [ ! -f "$2/instance.env" ]; then
        exit 0
    fi
    load "$2"
    case $command in
    stop) finish TERM ;;
    kill) finish KILL ;;
    restart)
        finish TERM
        start "$DIR"
        ;;
    status) answers ;;
    url) echo "amqp://127.0.0.1:$PORT" ;;
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
