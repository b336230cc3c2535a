"""How cost grows with the rows that are there, and with their removal."""
from . import table
from .contenders import Work
from .growth import Chart

TABLE = "bench_rows"
# Purged rows for each message of a run.
EXPIRED = 20
# Often enough to be under way for most of a run.
PURGE_MS = 100


def fill(servers, rows, is_random, expires):
    """Many rows at once: the index is built after them. With random keys it
    gets the free space that such an index comes to have by its splits."""
    servers.sql(f"ALTER TABLE {TABLE} DROP CONSTRAINT {TABLE}_pkey")
    key = ("md5(n::text) || '-' || lpad((n % 10000000)::text, 7, '0')"
           if is_random else "'a-' || lpad(n::text, 38, '0')")
    servers.sql(
        f"INSERT INTO {TABLE} (message_id, state, recorded_at, expires_at)"
        f" SELECT 'ID:' || {key}, 'CONFIRMED', now(), now() + interval"
        f" '{expires}' FROM generate_series(1, {rows}) AS n")
    servers.sql(
        f"ALTER TABLE {TABLE} ADD CONSTRAINT {TABLE}_pkey PRIMARY KEY"
        f" (message_id) WITH (fillfactor = {70 if is_random else 90})")
    # What autovacuum would otherwise do during the first rounds.
    servers.sql(f"VACUUM (ANALYZE) {TABLE}")


def size_name(millions):
    return f"{millions:g}m".replace(".", "_")


def rows(bench, args):
    """Each size beside an empty table, in turn."""
    servers = bench.servers
    buffers = servers.sql("SHOW shared_buffers")
    suffix = f"_{args.shared_buffers.lower()}" if args.shared_buffers else ""
    chart = Chart(f"Rows in the table (shared_buffers {buffers})",
                  "million rows", "rate / rate with an empty table",
                  log_x=True)
    figures = {"rows_read_per_key_full": 0.0}
    for millions in args.rows:
        for keys in ("ascending", "random"):
            is_random = keys == "random"
            bench.create_table(TABLE)
            fill(servers, int(millions * 1e6), is_random, "7 days")
            index_mb = int(servers.sql(
                f"SELECT pg_relation_size('{TABLE}_pkey')")) / 2**20
            runs = {"empty": [], "full": []}
            for number in range(args.rounds):
                for name, work in (
                        ("empty", Work(args.count, random_keys=is_random)),
                        ("full", Work(args.count, random_keys=is_random,
                                      table=TABLE, keep_table=True))):
                    result = bench.run("lease", work)
                    runs[name].append(result)
                    print(f"round {number + 1}: {millions:g} M rows, {keys} "
                          f"keys, {name}: {result['rate']:.0f} messages/s",
                          flush=True)
            empty = table.spread([r["rate"] for r in runs["empty"]])
            full = table.spread([r["rate"] for r in runs["full"]])
            read = max(r["rows_read"] for r in runs["full"])
            ratio = full["median"] / empty["median"]
            chart.add(f"{keys} keys", millions, median=ratio, empty=empty,
                      full=full, rows_read=read,
                      scans=max(r["scans"] for r in runs["full"]),
                      wal_bytes=table.spread(
                          [r["wal_bytes"] for r in runs["full"]]),
                      index_mb_per_million=index_mb / millions)
            figures[f"{keys}_{size_name(millions)}_per_empty{suffix}"] = ratio
            figures["rows_read_per_key_full"] = max(
                figures["rows_read_per_key_full"], read)
    servers.sql(f"DROP TABLE {TABLE}")
    return chart, figures


def purge(bench, args):
    """Expired rows wait for their removal; in one of two runs it happens."""
    servers = bench.servers
    chart = Chart("While expired rows are purged", "", bars=True)
    runs = {"off": [], "on": []}
    removed = []
    for _ in range(args.rounds):
        for name, purge_ms in (("off", 0), ("on", PURGE_MS)):
            bench.create_table(TABLE)
            fill(servers, EXPIRED * args.count, True, "-1 day")
            runs[name].append(bench.run("lease", Work(
                args.count, random_keys=True, table=TABLE, keep_table=True,
                purge_ms=purge_ms)))
            left = int(servers.sql(
                f"SELECT count(*) FROM {TABLE} WHERE expires_at < now()"))
            if name == "on":
                removed.append(EXPIRED * args.count - left)
            print(f"purge {name}: {runs[name][-1]['rate']:.0f} messages/s, "
                  f"{left} expired rows left", flush=True)
    servers.sql(f"DROP TABLE {TABLE}")
    for name, results in runs.items():
        chart.add("lease", f"purge {name}",
                  **table.spread([r["rate"] for r in results]))
    return chart, {
        "purge_on_per_off": chart.value("lease", "purge on")
        / chart.value("lease", "purge off"),
        "purged_rows": table.spread(removed)["median"]}
