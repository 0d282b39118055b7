"""What an inspection has found, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keygrouping.inspection.batch import Sample, Silence
from keygrouping.inspection.span import Span
from keygrouping.inspection.trend import share
from keygrouping.inspection.trial import Figures
from keygrouping.keyspace import SpaceSaving
from keygrouping.measure import lambda_, std_dev


@dataclass(frozen=True)
class SourceReport:
    """What was read."""

    kind: str
    name: str
    events: int
    weight: float
    sample: Sample | None
    """What was read of all that was there at the beginning; None: all of it."""
    followed: int
    """Events that came since the beginning."""
    silence: Silence | None
    """Since when there is no answer; None: there is."""
    left_out: Mapping[str, int]
    """Records that can't be used, by reason."""
    span: Span | None
    """Of the records' times; None: they are not known."""
    interval: int
    """Events between two plans."""


@dataclass(frozen=True)
class HotKeyReport:
    """One of the heaviest keys; shares are parts of all weight read, 0 to 1."""

    name: str
    low: float
    """Guaranteed: at least this."""
    high: float
    """Guaranteed: at most this."""
    first_third: float | None
    """Estimated share in the first third of the range; None where it is too short."""
    last_third: float | None

    @property
    def share(self) -> float:
        """Halfway between the bounds."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class PartitionLoad:
    """What lies in a partition of the topic."""

    partition: int
    events: int
    weight: float


@dataclass(frozen=True)
class Outcome:
    """What a grouping gives for a number of workers."""

    grouping: str
    label: str
    settings: Mapping[str, Any]
    workers: int
    figures: Figures
    """Of the intervals on average: what matters where partials are merged window by window."""
    run: Figures
    """Of the whole range."""

    @property
    def lambda_(self) -> float:
        """λ of the intervals on average."""
        return self.figures.lambda_

    @property
    def dist_cost(self) -> float:
        """Workers per key (DIST_COST) of the intervals on average."""
        return self.figures.dist_cost

    @property
    def speed_up(self) -> float:
        """How many workers' work is done before the busiest one has no time left: W / λ."""
        return self.workers / self.lambda_


@dataclass(frozen=True)
class TrendPoint:
    """A part of the range that was read."""

    until: int
    """Number of events up to its end."""
    span: Span | None
    """Of its records' times; None: they are not known."""
    heaviest: str | None
    """Its heaviest key; None if that is no longer among the keys that are named."""
    share: float
    """The share of that key."""
    lambdas: Sequence[float]
    """λ by the position in `Report.outcomes`."""


@dataclass(frozen=True)
class Report:
    """All of it."""

    source: SourceReport
    keys: int
    """Distinct keys; an estimate where there are thousands."""
    top: Sequence[HotKeyReport]
    partitions: Sequence[PartitionLoad]
    """Empty where the source has none."""
    outcomes: Sequence[Outcome]
    """By number of workers, key grouping first."""
    trend: Sequence[TrendPoint]
    hidden_keys: bool
    """Whether keys are shown hashed."""

    @property
    def partition_lambda(self) -> float | None:
        """λ of the topic's own partitions; None without them."""
        return lambda_([each.weight for each in self.partitions]) if self.partitions else None

    @property
    def partition_std_dev(self) -> float | None:
        """STD_DEV of them; None without them."""
        return std_dev([each.weight for each in self.partitions]) if self.partitions else None

    @property
    def workers(self) -> list[int]:
        """The numbers of workers that were tried."""
        return list(dict.fromkeys(outcome.workers for outcome in self.outcomes))

    def by_key(self, workers: int) -> Outcome:
        """What key hashing gives for so many workers."""
        return next(each for each in self.outcomes if (each.grouping, each.workers) == ("key", workers))

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data, without the advice."""
        source = self.source
        return {
            "source": {
                "kind": source.kind,
                "name": source.name,
                "events": source.events,
                "weight": source.weight,
                "sample": source.sample and source.sample._asdict(),
                "followed": source.followed,
                "silence": source.silence and source.silence._asdict(),
                "left_out": dict(source.left_out),
                **_times(source.span),
                "interval": source.interval,
            },
            "keys": {
                "distinct": self.keys,
                "hashed": self.hidden_keys,
                "top": [
                    {
                        "key": key.name,
                        "share": key.share,
                        "at_least": key.low,
                        "at_most": key.high,
                        "first_third": key.first_third,
                        "last_third": key.last_third,
                    }
                    for key in self.top
                ],
            },
            "partitions": {
                "lambda": self.partition_lambda,
                "std_dev": self.partition_std_dev,
                "loads": [
                    {"partition": each.partition, "events": each.events, "weight": each.weight}
                    for each in self.partitions
                ],
            },
            "groupings": [
                {
                    "grouping": each.grouping,
                    "settings": dict(each.settings),
                    "workers": each.workers,
                    **_measures(each.figures),
                    "speed_up": each.speed_up,
                    "run": _measures(each.run),
                }
                for each in self.outcomes
            ],
            "trend": [
                {
                    "until": point.until,
                    **_times(point.span),
                    "heaviest": point.heaviest,
                    "share": point.share,
                    "lambda": [
                        {"grouping": each.label, "workers": each.workers, "lambda": value}
                        for each, value in zip(self.outcomes, point.lambdas, strict=True)
                    ],
                }
                for point in self.trend
            ],
        }


def _times(span: Span | None) -> dict[str, int | None]:
    return {**span._asdict()} if span else dict.fromkeys(Span._fields)


def _measures(figures: Figures) -> dict[str, float]:
    return {"lambda": figures.lambda_, "std_dev": figures.std_dev, "dist_cost": figures.dist_cost}


def heaviest_of(keys: SpaceSaving) -> tuple[int, float] | None:
    """Hash and share of the heaviest key, halfway between its bounds; None without weight."""
    if not keys.total:
        return None
    hashed = int(keys.known()["hash"][0])
    return hashed, share(keys, hashed)
