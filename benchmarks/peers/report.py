"""A run's figures, and tables of them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from peers.contestants import CONTESTANTS


@dataclass(frozen=True)
class Run:
    """One contestant in one round; CPU seconds are per million records."""

    name: str
    round: int
    records: int
    skew: float
    state: str
    rate: float
    seconds: float
    start_seconds: float
    cpu: float
    broker_cpu: float
    peak_mib: float
    right: int
    extra: int
    largest_share: float
    load: float
    """Of the machine, at the end: the average of a minute. What contestant and broker ask for is in it."""


HEAD = (
    "| run | records/s: median (range) | CPU s per M | broker's CPU s per M | start s | peak MiB | exactly once "
    "| right | lines |",
    "|---|---|---|---|---|---|---|---|---|",
)


def table(runs: Iterable[Run]) -> str:
    """Markdown: a row per contestant, medians over its rounds."""
    by_name: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_name[run.name].append(run)
    return "\n".join([*HEAD, *(_row(name, of_it) for name, of_it in by_name.items())])


def _row(name: str, runs: list[Run]) -> str:
    contestant = next(one for one in CONTESTANTS if one.name == name)
    rates = [run.rate for run in runs]
    cells = (
        name if contestant.records is None else f"{name} ({runs[0].records:,} records)",
        f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
        f"{statistics.median(run.cpu for run in runs):.1f}",
        f"{statistics.median(run.broker_cpu for run in runs):.1f}",
        f"{statistics.median(run.start_seconds for run in runs):.1f}",
        f"{max(run.peak_mib for run in runs):.0f}",
        "yes" if contestant.exactly_once else "no",
        _verdict(runs),
        str(contestant.lines()),
    )
    return f"| {' | '.join(cells)} |"


def _verdict(runs: list[Run]) -> str:
    faults = {
        f"{run.state}, {run.records - run.right:,} missing or wrong, {run.extra:,} too many"
        for run in runs
        if run.state != "ok" or run.right != run.records or run.extra
    }
    return "; ".join(sorted(faults)) or "yes"
