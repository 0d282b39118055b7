"""Snapshots as others see them: the words of their JSON, the last ones, and the gauges."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from keygrouping_service.observability.metrics import LATENCY_BUCKETS
from prometheus_client import Gauge

from keygrouping_observer import metrics
from keygrouping_observer.figures import Totals
from keygrouping_observer.latency import quantile
from keygrouping_observer.report import State

KEPT = 60
"""Snapshots that are shown."""


def moment(time_ms: int) -> str:
    """ISO 8601 in UTC of a time in ms since 1970."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe_latency(totals: Totals, latencies: Sequence[float] = ()) -> dict[str, Any]:
    """The histogram of the sampled events in seconds; quantiles where the single values are known."""
    return {
        "samples": totals.samples,
        "p50": quantile(latencies, 0.5),
        "p99": quantile(latencies, 0.99),
        "bounds": LATENCY_BUCKETS,
        "counts": [int(count) for count in totals.latency_counts],
    }


class RecentSnapshots:
    """The last snapshots and lags, for the API and the metrics. `state`: another replica may be the one observing."""

    def __init__(self, observer: str) -> None:
        self.observer = observer
        self.state: State = "standby"
        self._snapshots: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._lags: list[int] = []

    def stand_by(self) -> None:
        """This replica observes no longer."""
        self.state = "standby"

    def restore(self, snapshots: Sequence[dict[str, Any]]) -> None:
        """Shows the snapshots that were written before, the oldest first."""
        self._snapshots.clear()
        self._snapshots.extend(snapshots)
        if snapshots:
            _show(snapshots[-1])

    def add(self, snapshot: dict[str, Any], latencies: Sequence[float]) -> None:
        """Shows the snapshot of the interval that has just ended."""
        self._snapshots.append(snapshot)
        for latency in latencies:
            metrics.LATENCY.observe(latency)
        _show(snapshot)

    def show_lags(self, lags: list[int]) -> None:
        """Shows how far the workers are behind."""
        _set_all(metrics.LAG, lags, len(self._lags))
        self._lags = lags

    def as_json(self, limit: int) -> dict[str, Any]:
        """The last intervals, the newest first, and the run."""
        newest = list(self._snapshots)[::-1]
        return {
            "observer": self.observer,
            "state": self.state,
            "lags": self._lags,
            "intervals": [_without_run(snapshot) for snapshot in newest[:limit]],
            "run": newest[0]["run"] if newest else None,
        }


def _without_run(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in snapshot.items() if name != "run"}


def _show(snapshot: dict[str, Any]) -> None:
    for span, figures in (("interval", snapshot), ("run", snapshot["run"])):
        metrics.IMBALANCE.labels(span, "used").set(figures["lambda"])
        metrics.IMBALANCE.labels(span, "key").set(figures["lambda_before"])
        metrics.LEAST_SHARE.labels(span).set(figures["least_share"])
        metrics.STD_DEV.labels(span, "used").set(figures["std_dev"])
        metrics.STD_DEV.labels(span, "key").set(figures["std_dev_before"])
        metrics.DIST_COST.labels(span).set(figures["dist_cost"])
        metrics.MESSAGES.labels(span).set(figures["messages_per_event"])
        if figures["efficiency"] is not None:
            metrics.EFFICIENCY.labels(span).set(figures["efficiency"])
    metrics.WORKERS.set(snapshot["workers"])
    metrics.RUN_SAMPLE.set(snapshot["run"]["key_sample"])
    metrics.INTERVAL_END.set(datetime.fromisoformat(snapshot["end"]).timestamp())
    _set_all(metrics.THROUGHPUT, snapshot["throughputs"], snapshot["run"]["workers"])


def _set_all(gauge: Gauge, values: Sequence[float], shown: int) -> None:
    """Sets a worker's gauges, and those of the workers that are gone to 0."""
    for worker in range(max(len(values), shown)):
        gauge.labels(str(worker)).set(values[worker] if worker < len(values) else 0)
