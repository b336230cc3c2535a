"""The contenders in turn, and what is made of their rounds."""
import statistics

from .contenders import CONTENDERS, JAVA_DEDUP, Work

FIELDS = ("rate", "cpu_us", "broker_cpu_us", "database_cpu_us", "commits",
          "wal_bytes", "row_versions", "hot_share", "rows_read", "scans",
          "others_cpu", "rss_kb")


def spread(values):
    values = [v for v in values if v is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "least": min(values),
            "most": max(values)}


def run(bench, names, count, rounds, seconds, body, prefetch):
    """Returns the runs by contender."""
    works = {}
    for name in names:
        work = Work(count, body=body, prefetch=prefetch)
        works[name] = (bench.size(name, work, seconds)
                       if CONTENDERS[name].is_slow else work)
    runs = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            if not CONTENDERS[name].is_slow:
                bench.run("raw", works[name])  # so that all are as warm
            result = bench.run(name, works[name])
            runs[name].append(result)
            print(f"round {number + 1}: {name:<12}"
                  f"{result['rate']:>9.0f} messages/s of "
                  f"{result['settled']}", flush=True)
    return runs


def summarize(runs):
    """Medians, least and most of each contender."""
    return {
        name: {"messages": results[0]["settled"],
               "text": CONTENDERS[name].text,
               **{field: spread([r[field] for r in results])
                  for field in FIELDS}}
        for name, results in runs.items()}


def median(contenders, name, field):
    values = contenders.get(name, {}).get(field)
    return values and values["median"]


def ratio(figures, name, one, other):
    if one and other:
        figures[name] = one / other


def figures(contenders):
    """Every median by a name that stays."""
    found = {}
    rates = {name: median(contenders, name, "rate") for name in contenders}
    for name in contenders:
        for field in FIELDS:
            value = median(contenders, name, field)
            if value is not None:
                found[f"{name.replace('-', '_')}_{field}"] = value
    for one in ("lease", "none", "duplicates", "naive"):
        for other in contenders:
            if one != other and one in rates:
                ratio(found, f"{one}_per_{other.replace('-', '_')}",
                      rates[one], rates[other])
    dedup = [rates[name] for name in JAVA_DEDUP if name in rates]
    if dedup and "lease" in rates:
        ratio(found, "lease_per_java_dedup", rates["lease"], max(dedup))
    for name, field in (("commits_per_message", "commits"),
                        ("row_versions_per_message", "row_versions"),
                        ("hot_share", "hot_share")):
        value = median(contenders, "lease", field)
        if value is not None:
            found[name] = value
    for name, field in (("scans", "scans"), ("rows_read_per_key", "rows_read")):
        values = [contenders[c][field]["most"]
                  for c in ("lease", "duplicates") if c in contenders]
        if values:
            found[name] = max(values)
    if "lease" in contenders:
        found["rss_mb"] = contenders["lease"]["rss_kb"]["most"] / 1024
    return found


COLUMNS = (
    # head, unit, width, how to get it
    ("messages/s", "", 11, lambda c, t: f"{c['rate']['median']:.0f}"),
    ("least", "", 8, lambda c, t: f"{c['rate']['least']:.0f}"),
    ("most", "", 8, lambda c, t: f"{c['rate']['most']:.0f}"),
    ("/ raw", "", 8, lambda c, t: per(c, t, "raw")),
    ("/ naive", "", 8, lambda c, t: per(c, t, "naive")),
    ("consumer", "CPU s/M", 9, lambda c, t: f"{c['cpu_us']['median']:.1f}"),
    ("broker", "CPU s/M", 8,
     lambda c, t: f"{c['broker_cpu_us']['median']:.1f}"),
    ("database", "CPU s/M", 9,
     lambda c, t: f"{c['database_cpu_us']['median']:.1f}"),
    ("commits", "/msg", 8, lambda c, t: f"{c['commits']['median']:.4f}"),
    ("WAL", "B/msg", 6, lambda c, t: f"{c['wal_bytes']['median']:.0f}"),
    ("RSS", "MB", 7, lambda c, t: f"{c['rss_kb']['median'] / 1024:.1f}"),
    ("others", "CPUs", 7, lambda c, t: f"{c['others_cpu']['median']:.2f}"),
)


def per(contender, contenders, other):
    if other not in contenders:
        return "-"
    return (f"{contender['rate']['median'] / contenders[other]['rate']['median']:.2f}")


def report(contenders):
    print()
    print(f"{'contender':<12}" + "".join(f"{c[0]:>{c[2]}}" for c in COLUMNS))
    print(f"{'':<12}" + "".join(f"{c[1]:>{c[2]}}" for c in COLUMNS))
    for name, values in contenders.items():
        print(f"{name:<12}" + "".join(
            f"{c[3](values, contenders):>{c[2]}}" for c in COLUMNS))
