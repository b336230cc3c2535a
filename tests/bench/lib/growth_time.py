"""What only shows over time: latency at a steady rate, and memory."""
import dataclasses
import subprocess
import time

from . import table
from .contenders import CONTENDERS, Work
from .growth import Chart
from .process import Part

RATES = (10, 100, 1000, 5000)
SOAK_RATE = 5000
# Waits when the consumer starts: its window has been full once, from the first
# minute on, as a burst later may fill it.
SOAK_BACKLOG = 20000
PERCENTILES = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")


def feed(bench, address, prefix, work, rate):
    """Starts a producer that sends evenly."""
    return subprocess.Popen([str(c) for c in (
        bench.program, "feed", "-u", bench.servers.url, "-a", address, "-n",
        work.count, "-i", prefix, "-b", work.body, "-r", rate)])


def steady(bench, name, work, rate, is_timed, backlog=0):
    """Feeds a contender at a rate, with so many of its messages waiting for
    it. Returns its result, and the percentiles of the time from a delivery's
    receipt to its settlement, or the memory."""
    contender = CONTENDERS[name]
    address, prefix = bench.new_queue()
    parts = []
    producer = None
    bench.prepare(contender, work, prefix)
    if backlog:
        bench.load(address, f"b{prefix}",
                   dataclasses.replace(work, count=backlog))
    fed = dataclasses.replace(work, count=work.count - backlog)
    try:
        url = bench.servers.url
        if is_timed:
            tap = Part([bench.program, "tap", "-u", url, "-n", work.count],
                       "tap")
            parts.append(tap)
            url = f"amqp://127.0.0.1:{tap.ready['port']}"
        consumer = Part(bench.command(contender.mode, work, address, url),
                        name)
        parts.append(consumer)
        for part in parts:
            part.go()
        while bench.queue_count(address, "consumerCount") != 1:
            time.sleep(0.1)
        producer = feed(bench, address, prefix, fed, rate)
        deadline = time.monotonic() + work.count / rate + 60
        consumed = consumer.result(deadline)
        if producer.wait() != 0:
            raise SystemExit(f"{name}: the producer failed")
        timed = parts[0].result(deadline) if is_timed else consumer.rss
    finally:
        for part in parts:
            part.kill()
        if producer and producer.poll() is None:
            producer.kill()
            producer.wait()
    bench.verify(name, contender, work, address, consumed, (0, 0))
    return consumed, timed


def insert(bench, count, rate):
    """One committed row at a time, with nothing else to do."""
    bench.create_table()
    return Part([bench.program, "insert", "--wait", "-d", bench.servers.dsn,
                 "-n", count, "-r", rate], "insert")


def latency(bench, args):
    chart = Chart("Latency at a steady rate", "messages/s",
                  "ms from received to settled", log_x=True, log_y=True)
    names = ("raw", "none", "lease")
    found = {(name, rate): [] for rate in RATES for name in names}
    inserts = []
    for number in range(args.rounds):
        part = insert(bench, int(100 * args.steady_seconds), 100)
        part.go()
        inserts.append(part.result(
            time.monotonic() + args.steady_seconds + 60))
        print(f"round {number + 1}: one INSERT: p50 "
              f"{inserts[-1]['p50_ms']:.2f} ms", flush=True)
        for rate in RATES:
            for name in names:
                work = Work(max(20, int(rate * args.steady_seconds)))
                _, timed = steady(bench, name, work, rate, True)
                found[name, rate].append(timed)
                print(f"round {number + 1}: {rate} messages/s: {name}: "
                      f"p50 {timed['p50_ms']:.2f} ms, p99 "
                      f"{timed['p99_ms']:.2f} ms, p99.9 "
                      f"{timed['p999_ms']:.2f} ms", flush=True)
    figures = {}
    for (name, rate), results in found.items():
        for percentile in PERCENTILES:
            value = table.spread([r[percentile] for r in results])
            figures[f"latency_{name}_{rate}_{percentile}"] = value["median"]
            if percentile in ("p50_ms", "p99_ms", "p999_ms"):
                label = {"p50_ms": "p50", "p99_ms": "p99",
                         "p999_ms": "p99.9"}[percentile]
                if name == "lease" or label == "p50":
                    chart.add(f"{name}, {label}", rate,
                              messages=results[0]["count"], **value)
    one = table.spread([r["p50_ms"] for r in inserts])
    for rate in RATES:
        chart.add("one INSERT, p50", rate, **one)
    figures["insert_p50_ms"] = one["median"]
    for rate in RATES:
        figures[f"latency_{rate}_per_insert"] = (
            figures[f"latency_lease_{rate}_p50_ms"] / one["median"])
    return chart, figures


def memory(bench, args):
    """Over the time that the arguments say, at a rate that one core bears."""
    chart = Chart("Memory over time", "s", "MB of the consumer")
    work = Work(SOAK_BACKLOG + SOAK_RATE * args.soak)
    _, samples = steady(bench, "lease", work, SOAK_RATE, False, SOAK_BACKLOG)
    for second, kb in samples:
        chart.add("lease", round(second, 1), median=kb / 1024)
    begin = min(60, args.soak / 3)
    later = [kb for second, kb in samples if second >= begin]
    return chart, {
        "rss_growth": max(later) / later[0] if later else None,
        "soak_seconds": args.soak,
        "soak_rss_mb": max(kb for _, kb in samples) / 1024}
