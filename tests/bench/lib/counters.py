"""What broker, database and machine have spent so far, and on what."""
import os
import pathlib
import time

from .process import output

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """Of a process, its threads, and its children that have ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    numbers = fields.rsplit(")", 1)[1].split()
    return sum(int(n) for n in numbers[11:15]) / TICK


def database_cpu(postmaster):
    """Of all servers of a PostgreSQL, ended ones included."""
    children = output("pgrep", "-P", postmaster).split()
    return cpu_seconds(postmaster) + sum(cpu_seconds(int(c)) for c in children)


def machine_cpu():
    """Seconds that all processors worked, for whomever, also for another
    guest of the same host."""
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        if line.startswith("cpu "):
            user, nice, system, _, _, irq, soft, steal = (
                int(n) for n in line.split()[1:9])
            return (user + nice + system + irq + soft + steal) / TICK
    return 0.0


class Counters:
    """Reads them all; a difference of two readings belongs to what happened
    between them."""

    def __init__(self, servers):
        self.servers = servers
        self.own_commits = 0
        # A reading commits as well.
        first = self.read("pg_class")
        self.own_commits = self.read("pg_class")["commits"] - first["commits"]

    def read(self, table):
        self.servers.wait_alone()
        row = self.servers.sql(f"""
            SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
                   (SELECT sum(xact_commit) FROM pg_stat_database),
                   coalesce(sum(n_tup_ins), 0), coalesce(sum(n_tup_upd), 0),
                   coalesce(sum(n_tup_hot_upd), 0), coalesce(sum(seq_scan), 0),
                   coalesce(sum(seq_tup_read), 0),
                   coalesce(sum(idx_tup_fetch), 0)
              FROM pg_stat_all_tables
             WHERE relid = to_regclass('{table}')""")
        names = ("wal", "commits", "inserted", "updated", "updated_hot",
                 "scans", "rows_scanned", "rows_fetched")
        counters = dict(zip(names, (float(n) for n in row.split("|"))))
        counters["broker"] = cpu_seconds(self.servers.broker_pid)
        counters["database"] = database_cpu(self.servers.database_pid)
        counters["machine"] = machine_cpu()
        counters["time"] = time.monotonic()
        return counters

    def between(self, before, after, count, consumer_cpu):
        """By message, where it is not a share."""
        d = {name: after[name] - before[name] for name in after}
        ours = d["broker"] + d["database"] + consumer_cpu
        return {
            "broker_cpu_us": d["broker"] * 1e6 / count,
            "database_cpu_us": d["database"] * 1e6 / count,
            "commits": max(0, d["commits"] - self.own_commits) / count,
            "wal_bytes": d["wal"] / count,
            "row_versions": (d["inserted"] + d["updated"]) / count,
            "hot_share": (d["updated_hot"] / d["updated"]
                          if d["updated"] else None),
            "rows_read": (d["rows_scanned"] + d["rows_fetched"]) / count,
            "scans": d["scans"],
            # Of one processor: start-up, this script and strangers.
            "others_cpu": max(0.0, d["machine"] - ours) / d["time"],
        }
