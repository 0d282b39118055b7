"""Writes the figures of docs/comparison.md: its tables and pictures, from the runs and the capacity curves.

    cd benchmarks && python -m peers.page [RUNS]

RUNS: the lines that `make bench-peers` has written, `.data/peers.jsonl` unless named.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from keygrouping_experiments.chart import draw
from keygrouping_experiments.model import Line, Panel
from keygrouping_local.paths import data_dir
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from peers.capacity import CURVES, INSTANCES, SKEWS, WAYS, Point
from peers.contestants import CONTESTANTS
from peers.report import Run, table

PAGE = CURVES.parents[1] / "comparison.md"
RATES, CAPACITY = (CURVES.with_name(f"{name}.png") for name in ("rates", "capacity"))
_BUSY = 6.0
"""Load average above which others have used the machine, too: contestant, broker and benchmark have two cores."""
_FEW = 1_000_000
_BLOCK = "<!-- {name} -->\n.*?<!-- end of {name} -->"


def conditions(runs: Sequence[Run]) -> str:
    """Under which the runs were made, in a sentence."""
    loads = [run.load for run in runs]
    counts = sorted({run.records for run in runs})
    sizes = f"{counts[-1]:,} records" + (" (fewer where the row says so)" if len(counts) > 1 else "")
    rounds = sorted(Counter(run.name for run in runs).values())
    times = f"{rounds[0]} to {rounds[-1]} times" if rounds[0] < rounds[-1] else f"{rounds[0]} times"
    busy = max(loads) > _BUSY
    doubts = [
        *(
            ["The machine did much other work: rates say little, and CPU seconds are higher than on an idle one."]
            * busy
        ),
        *(["With so few records a JVM still compiles while it is measured."] * (counts[-1] < _FEW)),
    ]
    said = (
        f"{sizes}, the hottest key with {runs[0].skew:.0%} of them, each run {times}; load "
        f"average of the machine while they ran, contestant and broker in it: {min(loads):.0f} to {max(loads):.0f}."
    )
    return " ".join([said, *doubts])


def tables(runs: Sequence[Run]) -> str:
    """The conditions, and a table for each work."""
    parts = [conditions(runs)]
    for work, title in (("route", "Routing"), ("count", "Counting in windows")):
        if of_it := [run for run in runs if run.name.startswith(work)]:
            parts += [f"### {title}", table(of_it)]
    return "\n\n".join(parts)


def curves(points: Sequence[Point]) -> str:
    """A table of the sustained rates."""
    head = f"| skew | way | {' | '.join(f'{count} instances' for count in INSTANCES)} | workers per key |"
    lines = [head, "|---" * (len(INSTANCES) + 3) + "|"]
    for skew in SKEWS:
        for way in WAYS:
            found = {point.instances: point for point in points if (point.skew, point.way) == (skew, way)}
            rates = " | ".join(f"{found[count].rate:,.0f}" for count in INSTANCES)
            lines.append(f"| {skew} % | {way} | {rates} | {found[INSTANCES[-1]].workers_per_key:.2f} |")
    return "\n".join(lines)


def draw_rates(runs: Sequence[Run]) -> None:
    """Bars of rates and of CPU seconds, side by side for each work."""
    figure = Figure(figsize=(12, 7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, height_ratios=(13, 8))
    for (left, right), work in zip(panels, ("route", "count"), strict=True):
        found: dict[str, list[Run]] = defaultdict(list)
        for run in runs:
            if run.name.startswith(f"{work}:"):
                found[run.name.removeprefix(f"{work}:")].append(run)
        rates = {name: median(run.rate for run in of_it) / 1000 for name, of_it in found.items()}
        costs = {name: median(run.cpu + run.broker_cpu for run in of_it) for name, of_it in found.items()}
        _bars(left, f"{work}: thousand records/s", rates)
        _bars(right, f"{work}: CPU s per million records, with the broker's (log)", costs)
        right.set_xscale("log")
    figure.savefig(RATES, dpi=80, metadata={"Software": None})


def _bars(axes: Axes, title: str, values: Mapping[str, float]) -> None:
    colors = ["C3" if name.startswith("keygrouping") else "C0" for name in values]
    bars = axes.barh(list(values), list(values.values()), color=colors)
    axes.bar_label(bars, [f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in values.values()], fontsize=8)
    axes.set_title(title, fontsize=10)
    axes.tick_params(labelsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)


def draw_capacity(points: Sequence[Point]) -> None:
    """A diagram for each skew."""
    panels = []
    for skew in SKEWS:
        lines = []
        for way in WAYS:
            found = [point for point in points if (point.skew, point.way) == (skew, way)]
            lines.append(Line(way, tuple(point.instances for point in found), tuple(point.rate for point in found)))
        panels.append(Panel(f"hottest key {skew} %", "instances", "events/s", tuple(lines), log_x=True, log_y=True))
    draw(panels, CAPACITY)


def put(text: str, name: str, content: str) -> str:
    """The page with other content between its marks of this name."""
    block = f"<!-- {name} -->\n\n{content}\n\n<!-- end of {name} -->"
    found, count = re.subn(_BLOCK.format(name=name), lambda _: block, text, flags=re.S)
    if count != 1:
        raise ValueError(f"{PAGE} has no place for {name}")
    return found


def main(path: Path) -> None:
    """Writes all of it."""
    order = [one.name for one in CONTESTANTS]
    runs = sorted(
        (Run(**json.loads(line)) for line in path.read_text().splitlines()), key=lambda run: order.index(run.name)
    )
    with CURVES.open(newline="") as file:
        points = [
            Point(int(r["skew"]), r["way"], int(r["instances"]), float(r["rate"]), float(r["workers_per_key"]))
            for r in csv.DictReader(file)
        ]
    PAGE.write_text(put(put(PAGE.read_text(), "runs", tables(runs)), "curves", curves(points)))
    draw_rates(runs)
    draw_capacity(points)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else data_dir() / "peers.jsonl")
