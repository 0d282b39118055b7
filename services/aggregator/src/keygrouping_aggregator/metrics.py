"""The metrics of a native aggregator."""

from __future__ import annotations

from keygrouping.job import AGGREGATE_FAILED
from keygrouping_service.observability.metrics import INVALID_PARTIAL, READER_REASONS, Registration

_own = Registration("aggregator")

PARTIALS = _own.counter(
    "partials_total",
    "partials",
    "Partials merged, or passed over: merged before, or window final.",
    "outcome",
    values=("merged", "passed over"),
)
RESULTS = _own.counter("results_total", "results", "Final results written.")
DEAD = _own.counter(
    "dead_letters_total",
    "records",
    "Partials that can't be merged, and results of which an aggregate's own code failed.",
    "reason",
    values=(INVALID_PARTIAL, AGGREGATE_FAILED, *READER_REASONS),
)
WINDOWS = _own.gauge("open_windows", "windows", "Windows that are not final, per partition of partials.")
GROUPS = _own.gauge("groups", "groups", "Keys times windows held in memory.")
