"""A simulated run as tables."""

import math
import sys

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keygrouping.printable import printable
from keygrouping.simulate import Interval, Result, SimulatorSettings

_ROWS = 20
_WIDTH = 110


def report(result: Result, settings: SimulatorSettings) -> None:
    """Print a run to stdout."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDTH)
    workload = escape(printable(result.workload))
    title = (
        f"[bold]{result.grouping}[/bold] on [bold]{workload}[/bold]: {result.workers:,} workers, "
        f"{result.sources:,} sources, {result.events:,} events in {duration(result.seconds)} of virtual time"
    )
    console.print(title)
    console.print(_interval_table(result.intervals))
    console.print(_run_table(result, settings))


def duration(seconds: float) -> str:
    """A time for people."""
    if math.isnan(seconds):
        return "-"
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds / 60:,.1f} min"


def _interval_table(intervals: tuple[Interval, ...]) -> Table:
    shown = np.unique(np.linspace(0, len(intervals) - 1, min(_ROWS, len(intervals))).round().astype(int)).tolist()
    title = "intervals" if len(shown) == len(intervals) else f"{len(shown)} of {len(intervals):,} intervals"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    names = (
        "until",
        "λ",
        "least share",
        "STD_DEV",
        "workers per key",
        "width changes",
        "moved state",
        "efficiency",
        "p50",
        "p99",
    )
    for name in names:
        table.add_column(name, justify="right")
    for index in shown:
        table.add_row(*_figures(intervals[index]))
    return table


def _figures(interval: Interval) -> tuple[str, ...]:
    measures, performance = interval.measures, interval.performance
    return (
        f"{interval.end:,}",
        f"{measures.lambda_:.3f}",
        f"{measures.least_share:.3f}",
        f"{measures.std_dev:.3f}",
        f"{measures.dist_cost:.3f}",
        f"{measures.width_changes:,}",
        f"{measures.moved_state:,.0f}",
        f"{performance.efficiency:.1%}",
        duration(performance.latency_p50),
        duration(performance.latency_p99),
    )


def _run_table(result: Result, settings: SimulatorSettings) -> Table:
    measures, performance = result.measures, result.performance
    rate = f"at {settings.load:.0%} load"
    table = Table(title="the whole run", title_justify="left", box=SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for name, figure, meaning in (
        ("λ", f"{measures.lambda_:.3f}", "largest over average load"),
        ("least share", f"{measures.least_share:.3f}", "least over average load"),
        ("imbalance", f"{measures.imbalance_fraction:.3%}", "of all load: largest minus average load"),
        (
            "average imbalance",
            f"{result.average_imbalance_fraction:.3%}",
            "the same so far, averaged over the course of the run",
        ),
        ("STD_DEV", f"{measures.std_dev:.3f}", "percentage points, of the loads' shares"),
        ("CV", f"{measures.cv:.3f}", "standard deviation over average load"),
        ("replication factor", f"{measures.dist_cost:.3f}", "workers per key (DIST_COST)"),
        ("replication by events", f"{measures.replication:.3f}", "workers per key, keys weighted by their events"),
        ("merges", f"{measures.merges_per_event:.4f}", "partials to merge per event"),
        ("width changes", f"{measures.width_changes:,}", "workers that were new for a known key"),
        ("moved state", f"{measures.moved_state:,.0f}", f"weight, with {measures.moved_keys:,} keys"),
        ("throughput", f"{performance.throughput:,.0f}", "events/s at saturation"),
        ("efficiency", f"{performance.efficiency:.1%}", "of what the workers do at best"),
        ("latency p50", duration(performance.latency_p50), rate),
        ("latency p99", duration(performance.latency_p99), rate),
    ):
        table.add_row(name, figure, meaning)
    return table
