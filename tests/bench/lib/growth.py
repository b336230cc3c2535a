"""How cost grows: what the charts share, and those that only vary the work."""
import dataclasses

from . import table
from .contenders import Work

# So much fits into the broker's heap, and so much on its disk: bodies from
# 100 kB on are files.
HEAP_BYTES = 64 << 20
DISK_BYTES = 400 << 20
LARGE_BYTES = 100_000
WINDOW_BYTES = 64 << 20


@dataclasses.dataclass
class Case:
    series: str
    x: object
    contender: str
    work: Work
    setup: object = None  # called before each run


@dataclasses.dataclass
class Chart:
    title: str
    x_label: str
    y_label: str = "messages/s"
    log_x: bool = False
    log_y: bool = False
    bars: bool = False
    series: dict = dataclasses.field(default_factory=dict)

    def add(self, series, x, **values):
        self.series.setdefault(series, []).append({"x": x, **values})

    def json(self):
        return dataclasses.asdict(self)

    def value(self, series, x):
        return next(p["median"] for p in self.series[series] if p["x"] == x)


def run_cases(bench, args, chart, cases):
    """In turn, as in the table. Each case as many messages as take the time
    that the arguments say."""
    runs = [[] for _ in cases]
    for number in range(args.rounds):
        for case, results in zip(cases, runs):
            if case.setup:
                case.setup()
            work = bench.size(case.contender, case.work, args.seconds,
                              case.x if case.setup else None)
            result = bench.run(case.contender, work)
            results.append(result)
            print(f"round {number + 1}: {chart.title}: {case.series}, "
                  f"{case.x}: {result['rate']:.0f} messages/s", flush=True)
    for case, results in zip(cases, runs):
        chart.add(case.series, case.x, messages=results[0]["settled"],
                  **table.spread([r["rate"] for r in results]),
                  cpu_us=table.spread([r["cpu_us"] for r in results]),
                  rss_kb=table.spread([r["rss_kb"] for r in results]),
                  commits=table.spread([r["commits"] for r in results]))
    return chart


def prefetch(bench, args):
    chart = Chart("Prefetch", "prefetch", log_x=True, log_y=True)
    return run_cases(bench, args, chart, [
        Case(name, n, name, Work(args.count, prefetch=n))
        for n in (1, 3, 10, 30, 100, 300, 1000, 2000)
        for name in ("raw", "lease")]), {}


def body(bench, args):
    chart = Chart("Body", "bytes", log_x=True, log_y=True)
    cases = []
    for size in (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000):
        room = DISK_BYTES if size > LARGE_BYTES else HEAP_BYTES
        work = Work(min(args.count, room // size), body=size,
                    prefetch=max(1, min(1000, WINDOW_BYTES // size)))
        cases += [Case(name, size, name, work)
                  for name in ("raw", "none", "lease")]
    return run_cases(bench, args, chart, cases), {}


def duplicates(bench, args):
    chart = Chart("Share of duplicates", "%")
    return run_cases(bench, args, chart, [
        Case("lease", share, "lease", Work(args.count, known=share))
        for share in (0, 50, 100)]), {}


def concurrency(bench, args):
    chart = Chart("Handlers at a time", "concurrency", log_x=True, log_y=True)
    return run_cases(bench, args, chart, [
        Case(f"{ms} ms each", n, "lease",
             Work(args.count, concurrency=n, work_us=ms * 1000))
        for ms in (0, 1, 10) for n in (1, 2, 4, 8, 16)]), {}


def processes(bench, args):
    chart = Chart("Consumer processes", "processes")
    return run_cases(bench, args, chart, [
        Case(name, n, name, Work(args.count, processes=n))
        for n in (1, 2, 3, 4) for name in ("raw", "lease")]), {}


def commit(bench, args):
    """A slower disk, or a database across a network."""
    chart = Chart("Slower commits", "ms more for each commit", log_y=True)
    servers = bench.servers
    try:
        chart = run_cases(bench, args, chart, [
            Case(name, ms, name, Work(args.count),
                 lambda ms=ms: servers.set_commit_delay(ms))
            for ms in (0, 1, 5, 20) for name in ("naive", "lease")])
    finally:
        servers.set_commit_delay(0)
    return chart, {
        f"lease_per_naive_commit_{ms}ms":
            chart.value("lease", ms) / chart.value("naive", ms)
        for ms in (1, 5, 20)}
