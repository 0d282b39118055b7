"""Shows every metric of the registry, each as if it were at work: what Spark, Redis or faults would bring about."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from keygrouping_service.observability import metrics
from prometheus_client import Counter, Gauge, Histogram

VALUES = {
    "group": ("k-router", "k-worker", "k-aggregator"),
    "query": ("worker", "aggregator"),
    "routing": ("used", "key"),
    "span": ("interval", "run"),
    "worker": ("0", "1"),
}


def children(metric: Counter | Gauge | Histogram, labels: tuple[str, ...]) -> list[Counter | Gauge | Histogram]:
    rows: list[tuple[str, ...]] = [()]
    for label in labels:
        rows = [(*row, value) for row in rows for value in VALUES.get(label, ("any",))]
    return [metric.labels(*row) for row in rows] if labels else [metric]


def step() -> None:
    """A little more of everything."""
    made = [value for value in vars(metrics).values() if isinstance(value, Counter | Gauge | Histogram)]
    for metric in made:
        for child in children(metric, metric._labelnames):
            if isinstance(child, Histogram):
                child.observe(0.3)
            else:
                child.inc(7)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        step()
        body = metrics.exposition("all")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"listening on http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
