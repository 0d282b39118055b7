"""How the traffic changes over the range that is read, in as many points as there is room for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keygrouping.inspection.span import Span, joined
from keygrouping.keyspace import SpaceSaving

MOST_POINTS = 64
CAPACITY = 256


@dataclass
class Point:
    """One interval, or several that were laid together."""

    events: int
    loads: list[NDArray[np.float64]]
    """Of the workers, by trial."""
    keys: SpaceSaving
    span: Span | None = None
    """Of its records' times; None: they are not known."""

    def take(self, later: "Point") -> None:
        """Be both intervals."""
        self.events += later.events
        self.loads = [mine + others for mine, others in zip(self.loads, later.loads, strict=True)]
        self.keys.merge(later.keys)
        self.span = joined(self.span, later.span)


class Trend:
    """The points, the earliest first. Where there are too many, each two neighbours become one."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._stride = 1
        self._points: list[Point] = []
        self._taken = 0

    def add(self, point: Point) -> None:
        """The next interval."""
        if self._taken % self._stride:
            self._points[-1].take(point)
        else:
            self._points.append(point)
        self._taken += 1
        if len(self._points) == self._most and self._taken % self._stride == 0:
            self._halve()

    @property
    def points(self) -> Sequence[Point]:
        """All points; the last may have fewer intervals than the others."""
        return self._points

    def _halve(self) -> None:
        for first, second in zip(self._points[::2], self._points[1::2], strict=True):
            first.take(second)
        self._points = self._points[::2]
        self._stride *= 2


def thirds(points: Sequence[Point]) -> tuple[SpaceSaving, SpaceSaving] | None:
    """The keys of the first third of the points, and those of the last; None for fewer than three points."""
    length = len(points) // 3
    if not length:
        return None
    return _together(points[:length]), _together(points[-length:])


def share(keys: SpaceSaving, hashed: int) -> float:
    """A key's part of the weight, halfway between its bounds; 0 without weight."""
    return sum(keys.bounds(hashed)) / 2 / keys.total if keys.total else 0.0


def _together(points: Sequence[Point]) -> SpaceSaving:
    keys = SpaceSaving(CAPACITY)
    for point in points:
        keys.merge(point.keys)
    return keys
