"""Which grouping suits the traffic, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from keygrouping.inspection.batch import Sample
from keygrouping.inspection.report import Outcome, Report

EVEN = 1.1
"""λ up to which a stage counts as even: the busiest worker has a tenth more to do than the average."""

_AS_EVEN = 1.02
"""Groupings whose λ is within this factor of the best one's are as even as it."""
_FEW_EVENTS = 10_000


@dataclass(frozen=True)
class Advice:
    """For one number of workers."""

    workers: int
    grouping: str
    settings: Mapping[str, Any]
    reason: str

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a router that follows it."""
        found = {"KEYGROUPING_ROUTER_WORKERS": str(self.workers), "KEYGROUPING_ROUTER_GROUPING": self.grouping}
        if self.settings:
            found["KEYGROUPING_ROUTER_GROUPING_SETTINGS"] = orjson.dumps(dict(self.settings)).decode()
        return found

    @property
    def values(self) -> dict[str, Any]:
        """The chart's values that follow it."""
        grouping: dict[str, Any] = {"name": self.grouping}
        if self.settings:
            grouping["settings"] = dict(self.settings)
        return {"worker": {"replicas": self.workers}, "router": {"grouping": grouping}}

    @property
    def lines(self) -> list[str]:
        """How to follow it: the environment of a router, a variable a line, and the options of `helm`."""
        settings = orjson.dumps(dict(self.settings)).decode()
        options = f"--set worker.replicas={self.workers} --set router.grouping.name={self.grouping}"
        if self.settings:
            options += f" --set-json 'router.grouping.settings={settings}'"
        return [*(f"{name}={value}" for name, value in self.environment.items()), f"chart: {options}"]

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "workers": self.workers,
            "grouping": self.grouping,
            "settings": dict(self.settings),
            "reason": self.reason,
            "environment": self.environment,
            "values": self.values,
        }


def advise(report: Report) -> list[Advice]:
    """The cheapest of the measured groupings that is even, for each number of workers.

    Key grouping where that is even by itself. Else, of those up to `EVEN` (or, if none is, of those nearly as even as
    the best one), that with the fewest workers per key; of equal ones the more even, then the first.
    """
    return [_advice(report, workers) for workers in report.workers]


def warnings(report: Report) -> list[str]:
    """What should be known before the figures are relied on; a sentence each."""
    source = report.source
    found = [] if source.silence is None else [str(source.silence)]
    left_out = sum(source.left_out.values())
    if left_out:
        part = left_out / (left_out + source.events)
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in source.left_out.items())
        found.append(f"{part:.2%} of the records can't be used ({reasons}); a router would put them to dead-letters.")
    if source.events < _FEW_EVENTS:
        were = "event was" if source.events == 1 else "events were"
        found.append(f"Only {source.events:,} {were} read: read more for figures that hold.")
    if source.sample is not None:
        found += _of_sample(source.sample)
    heaviest = list(dict.fromkeys(point.heaviest for point in report.trend if point.heaviest))
    if len(heaviest) > 1:
        found.append(
            f"The heaviest key changes: in the {len(report.trend)} parts of the range, {len(heaviest)} different keys "
            "were the heaviest; a fixed list of hot keys would not do."
        )
    return found


def _of_sample(sample: Sample) -> Iterator[str]:
    if not sample.size:
        yield f"What the topic held, {sample.of:,} offsets, was not read: the figures are those of what came since."
        return
    yield (
        f"A sample of {sample.size:,} of the {sample.of:,} offsets that the topic held: bounds of shares hold for the "
        "events that were read."
    )
    if sample.records < sample.size:
        yield (
            f"The {sample.size:,} offsets of the sample hold {sample.records:,} records: offsets are what --sample "
            "counts, and some of a compacted or transactional topic hold none."
        )


def _advice(report: Report, workers: int) -> Advice:
    by_key = report.by_key(workers)
    if by_key.lambda_ <= EVEN:
        reason = (
            f"Key hashing is even as it is (λ {by_key.lambda_:.2f}) and keeps every key on one worker: nothing to gain."
        )
        return Advice(workers, "key", {}, reason)
    chosen = _cheapest([each for each in report.outcomes if each.workers == workers])
    if chosen is by_key:
        reason = f"None of the groupings compared is more even than key hashing (λ {by_key.lambda_:.2f}); try others."
        return Advice(workers, "key", {}, reason)
    return Advice(workers, chosen.grouping, chosen.settings, _reason(report, by_key, chosen))


def _cheapest(outcomes: Sequence[Outcome]) -> Outcome:
    limit = max(EVEN, _AS_EVEN * min(each.lambda_ for each in outcomes))
    return min(
        (each for each in outcomes if each.lambda_ <= limit),
        key=lambda each: (round(each.dist_cost, 3), round(each.lambda_, 3)),
    )


def _reason(report: Report, by_key: Outcome, chosen: Outcome) -> str:
    workers = by_key.workers
    why = f"Key hashing has λ {by_key.lambda_:.2f}: {workers} workers do the work of {by_key.speed_up:.1f}."
    top = report.top[0] if report.top else None
    if top is not None and top.low * workers > 1:
        why += (
            f" {top.name} alone has {top.low:.1%} of the weight, more than a worker's fair share of {1 / workers:.1%}: "
            f"without splitting it, however many workers do the work of {1 / top.low:.1f} at most."
        )
    else:
        why += " No key is too heavy for one worker: their hashes lie unevenly."
    gain = f"{chosen.label} has λ {chosen.lambda_:.2f}, the work of {chosen.speed_up:.1f} workers,"
    return f"{why} {gain} at {chosen.dist_cost:.2f} workers per key."
