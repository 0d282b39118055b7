"""A dashboard as a picture: its panels where Grafana has them, filled with what their queries give."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Series = tuple[Mapping[str, str], Sequence[tuple[float, float]]]
Ask = Callable[[str], Sequence[Series]]
"""Gives the series of an expression over the time that is shown: labels, and points: seconds from its begin, value."""

Note = tuple[str, Sequence[float]]
"""An annotation: its colour, and the moments (s from the begin) at which it applies."""

_COLUMN, _LINE = 0.75, 0.42
_MOST_NAMED = 8
_GAP_SECONDS = 5.0
_LETTER = 0.045
"""Width of a legend's letter in inches."""
_BELOW = -0.03
"""Where an axis begins, as part of its end: a line at 0 is seen whole."""
_COLOURS = {"green": "#3d8b40", "orange": "#d98324", "red": "#c0392b"}
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"))


def draw(board: Mapping[str, Any], ask: Ask, path: Path) -> None:
    """Writes the picture of a dashboard, given as Grafana's JSON."""
    places = [panel["gridPos"] for panel in board["panels"]]
    height = max(place["y"] + place["h"] for place in places)
    figure = Figure(figsize=(24 * _COLUMN, (height + 1) * _LINE), facecolor="#f4f5f5")
    figure.text(0.01, 1 - 0.5 / (height + 1), board["title"], fontsize=15, fontweight="bold", va="center")
    notes = [
        (note["iconColor"], times) for note in board["annotations"]["list"] if (times := _times(ask(note["expr"])))
    ]
    for panel in board["panels"]:
        _panel(figure, panel, height + 1, ask, notes)
    figure.savefig(path, dpi=80)


def _times(found: Sequence[Series]) -> list[float]:
    return sorted({time for _, points in found for time, _ in points})


def _panel(figure: Figure, panel: Mapping[str, Any], height: int, ask: Ask, notes: Sequence[Note]) -> None:
    place = panel["gridPos"]
    left, top = place["x"] / 24, 1 - (place["y"] + 1) / height
    if panel["type"] == "row":
        figure.text(left + 0.01, top - 0.5 / height, panel["title"], fontsize=12, color="#444444", va="center")
        return
    width, tall = place["w"] / 24, place["h"] / height
    axes = figure.add_axes((left + 0.035, top - tall + 1.9 / height, width - 0.045, tall - 3.1 / height))
    if panel["type"] == "stat":
        axes.set_position((left + 0.01, top - tall + 0.3 / height, width - 0.02, tall - 1.4 / height))
    figure.text(left + 0.01, top - 0.6 / height, panel["title"], fontsize=9, fontweight="bold", va="center")
    found = [(target, series) for target in panel["targets"] for series in ask(target["expr"])]
    if panel["type"] == "stat":
        _stat(axes, panel, found)
        return
    _lines(axes, panel, found)
    if any(_known(points) for _, (_, points) in found):
        _mark(axes, notes)


def _stat(axes: Axes, panel: Mapping[str, Any], found: Sequence[tuple[Mapping[str, Any], Series]]) -> None:
    values = [known[-1] for _, (_, points) in found if (known := _known(points))]
    defaults = panel["fieldConfig"]["defaults"]
    axes.set_xticks([])
    axes.set_yticks([])
    text = shown(values[0], defaults["unit"], defaults.get("decimals")) if values else defaults["noValue"]
    colour = _colour(values[0], defaults["thresholds"]["steps"]) if values else "#888888"
    axes.text(0.5, 0.5, text, fontsize=20, color=colour, ha="center", va="center", transform=axes.transAxes)


def _mark(axes: Axes, notes: Sequence[Note]) -> None:
    """Each annotation as a band, from the first to the last of its moments without a gap."""
    for colour, times in notes:
        steps = [after - before for before, after in pairwise(times)]
        begin = times[0]
        for time, step in zip(times, [*steps, math.inf], strict=True):
            if step > _GAP_SECONDS:
                axes.axvspan(begin / 60, time / 60, color=colour, alpha=0.12, linewidth=0)
                begin = time + step


def _lines(axes: Axes, panel: Mapping[str, Any], found: Sequence[tuple[Mapping[str, Any], Series]]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    named = [(_legend(target["legendFormat"], labels), points) for target, (labels, points) in found if _known(points)]
    if custom.get("stacking", {}).get("mode") == "normal" and named:
        _stack(axes, named)
    else:
        for name, points in named:
            pieces = broken(points)
            axes.plot([time / 60 for time, _ in pieces], [value for _, value in pieces], label=name, linewidth=1.1)
    if custom.get("scaleDistribution", {}).get("type") == "log":
        axes.set_yscale("log")
    elif named:
        axes.set_ylim(bottom=_BELOW * axes.get_ylim()[1])
    axes.autoscale(False)
    for step in defaults["thresholds"]["steps"][1:]:
        axes.axhline(step["value"], color=_COLOURS[step["color"]], linestyle="--", linewidth=0.8)
    if not named:
        axes.text(0.5, 0.5, "no data", color="#888888", ha="center", va="center", transform=axes.transAxes)
        axes.set_xticks([])
    axes.yaxis.set_major_formatter(lambda value, _: shown(value, defaults["unit"], None))
    values = [value for _, points in named for value in _known(points)]
    narrow = bool(values) and max(values) < 10 * min(values)
    axes.yaxis.set_minor_formatter(lambda value, _: shown(value, defaults["unit"], None) if narrow else "")
    axes.xaxis.set_major_formatter(lambda minutes, _: f"{minutes:g} min")
    axes.tick_params(labelsize=6, which="both")
    axes.grid(color="#e3e3e3", linewidth=0.5)
    if named:
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(
            handles[:_MOST_NAMED],
            labels[:_MOST_NAMED],
            loc="upper left",
            bbox_to_anchor=(-0.02, -0.09),
            ncols=_columns(axes, labels[:_MOST_NAMED]),
            fontsize=6,
            frameon=False,
        )


def broken(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points with a hole where there are none for a while: no line leads over it."""
    found = list(points[:1])
    for before, after in pairwise(points):
        if after[0] - before[0] > _GAP_SECONDS:
            found.append((before[0], math.nan))
        found.append(after)
    return found


def _columns(axes: Axes, labels: Sequence[str]) -> int:
    """How many of the names stand beside each other below a panel."""
    width = axes.get_position().width * 24 * _COLUMN
    return max(1, min(4, int(width / (_LETTER * (max(map(len, labels)) + 8)))))


def _stack(axes: Axes, named: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> None:
    times = sorted({time for _, points in named for time, _ in points})
    rows = []
    for _, points in named:
        values = dict(points)
        rows.append([values.get(time, 0.0) for time in times])
    axes.stackplot([time / 60 for time in times], rows, labels=[name for name, _ in named], alpha=0.7)


def _known(points: Sequence[tuple[float, float]]) -> list[float]:
    return [value for _, value in points if math.isfinite(value)]


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), template) or "value"


def _colour(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return _COLOURS[reached[-1]]


def shown(value: float, unit: str, decimals: int | None) -> str:
    """A value in one of the units that the dashboards use, as Grafana would write it."""
    if unit == "percentunit":
        return f"{value * 100:.{decimals or 1}f} %"
    if unit == "none" or not value:
        return f"{value:.{decimals}f}" if decimals is not None else f"{value:g}"
    if unit == "s" and abs(value) >= 60:
        return f"{value / 60:.1f} min"
    if unit != "s" and abs(value) < 1:
        return f"{value:g}"
    size, prefix = next((pair for pair in _PREFIXES if abs(value) >= pair[0]), _PREFIXES[-1])
    suffix = {"cps": "/s", "s": "s", "bytes": "B"}.get(unit, "")
    return f"{value / size:.3g} {prefix}{suffix}".strip()
