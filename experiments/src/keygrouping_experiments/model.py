"""What an experiment is and what it gives: figures of its own, and how they compare with the published ones."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from keygrouping.simulate import Deal

from keygrouping_experiments.lab import Lab

Cell = str | int | float
Row = Mapping[str, Cell]


@dataclass(frozen=True)
class Comparison:
    """A published figure beside ours."""

    case: str
    measure: str
    published: float
    ours: float
    source: str
    """Where it was published."""

    @property
    def ratio(self) -> float:
        """Ours over the published one; NaN if that is 0."""
        return self.ours / self.published if self.published else math.nan


@dataclass(frozen=True)
class Claim:
    """What a paper says in words, or shows in a figure whose values it doesn't tell, and whether it holds here."""

    what: str
    source: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Line:
    """A curve; x and y have one length."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """A diagram: curves over numbers or, with `categories`, bars for each of them in place of 0, 1, 2, ..."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a run of an experiment has measured, and what follows from it."""

    rows: tuple[Row, ...]
    """All measured figures; every row has the same columns."""
    panels: tuple[Panel, ...]
    comparisons: tuple[Comparison, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper that is redrawn."""

    name: str
    title: str
    source: str
    """The paper, and its tables and figures."""
    setup: str
    """What is run here, one paragraph of Markdown."""
    differences: str
    """Where and why the figures differ from the published ones, Markdown."""
    events: int
    """Events of each of its streams, unless told otherwise."""
    run: Callable[[Lab], Outcome]
    deal: Deal = Deal.ROUND_ROBIN
    """How sources get their events unless told otherwise: that of the papers."""
