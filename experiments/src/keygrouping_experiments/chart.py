"""The diagrams of an experiment as one picture; needs matplotlib."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keygrouping_experiments.model import Panel

_COLUMNS = 3
_MARKERS = "osD^vPX*<>"
_COLOURS = 10
_MANY = 50
"""Points from which on a curve has no markers."""
_ROOM_ABOVE_BARS = 0.25
"""For the legend, as a part of the highest."""


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write the panels, side by side and in rows, into a PNG file that is the same for the same panels.

    A label has one colour and marker in all of them.
    """
    columns = min(len(panels), _COLUMNS)
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    labels = dict.fromkeys(line.label for panel in panels for line in panel.lines)
    styles = {label: number for number, label in enumerate(labels)}
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(places, panels, strict=False):
        _panel(axes, panel, styles)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=90, metadata={"Software": None})


def _panel(axes: Axes, panel: Panel, styles: Mapping[str, int]) -> None:
    if panel.categories:
        _bars(axes, panel, styles)
    else:
        _curves(axes, panel, styles)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x_label, fontsize=9)
    axes.set_ylabel(panel.y_label, fontsize=9)
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3)
    if len(panel.lines) > 1:
        axes.legend(fontsize=7, loc="upper center" if panel.categories else "best", ncols=3 if panel.categories else 1)


def _bars(axes: Axes, panel: Panel, styles: Mapping[str, int]) -> None:
    width = 0.8 / len(panel.lines)
    for place, line in enumerate(panel.lines):
        shift = (place - (len(panel.lines) - 1) / 2) * width
        color = f"C{styles[line.label] % _COLOURS}"
        axes.bar([x + shift for x in line.x], line.y, width, label=line.label, color=color)
    axes.set_xticks(range(len(panel.categories)), panel.categories)
    axes.margins(y=_ROOM_ABOVE_BARS)


def _curves(axes: Axes, panel: Panel, styles: Mapping[str, int]) -> None:
    for line in panel.lines:
        style = styles[line.label]
        marker = _MARKERS[style % len(_MARKERS)] if len(line.x) < _MANY else ""
        color = f"C{style % _COLOURS}"
        axes.plot(line.x, line.y, marker=marker, markersize=4, linewidth=1.2, label=line.label, color=color)
    if panel.log_x:
        axes.set_xscale("log")
        ticks = sorted({x for line in panel.lines for x in line.x})
        axes.set_xticks(ticks, [f"{tick:,.12g}" for tick in ticks])
        axes.set_xticks([], minor=True)
    if panel.log_y:
        axes.set_yscale("log", nonpositive="mask")
