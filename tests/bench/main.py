"""What deduplication costs: idem beside consumers without any, and beside what
people use instead. tests/bench/run starts this; README.md says what each number
holds.

Starts an Artemis and a PostgreSQL of its own. The contenders take turns (A B C
A B C ...); after every run it is verified that all messages were settled and
handled once, that the queue is empty and that the rows are there."""
import argparse
import json
import pathlib
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True

from lib import (goals, growth, growth_table, growth_time, java,  # noqa: E402
                 table)
from lib.bench import Bench  # noqa: E402
from lib.contenders import CONTENDERS, SHORT, Work  # noqa: E402
from lib.counters import machine_cpu  # noqa: E402
from lib.servers import ROOT, Servers, machine  # noqa: E402

WARM_UP_RUNS, WARM_UP_COUNT = 4, 100000

CHARTS = {
    "prefetch": growth.prefetch,
    "body": growth.body,
    "duplicates": growth.duplicates,
    "rows": growth_table.rows,
    "concurrency": growth.concurrency,
    "processes": growth.processes,
    "purge": growth_table.purge,
    "commit": growth.commit,
    "latency": growth_time.latency,
    "memory": growth_time.memory,
}


def arguments():
    parser = argparse.ArgumentParser(
        prog="tests/bench/run", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="contenders:\n" + "".join(
            f"  {name:<13}{c.text}\n" for name, c in CONTENDERS.items()))
    parser.add_argument("--short", action="store_true",
                        help="does it all work? In under three minutes")
    parser.add_argument("--only", metavar="NAMES",
                        help="contenders, separated by commas")
    parser.add_argument("--grow", metavar="CHARTS",
                        help="how cost grows, in place of the table: all, or "
                        "some of " + ", ".join(CHARTS))
    parser.add_argument("--count", type=int, default=100000,
                        help="messages of a fast contender; default 100000")
    parser.add_argument("--seconds", type=float,
                        help="how long a slow contender may take, default 10, "
                        "or a point of a chart, default 4; of --grow latency "
                        "20")
    parser.add_argument("--rounds", type=int,
                        help="default 5, of charts 3")
    parser.add_argument("--body", type=int, default=256)
    parser.add_argument("--prefetch", type=int, default=1000)
    parser.add_argument("--rows", default="1,10,50", metavar="MILLIONS",
                        help="sizes for --grow rows; default 1,10,50")
    parser.add_argument("--soak", type=int, default=180, metavar="SECONDS",
                        help="for --grow memory; default 180")
    parser.add_argument("--shared-buffers", metavar="SIZE",
                        help="of PostgreSQL, such as 2GB; default its own")
    parser.add_argument("--json", metavar="FILE",
                        help="results; what is in the file and not measured "
                        "now stays")
    parser.add_argument("--svg", metavar="FILE", help="a chart of --json")
    parser.add_argument("--build", default=str(ROOT / "build" / "release"),
                        help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.svg and not args.json:
        parser.error("--svg draws what is in --json FILE")
    args.rows = [float(n) for n in args.rows.split(",")]
    args.names = choose(parser, args.only, CONTENDERS)
    args.charts = choose(parser, args.grow, CHARTS) if args.grow else []
    if args.short:
        args.count, args.seconds, args.rounds = 20000, 1, 1
        if not args.only:
            args.names = list(SHORT)
    args.rounds = args.rounds or (3 if args.grow else 5)
    args.steady_seconds = args.seconds or 20
    args.seconds = args.seconds or (4 if args.grow else 10)
    return args


def choose(parser, text, known):
    names = list(known) if text in (None, "all") else text.split(",")
    unknown = [n for n in names if n not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are "
                     f"{', '.join(known)}")
    return names


def without_java(args):
    missing = java.missing()
    if args.grow or not missing or not any(
            CONTENDERS[n].is_java for n in args.names):
        return
    if args.only:
        sys.exit(f"for contenders in Java: {', '.join(missing)} missing")
    args.names = [n for n in args.names if not CONTENDERS[n].is_java]
    print(f"No contenders in Java: {', '.join(missing)} missing")


def idle_load():
    """How many processors work for others while nothing runs here."""
    before = machine_cpu()
    time.sleep(2)
    load = (machine_cpu() - before) / 2
    if load > 0.1:
        print(f"\nTHE MACHINE IS BUSY: {load:.2f} processors work for others. "
              "The numbers say little.\n", flush=True)
    return load


def describe(about, settings, args):
    print(f"{about['processor']}, {about['cores']} cores shared by broker, "
          f"database and consumer, {about['memory_gb']} GB, "
          f"{about['system']}")
    for name, values in settings.items():
        print(f"{name}: " + ", ".join(f"{k} {v}" for k, v in values.items()))
    print(f"durable messages of {args.body} bytes, prefetch {args.prefetch}, "
          f"{args.rounds} rounds, no TLS; artemis is warm", flush=True)


def measure(args, results):
    load = idle_load()
    servers = Servers(args.shared_buffers)
    try:
        about, settings = machine(), servers.settings()
        describe(about, settings, args)
        bench = Bench(servers, pathlib.Path(args.build),
                      java_warm_up=1000 if args.short else 5000,
                      slow_count=1000 if args.short else None)
        # A cold broker is several times slower, for everyone. What warms it is
        # how many messages it has seen, whatever the runs are to have.
        for _ in range(1 if args.short else WARM_UP_RUNS):
            bench.run("raw", Work(args.count if args.short else WARM_UP_COUNT))
        if not args.grow:
            runs = table.run(bench, args.names, args.count, args.rounds,
                             args.seconds, args.body, args.prefetch)
            contenders = table.summarize(runs)
            table.report(contenders)
            results["contenders"] = contenders
            results["figures"].update(table.figures(contenders))
            results["settings"] = {
                "rounds": args.rounds, "count": args.count,
                "body": args.body, "prefetch": args.prefetch,
                "idle_load": load, **settings}
            results["machine"] = about
        for name in args.charts:
            chart, figures = CHARTS[name](bench, args)
            key = name + (f"_{args.shared_buffers.lower()}"
                          if args.shared_buffers else "")
            results["charts"][key] = {
                **chart.json(), "rounds": args.rounds, "idle_load": load}
            results["figures"].update(
                {k: v for k, v in figures.items() if v is not None})
            save(args, results)
    finally:
        servers.stop()


def load_results(args):
    """Figures stand at the top, where scripts look for them."""
    results = {"figures": {}, "charts": {}, "contenders": {}}
    if args.json and pathlib.Path(args.json).exists():
        old = json.loads(pathlib.Path(args.json).read_text())
        for name in ("charts", "contenders", "settings", "machine"):
            if name in old:
                results[name] = old.pop(name)
        results["figures"] = old
    return results


def save(args, results):
    if args.json:
        rest = {k: v for k, v in results.items() if k != "figures"}
        rest["charts"] = dict(sorted(
            results["charts"].items(),
            key=lambda item: list(CHARTS).index(item[0].split("_")[0])))
        pathlib.Path(args.json).write_text(json.dumps(
            {**dict(sorted(results["figures"].items())), **rest},
            indent=1) + "\n")


def main():
    # So that what runs is ended when this is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    args = arguments()
    without_java(args)
    results = load_results(args)
    measure(args, results)
    save(args, results)
    failed = goals.report(results["figures"])
    if args.svg:
        subprocess.run([pathlib.Path(__file__).parent / "chart.py", args.json,
                        args.svg], check=True)
    # One short round on a busy machine says nothing about speed.
    if failed and not args.short:
        sys.exit(f"below what is promised: {', '.join(failed)}")
    print(f"\n{len(args.charts) or len(args.names)} passed, 0 failed")


if __name__ == "__main__":
    main()
