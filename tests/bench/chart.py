#!/usr/bin/python3
"""Draws the results of tests/bench/run: chart.py RESULTS.json CHART.svg

Needs matplotlib (Debian: python3-matplotlib)."""
import json
import math
import pathlib
import sys
import textwrap

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "idem", "font.size": 9,
    "font.family": "sans-serif", "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd",
    "axes.axisbelow": True, "axes.titlelocation": "left",
    "axes.titlesize": 10, "axes.titleweight": "bold", "legend.frameon": False,
    "legend.fontsize": 8,
})

from matplotlib import pyplot, ticker  # noqa: E402

OURS = "#1f5fa8"
PLAIN = "#7a7a7a"
JAVA = "#c46a1b"
COLOURS = (OURS, PLAIN, JAVA, "#2f8f5b", "#8b4fa8", "#b03a48")
KNOWN = {"raw": PLAIN, "naive": JAVA, "lease": OURS, "none": "#2f8f5b"}
COLUMNS = 3


def colour(name, is_java):
    if is_java:
        return JAVA
    return PLAIN if name in ("raw", "naive") else OURS


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def draw_contenders(axes, contenders):
    names = sorted(contenders,
                   key=lambda n: contenders[n]["rate"]["median"])
    rates = [contenders[n]["rate"] for n in names]
    medians = [r["median"] for r in rates]
    axes.barh(
        range(len(names)), medians, height=0.62,
        color=[colour(n, n.startswith(("java", "camel"))) for n in names],
        xerr=[[r["median"] - r["least"] for r in rates],
              [r["most"] - r["median"] for r in rates]],
        error_kw={"ecolor": "#222222", "elinewidth": 0.8, "capsize": 2})
    for at, rate in enumerate(rates):
        axes.annotate(number(rate["median"]), (rate["most"], at),
                      xytext=(5, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(names)), [
        f"{n}: {contenders[n]['text']}" for n in names])
    axes.set_xscale("log")
    axes.set_xlim(right=max(r["most"] for r in rates) * 2.5)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(
        lambda v, _: number(v)))
    axes.grid(axis="y", visible=False)
    axes.set_title("Messages a second (median, least and most; logarithmic)")


def draw_bars(axes, chart):
    for name, points in chart["series"].items():
        del name
        axes.bar([p["x"] for p in points], [p["median"] for p in points],
                 width=0.5, color=OURS,
                 yerr=[[p["median"] - p["least"] for p in points],
                       [p["most"] - p["median"] for p in points]],
                 error_kw={"ecolor": "#222222", "elinewidth": 0.8,
                           "capsize": 2})
    axes.grid(axis="x", visible=False)


def draw_lines(axes, chart):
    free = [c for c in COLOURS if c not in KNOWN.values()] + list(COLOURS)
    styles = {"p99": "--", "p99.9": ":"}
    for name, points in chart["series"].items():
        first, _, detail = name.partition(", ")
        line = KNOWN.get(first) or free.pop(0)
        x = [p["x"] for p in points]
        axes.plot(x, [p["median"] for p in points], styles.get(detail, "-"),
                  marker="o" if len(x) < 20 else None, markersize=3,
                  linewidth=1.4, color=line, label=name)
        if all("least" in p for p in points):
            axes.fill_between(x, [p["least"] for p in points],
                              [p["most"] for p in points], color=line,
                              alpha=0.15, linewidth=0)
    xs = sorted({p["x"] for s in chart["series"].values() for p in s})
    if chart["log_x"]:
        axes.set_xscale("log")
    if len(xs) <= 12:
        axes.set_xticks(xs, [plain(x) for x in xs])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    if len(chart["series"]) > 3:
        axes.margins(y=0.4)  # room for them above the lines
        axes.legend(ncol=2, loc="upper left")
    elif len(chart["series"]) > 1:
        axes.legend()


def plain(value):
    for size, name in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"


def draw_chart(axes, chart):
    if chart["bars"]:
        draw_bars(axes, chart)
    else:
        draw_lines(axes, chart)
    if chart["log_y"]:
        axes.set_yscale("log")
        axes.autoscale()
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(
        lambda v, _: number(v)))
    axes.set_title(chart["title"])
    axes.set_xlabel(chart["x_label"])
    axes.set_ylabel(chart["y_label"])


def describe(results):
    machine = results.get("machine")
    settings = results.get("settings")
    if not machine or not settings:
        return ""
    database = settings["postgresql"]
    return textwrap.fill(
        f"{machine['processor']}, {machine['cores']} cores shared by broker, "
        f"database and consumer, {machine['memory_gb']} GB, "
        f"{machine['system']}. PostgreSQL {database['server_version']}: fsync "
        f"{database['fsync']}, synchronous_commit "
        f"{database['synchronous_commit']}, shared_buffers "
        f"{database['shared_buffers']}. Artemis: "
        f"{settings['artemis']['java']}, journal-datasync "
        f"{settings['artemis']['journal-datasync']}. Durable messages of "
        f"{settings['body']} bytes, prefetch {settings['prefetch']}, "
        f"{settings['rounds']} rounds in turn.", 150)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    results = json.loads(pathlib.Path(sys.argv[1]).read_text())
    contenders = results.get("contenders", {})
    charts = results.get("charts", {})
    rows = math.ceil(len(charts) / COLUMNS)
    heights = ([0.8 + 0.32 * len(contenders)] if contenders else []) + (
        [2.9 * rows] if rows else [])
    if not heights:
        sys.exit(f"nothing is measured in {sys.argv[1]}")
    figure = pyplot.figure(figsize=(12, sum(heights) + 0.6),
                           layout="constrained")
    parts = iter(figure.subfigures(len(heights), 1, height_ratios=heights,
                                   squeeze=False).flat)
    if contenders:
        draw_contenders(next(parts).add_subplot(), contenders)
    if rows:
        places = next(parts).subplots(rows, COLUMNS, squeeze=False).flat
        for axes in places[len(charts):]:
            axes.set_axis_off()
        for axes, chart in zip(places, charts.values()):
            draw_chart(axes, chart)
    figure.supxlabel(describe(results), fontsize=8, x=0.01, ha="left")
    figure.savefig(sys.argv[2], format="svg", metadata={"Date": None},
                   facecolor="white")


if __name__ == "__main__":
    main()
