"""Line diagrams as SVG, by hand: they stand in a page as they are, and take its colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 40
_TICKS = 4


@dataclass(frozen=True)
class Line:
    """A named curve."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def diagram(lines: Sequence[Line], x_label: str, y_label: str, *, least: float = 0.0) -> str:
    """The lines in one SVG, each with its class c0, c1, ... for its colour; the y axis holds at least `least`."""
    xs = [x for line in lines for x in line.x]
    ys = [y for line in lines for y in line.y]
    left, right = min(xs), max(xs)
    steps = _steps(least, max([*ys, least]))
    low, high = steps[0], steps[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (right - left) if right > left else 0.5
        up = (y - low) / (high - low)
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(y_label)}">']
    for step in steps:
        _, y = place(left, step)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{step:.4g}</text>')
    for x in dict.fromkeys((left, (left + right) / 2, right) if len(set(xs)) > 3 else sorted(set(xs))):
        across, _ = place(x, low)
        parts.append(f'<text x="{across:.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{_short(x)}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.1f}" y="{_HEIGHT - 5}" text-anchor="middle">{escape(x_label)}</text>')
    for number, line in enumerate(lines):
        points = [place(x, y) for x, y in zip(line.x, line.y, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="c{number}" points="{path}"/>')
        for (x, y), height in zip(points, line.y, strict=True):
            title = f"<title>{escape(line.name)}: {height:.4g}</title>"
            parts.append(f'<circle class="c{number}" cx="{x:.1f}" cy="{y:.1f}" r="3">{title}</circle>')
    return "".join([*parts, "</svg>", _legend(lines)])


def _legend(lines: Sequence[Line]) -> str:
    names = "".join(f'<li class="c{number}">{escape(line.name)}</li>' for number, line in enumerate(lines))
    return f'<ul class="legend">{names}</ul>'


def _steps(low: float, high: float) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    span = high - low or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / _TICKS))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor * _TICKS >= span)
    first = math.floor(low / step)
    last = max(first + 1, math.ceil(high / step - 1e-9))
    return [number * step for number in range(first, last + 1)]


def _short(number: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
