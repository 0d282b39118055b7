"""A simulated run as a picture."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keygrouping.cli.faults import CommandError
from keygrouping.simulate import Interval, Result

_WIDE = 5.0
"""Largest over smallest value from which on an axis is logarithmic."""


def check_plot(path: Path) -> None:
    """CommandError if no picture can be written there."""
    formats = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in formats:
        raise CommandError(f"--plot {path}: unknown kind of picture; choose from {', '.join(sorted(formats))}")
    if not path.absolute().parent.is_dir():
        raise CommandError(f"--plot {path}: there is no folder {path.absolute().parent}")


def plot(result: Result, path: Path) -> None:
    """Draw balance, cost, efficiency and latency of the intervals over the events.

    CommandError if the file can't be written.
    """
    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{result.grouping} on {result.workload}, {result.workers} workers, {result.sources} sources")
    balance, cost, efficiency, latency = figure.subplots(2, 2, sharex=True).flat
    _draw(balance, result, "λ", {"": lambda each: each.measures.lambda_})
    _draw(
        cost,
        result,
        "workers per key",
        {
            "all keys alike": lambda each: each.measures.dist_cost,
            "weighted by events": lambda each: each.measures.replication,
        },
    )
    _draw(efficiency, result, "efficiency, %", {"": lambda each: 100 * each.performance.efficiency})
    _draw(
        latency,
        result,
        "latency, ms",
        {
            "p50": lambda each: 1000 * each.performance.latency_p50,
            "p99": lambda each: 1000 * each.performance.latency_p99,
        },
    )
    for axes in (efficiency, latency):
        axes.set_xlabel("million events")
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CommandError(f"--plot {path}: {error.strerror}") from error


def _draw(axes: Axes, result: Result, label: str, lines: dict[str, Callable[[Interval], float]]) -> None:
    ends = [interval.end / 1e6 for interval in result.intervals]
    drawn = []
    for name, figure in lines.items():
        values = [figure(interval) for interval in result.intervals]
        axes.plot(ends, values, marker="." if len(ends) < 50 else None, label=name)
        drawn += values
    if drawn and max(drawn) > _WIDE * min(drawn) > 0:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * max(drawn, default=1.0))
    if len(lines) > 1:
        axes.legend()
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
