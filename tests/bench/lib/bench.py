"""One contender, one run: load, consume, verify."""
import dataclasses
import subprocess
import sys
import time

from . import counters
from .contenders import CONTENDERS
from .java import Java
from .process import Part, output
from .servers import ROOT

DEADLINE_S = 900
# The broker may still have to read the last acknowledgements.
EMPTY_S = 10


class Bench:
    def __init__(self, servers, programs, java_warm_up, slow_count):
        self.servers = servers
        self.program = programs / "tests" / "bench" / "idem-bench"
        self.queue = programs / "tests" / "support" / "artemis-queue"
        self.java = Java(programs / "tests" / "bench" / "java")
        self.java_warm_up = java_warm_up
        self.slow_count = slow_count  # in place of what a pilot run says
        self.ddl = (ROOT / "lib" / "store" / "idem_message.sql").read_text()
        self.counters = counters.Counters(servers)
        self.runs = 0
        self.sizes = {}

    def create_table(self, name="idem_message"):
        self.servers.sql(f"DROP TABLE IF EXISTS {name}")
        self.servers.sql(self.ddl.replace("idem_message", name))

    def load(self, address, prefix, work):
        command = [self.program, "load", "-u", self.servers.url, "-a", address,
                   "-n", work.count, "-i", prefix, "-b", work.body]
        if work.random_keys:
            command.append("--random")
        subprocess.run([str(c) for c in command], check=True)

    def new_queue(self):
        """Names a queue, and ids that come after all before."""
        self.runs += 1
        return f"bench.{self.runs}", f"r{self.runs:06d}"

    def command(self, mode, work, address, url=None):
        command = [self.program, mode, "--wait", "-u", url or self.servers.url,
                   "-d", self.servers.dsn, "-a", address, "-n", work.count,
                   "-p", work.prefetch, "-c", work.concurrency, "-w",
                   work.work_us, "-t", work.table]
        if work.purge_ms >= 0:
            command += ["-P", work.purge_ms]
        if work.processes > 1:
            command += ["-I", 3000]
        return command

    def prepare(self, contender, work, prefix):
        if not contender.table and not work.keep_table:
            self.create_table(work.table)
        if work.known:
            # Evenly among those that are new.
            self.servers.sql(
                f"INSERT INTO {work.table} (message_id, state, recorded_at,"
                f" expires_at) SELECT 'ID:{prefix}-' || lpad(n::text,"
                f" {39 - len(prefix)}, '0'), 'CONFIRMED', now(), now() +"
                f" interval '7 days' FROM generate_series(0, {work.count - 1})"
                f" AS n WHERE n * {work.known} % 100 < {work.known}")

    def rows(self, contender, work):
        """Confirmed ones, and all, less those that are expired."""
        if not contender.has_rows:
            return 0, 0
        if contender.mode == "camel":
            what = "count(*), count(*)"
        else:
            what = ("count(*) FILTER (WHERE state = 'CONFIRMED' AND expires_at"
                    " > now()), count(*) FILTER (WHERE expires_at > now())")
        row = self.servers.sql(
            f"SELECT {what} FROM {contender.table or work.table}")
        return tuple(int(n) for n in row.split("|"))

    def commands(self, contender, work, address, prefix):
        if not contender.is_java:
            return [self.command(contender.mode, work, address)
                    ] * work.processes
        warm = f"{address}.warm"
        self.load(warm, f"w{prefix}",
                  dataclasses.replace(work, count=self.java_warm_up))
        return [self.java.command(contender, work, self.servers, address,
                                  warm, self.java_warm_up)]

    def run(self, name, work):
        contender = CONTENDERS[name]
        work = dataclasses.replace(work, known=work.known or contender.known)
        address, prefix = self.new_queue()
        table = contender.table or work.table
        self.prepare(contender, work, prefix)
        rows = (0, 0) if contender.table else self.rows(contender, work)
        self.load(address, prefix, work)
        parts = []
        try:
            for command in self.commands(contender, work, address, prefix):
                parts.append(Part(command, name))
            self.servers.sql("CHECKPOINT")
            before = self.counters.read(table)
            for part in parts:
                part.go()
            deadline = time.monotonic() + DEADLINE_S
            results = [part.result(deadline) for part in parts]
        finally:
            for part in parts:
                part.kill()
        after = self.counters.read(table)
        result = self.merge(results, parts, before, after)
        self.verify(name, contender, work, address, result, rows)
        return result

    def merge(self, results, parts, before, after):
        worked = [r for r in results if r["settled"]]
        count = sum(r["settled"] for r in results)
        cpu = sum(r["cpu"] for r in worked)
        seconds = (max(r["last"] for r in worked)
                   - min(r["first"] for r in worked))
        return {
            "settled": count,
            "handled": sum(r["handled"] for r in results),
            "seconds": seconds,
            "rate": count / seconds,
            "cpu_us": cpu * 1e6 / count,
            "rss_kb": max(r["rss_kb"] for r in results),
            "rss_samples": parts[0].rss,
            **self.counters.between(before, after, count, cpu),
        }

    def verify(self, name, contender, work, address, result, rows_before):
        known = sum(n * work.known % 100 < work.known
                    for n in range(work.count)) if work.known else 0
        for what, wanted in (("settled", work.count),
                             ("handled", work.count - known)):
            if result[what] != wanted:
                sys.exit(f"{name}: {what} {result[what]}, not {wanted}")
        left = self.left(address)
        if left:
            sys.exit(f"{name}: {left} left in the queue")
        new = work.count - known if contender.has_rows else 0
        wanted = (rows_before[0] + new, rows_before[1] + new)
        rows = self.rows(contender, work)
        if rows != wanted:
            sys.exit(f"{name}: {rows[0]} rows confirmed of {rows[1]}, not "
                     f"{wanted[0]} of {wanted[1]}")

    def queue_count(self, address, name):
        """A counter of the broker's for a queue."""
        return int(output(self.queue, self.servers.url, address,
                          name).split()[1])

    def left(self, address):
        """Messages in the queue, once it is empty or has had its time."""
        deadline = time.monotonic() + EMPTY_S
        while True:
            left = self.queue_count(address, "messageCount")
            if left == 0 or time.monotonic() > deadline:
                return left
            time.sleep(0.1)

    def size(self, name, work, seconds, setting=None):
        """As many messages of the work as take about that long, but not more
        than it says; setting tells what else the rate depends on."""
        if self.slow_count:
            return dataclasses.replace(
                work, count=min(work.count, self.slow_count))
        key = (name, dataclasses.astuple(work), setting)
        if key not in self.sizes:
            pilot = min(work.count, 500)
            rate = self.run(
                name, dataclasses.replace(work, count=pilot))["rate"]
            count = int(rate * seconds) // 100 * 100
            self.sizes[key] = max(pilot, min(work.count, count))
        return dataclasses.replace(work, count=self.sizes[key])
