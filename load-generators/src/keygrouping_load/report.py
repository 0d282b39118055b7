"""What a run has come to, and whether its rate was held."""

from __future__ import annotations

import json
from functools import reduce
from typing import Self

from pydantic import BaseModel

from keygrouping_load.latencies import Latencies
from keygrouping_load.settings import EventLoadSettings


class Report(BaseModel):
    """Of one process or of all. Times are in seconds; latencies go from the intended time to the acknowledgement.

    last: of the last acknowledgement, since the start. late: how far behind its intended time an event was at most
    when the generator gave it to its Kafka client.
    """

    acknowledged: int = 0
    failed: int = 0
    last: float = 0.0
    late: float = 0.0
    latencies: Latencies = Latencies()

    def joined(self, other: Self) -> Self:
        """Both together."""
        return type(self)(
            acknowledged=self.acknowledged + other.acknowledged,
            failed=self.failed + other.failed,
            last=max(self.last, other.last),
            late=max(self.late, other.late),
            latencies=self.latencies.joined(other.latencies),
        )


class Outcome:
    """The reports of all processes against what the settings asked for."""

    def __init__(self, settings: EventLoadSettings, reports: list[Report]) -> None:
        self._settings = settings
        self.report = reduce(Report.joined, reports, Report())

    @property
    def rate(self) -> float:
        """Acknowledged events per second, from the start to the last acknowledgement, or to the schedule's end."""
        settings = self._settings
        return self.report.acknowledged / max(settings.events / settings.rate, self.report.last)

    @property
    def error(self) -> float:
        """By which part the rate differs from the one that was asked for; below 0 if it was lower."""
        return self.rate / self._settings.rate - 1

    @property
    def held(self) -> bool:
        """Whether the error is within the tolerance."""
        return abs(self.error) <= self._settings.tolerance

    def as_text(self) -> str:
        """For people."""
        settings, report, latencies = self._settings, self.report, self.report.latencies
        p50, p99 = latencies.quantile(0.5), latencies.quantile(0.99)
        return (
            f"events   {report.acknowledged:,} of {settings.events:,} acknowledged, {report.failed:,} refused\n"
            f"rate     {self.rate:,.1f}/s of {settings.rate:,.1f}/s: {self.error:+.2%}"
            f" (tolerance {settings.tolerance:.2%})\n"
            f"latency  p50 {_ms(p50)}, p99 {_ms(p99)}, max {_ms(latencies.longest)}"
            " from the intended time to the acknowledgement\n"
            f"sending  at most {_ms(report.late)} after the intended time"
        )

    def as_json(self) -> str:
        """For programs, on one line."""
        settings, report, latencies = self._settings, self.report, self.report.latencies
        return json.dumps(
            {
                "events": settings.events,
                "acknowledged": report.acknowledged,
                "failed": report.failed,
                "rate": settings.rate,
                "achieved_rate": self.rate,
                "error": self.error,
                "held": self.held,
                "latency_p50_seconds": latencies.quantile(0.5),
                "latency_p99_seconds": latencies.quantile(0.99),
                "latency_max_seconds": latencies.longest,
                "late_max_seconds": report.late,
            }
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"
