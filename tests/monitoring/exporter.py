"""Shows every metric of the registry, each as if it were at work: what Spark, Redis or faults would bring about."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from typing import Any

from keygrouping_app.metrics import DEFINITIONS, PREFIX
from keygrouping_service.observability import metrics
from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

VALUES = {
    "group": ("k-router", "k-worker", "k-aggregator"),
    "query": ("worker", "aggregator"),
    "routing": ("used", "key"),
    "span": ("interval", "run"),
    "worker": ("0", "1"),
}

OF_APPS = {"until": ("",), "why": ("died",), "keys": ("whole", "shared", "before", "planned", "now")}
"""Any label of an app's metrics has any value, but for these."""


def children(metric: Counter | Gauge | Histogram, labels: tuple[str, ...]) -> list[Counter | Gauge | Histogram]:
    rows: list[tuple[str, ...]] = [()]
    for label in labels:
        rows = [(*row, value) for row in rows for value in VALUES.get(label, ("any",))]
    return [metric.labels(*row) for row in rows] if labels else [metric]


def step() -> None:
    """A little more of everything."""
    made = [metric for metric in REGISTRY._collector_to_names if isinstance(metric, Counter | Gauge | Histogram)]
    for metric in made:
        for child in children(metric, metric._labelnames):
            if isinstance(child, Histogram):
                child.observe(0.3)
            else:
                child.inc(7)


class OfAnApp(Collector):
    """A little more of all that an app's member shows."""

    def __init__(self) -> None:
        self._count = 0

    def collect(self) -> Iterator[Any]:
        self._count += 1
        for name, (kind, meaning, labels) in DEFINITIONS.items():
            family = kind(PREFIX + name, meaning, labels=("group", *labels))
            for values in product(*(OF_APPS.get(label, ("any",)) for label in ("group", *labels))):
                if kind is HistogramMetricFamily:
                    buckets = [("0.1", 0), ("1.0", self._count), ("+Inf", self._count)]
                    family.add_metric(values, buckets, sum_value=0.3 * self._count)
                else:
                    family.add_metric(values, 7 * self._count)
            yield family


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        step()
        body = metrics.exposition()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    metrics.register_installed()
    REGISTRY.register(OfAnApp())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"listening on http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
