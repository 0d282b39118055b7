"""Whether a topic's events are worth being routed, or are better combined where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keygrouping.inspection.report import Report

HOP = 2.0
"""µs of CPU time that an event costs more if it is routed: of router, broker and worker together, as measured."""

COMBINE = {"KEYGROUPING_STAGES": "combine"}
"""The settings of stages without a router."""

_HOW = "by KEYGROUPING_STAGES=combine, or runner=native and stages=combine of the chart."


@dataclass(frozen=True)
class Stages:
    """From how much work per event on routing gains, for a number of workers with a core each.

    `share` is that of the topic's busiest partition, `least_work` in µs of a worker's time, reading included; None:
    routing never gains.
    """

    workers: int
    share: float
    least_work: float | None

    @property
    def text(self) -> str:
        """The advice in words."""
        busiest = f"The busiest partition has {self.share:.1%} of the weight"
        if self.least_work is None:
            return (
                f"{busiest}, no more than a worker's fair share of {1 / self.workers:.1%}: aggregates are cheaper "
                f"without a router, {_HOW}"
            )
        return (
            f"{busiest}: routing, which costs {HOP:g} µs per event, gains if an event takes a worker more than "
            f"{self.least_work:.2g} µs, reading it included; aggregates that cost less are cheaper "
            f"without a router, {_HOW}"
        )

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        settings: Mapping[str, str] = COMBINE
        return {
            "workers": self.workers,
            "busiest_partition": self.share,
            "hop_us": HOP,
            "route_from_us": self.least_work,
            "environment_without_router": dict(settings),
            "reason": self.text,
        }


def advise_stages(report: Report) -> list[Stages]:
    """For each number of workers; none where the source has no partitions.

    A partition is combined on one core, so that W cores do 1 / (share x work) events per second; if they are routed all
    cores share the work, W / (hop + work).
    """
    total = sum(each.weight for each in report.partitions)
    if not total:
        return []
    share = max(each.weight for each in report.partitions) / total
    return [Stages(workers, share, least_work(workers * share)) for workers in report.workers]


def least_work(load: float) -> float | None:
    """The µs of work from which on routing gains where a core has `load` times a fair share; None: it never does."""
    return HOP / (load - 1) if load > 1 else None
