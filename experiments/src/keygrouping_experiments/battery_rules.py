"""What level-fill promises on the battery, and where it doesn't keep it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from keygrouping_experiments.battery import (
    COST,
    EFFICIENCY,
    KEY,
    LAMBDA,
    PLANNED,
    STEADY,
    STREAMS,
    UNPLANNED,
    W_CHOICES,
)
from keygrouping_experiments.model import Row
from keygrouping_experiments.rows import values

MARGIN = 0.01
"""A figure is worse than another one if it is so by more than this part, beyond chance."""
_QUANTILES = (31.82, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821)
"""Of Student's distribution at 99 %, with one degree of freedom and more."""


@dataclass(frozen=True)
class Finding:
    """A promise on a stream with W workers and S sources."""

    promise: str
    stream: str
    workers: int
    sources: int
    measured: str
    excess: float
    """By which part it is missed; 0 or less: kept."""


def worse(mine: Sequence[float], other: Sequence[float]) -> float:
    """By which part more than `MARGIN` mine, of the same seeds, are larger on average; 0 if that may be chance.

    The test is the paired one of Student at 1 %, on one side. One seed alone has no chance to be judged by.
    """
    parts = [one / another - 1.0 for one, another in zip(mine, other, strict=True)]
    mean = fmean(parts)
    error = stdev(parts) / math.sqrt(len(parts)) if len(parts) > 1 else 0.0
    quantile = _QUANTILES[min(len(parts) - 1, len(_QUANTILES)) - 1]
    return mean - MARGIN if mean > MARGIN and mean > quantile * error else 0.0


def findings(rows: Sequence[Row]) -> list[Finding]:
    """All promises on all cases that were measured with the groupings that they are about."""
    cases = {(str(row["stream"]), int(row["W"]), int(row["S"])) for row in rows}
    order = [each.name for each in STREAMS]
    found: list[Finding] = []
    for stream, workers, sources in sorted(cases, key=lambda case: (order.index(case[0]), *case[1:])):
        mine = [row for row in rows if (row["stream"], row["W"], row["S"]) == (stream, workers, sources)]

        def figures(column: str, grouping: str, mine: Sequence[Row] = mine) -> tuple[float, ...]:
            return values(mine, column, grouping=grouping)

        if not figures(LAMBDA, PLANNED):
            continue
        found += [
            Finding(promise, stream, workers, sources, measured, excess)
            for promise, measured, excess in (*_never_worse(figures), *_targets(figures, stream, workers))
        ]
    return found


Figures = Callable[[str, str], tuple[float, ...]]
_Judged = Iterable[tuple[str, str, float]]


def _never_worse(figures: Figures) -> _Judged:
    """Than a rival, of those that were measured."""
    for rival in (UNPLANNED, KEY):
        if theirs := figures(LAMBDA, rival):
            mine = figures(LAMBDA, PLANNED)
            yield f"λ no worse than {rival}", f"{fmean(mine):.3f} to {fmean(theirs):.3f}", worse(mine, theirs)
            # Efficiencies change places: less is worse.
            mine, theirs = figures(EFFICIENCY, PLANNED), figures(EFFICIENCY, rival)
            text = f"{fmean(mine):.3f} to {fmean(theirs):.3f}"
            yield f"efficiency no worse than {rival}", text, worse(theirs, mine)
    if theirs := figures(LAMBDA, W_CHOICES):
        ratio = fmean(figures(LAMBDA, PLANNED)) / fmean(theirs)
        yield f"λ within 1.03 of {W_CHOICES}", f"{ratio:.3f}", ratio - 1.03
        mine, theirs = figures(COST, PLANNED), figures(COST, W_CHOICES)
        text = f"{fmean(mine):.3f} to {fmean(theirs):.3f}"
        yield f"no more pairs than {W_CHOICES}", text, fmean(mine) / fmean(theirs) - 1.0 - 1e-9


def _targets(figures: Figures, stream: str, workers: int) -> _Judged:
    """Figures of its own."""
    lambda_, cost = fmean(figures(LAMBDA, PLANNED)), fmean(figures(COST, PLANNED))
    if stream in ("40 % skew", "80 % skew") and workers in (10, 50):
        most, dearest = {10: (1.01, 1.1), 50: (1.015, 1.36)}[workers]
        yield f"λ at most {most} with W = {workers}", f"{lambda_:.4f}", lambda_ - most
        yield f"pairs per key at most {dearest} with W = {workers}", f"{cost:.3f}", cost - dearest
    if stream == "colliding hashes":
        yield "λ at most 1.1", f"{lambda_:.3f}", lambda_ - 1.1
    if any(each.name == stream and each.changes for each in STREAMS):
        least = fmean(figures(STEADY, PLANNED))
        yield "least worker at .95 of average from the third interval after a change on", f"{least:.3f}", 0.95 - least
