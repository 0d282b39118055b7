"""The recording rules: what alerts and dashboards share. All names begin with `keygrouping:`, all have `namespace`."""

from __future__ import annotations

import re

from monitoring.model import Objective, Recording

EVENTS = Objective("slow_events", "keygrouping_observer_latency_seconds", 0.99, 10.0)
"""Events are in a partial soon after their own timestamp."""

RESULTS = Objective("slow_results", "keygrouping_result_delay_seconds", 0.99, 60.0)
"""Final results are there soon after their window could be final: what users of the results see."""

WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
"""Over which the part of slow events, and of slow results, is known."""

_PARTS = {
    "producer": "keygrouping_producer_sent_total",
    "router": "keygrouping_router_epoch",
    "worker": "keygrouping_worker_events_total",
    "aggregator": "keygrouping_aggregator_results_total",
    "observer": "keygrouping_observer_workers",
    "spark": "keygrouping_spark_results_total",
}
"""A metric of each part that is there from its start and has no labels."""

_WRITERS = ("router", "worker", "aggregator", "observer", "spark")
_DEAD = " or ".join(f"rate(keygrouping_{part}_dead_letters_total[5m])" for part in _WRITERS)

_ABORTS = "sum by (namespace, group) (rate(keygrouping_transaction_aborts_total[10m]))"
_COMMITS = "sum by (namespace, group) (rate(keygrouping_commits_total[10m]))"

_WAITING_SINCE = (
    "max by (namespace) (max_over_time(keygrouping_last_result_timestamp_seconds[1d]) "
    "or max_over_time(((keygrouping:events:rate5m == 0) + time())[1d:1m]) "
    "or min by (namespace, job) (process_start_time_seconds and on (namespace, instance) keygrouping_router_epoch))"
)
"""The newest of: the last result, the last moment without events, the start of the routers."""


_CAPACITY = "max by (namespace, worker) (keygrouping_router_worker_capacity)"

_IMBALANCE_BEFORE = (
    "sum by (namespace) (sum by (namespace, instance) (avg_over_time(keygrouping_router_imbalance_before[5m])) "
    "* sum by (namespace, instance) (rate(keygrouping_router_routed_total[5m]))) / on (namespace) "
    "keygrouping:events:rate5m"
)
"""Each router counts as much as it routes: by chance alone, one with few events sees a large λ."""

_ALL, _IN_TIME = f"{RESULTS.histogram}_count", f'{RESULTS.histogram}_bucket{{le="{RESULTS.within}"}}'
_LATE = (
    f"sum by (namespace) (clamp_min(({_ALL} - {_ALL} offset 5m) "
    f"- ignoring (le) ({_IN_TIME} - {_IN_TIME} offset 5m), 0))"
)
"""Late windows of the last five minutes, each counted once: `increase` would miss what comes between two spans.

A process that is gone or began anew counts for nothing, whatever it had counted before.
"""


def _slow(objective: Objective, window: str) -> Recording:
    fast = f'sum by (namespace) (rate({objective.histogram}_bucket{{le="{objective.within}"}}[{window}]))'
    return Recording(
        objective.ratio(window), f"1 - {fast} / sum by (namespace) (rate({objective.histogram}_count[{window}]))"
    )


RECORDINGS: tuple[Recording, ...] = (
    *(
        Recording("keygrouping:instances:count", f"count by (namespace) ({metric})", {"part": part})
        for part, metric in _PARTS.items()
    ),
    Recording("keygrouping:events:rate5m", "sum by (namespace) (rate(keygrouping_router_routed_total[5m]))"),
    Recording(
        "keygrouping:results:rate5m",
        "sum by (namespace) "
        "(rate(keygrouping_aggregator_results_total[5m]) or rate(keygrouping_spark_results_total[5m]))",
    ),
    Recording("keygrouping:waiting:since", _WAITING_SINCE),
    Recording(
        "keygrouping:lag:sum",
        'sum by (namespace, stage) (label_replace(keygrouping_lag_records, "stage", "$1", "group", ".*-([a-z]+)") '
        'or label_replace(keygrouping_spark_source_lag_records, "stage", "$1", "query", "(.+)"))',
    ),
    Recording(
        "keygrouping:worker_delay:seconds",
        "max by (namespace, worker) (keygrouping_router_worker_lag_records) "
        "/ sum by (namespace, worker) (rate(keygrouping_router_routed_total[5m]))",
    ),
    Recording(
        "keygrouping:imbalance:rate5m",
        "max by (namespace) (sum by (namespace, worker) (rate(keygrouping_router_routed_total[5m])) "
        f"/ on (namespace, worker) {_CAPACITY}) "
        f"/ on (namespace) keygrouping:events:rate5m * on (namespace) sum by (namespace) ({_CAPACITY})",
    ),
    Recording("keygrouping:imbalance_before:avg5m", _IMBALANCE_BEFORE),
    Recording("keygrouping:dead_letters:rate5m", f"sum by (namespace, reason) ({_DEAD})"),
    Recording(
        "keygrouping:transaction_aborts:ratio_rate10m",
        f"{_ABORTS} / ({_ABORTS} + ({_COMMITS} or 0 * {_ABORTS}))",
    ),
    Recording(
        "keygrouping:spark_start:time",
        "max by (namespace) (process_start_time_seconds and on (namespace, instance) keygrouping_spark_results_total)",
    ),
    *(_slow(objective, window) for objective in (EVENTS, RESULTS) for window in WINDOWS),
    Recording("keygrouping:slow_results:increase5m", _LATE),
)

_NAME = re.compile(r"(keygrouping:[a-z0-9_:]*[a-z0-9])(\[[^]:]+\])?")


def inlined(expr: str) -> str:
    """An expression that needs no recording rules: their names are replaced by what they are computed of."""

    def replace(match: re.Match[str]) -> str:
        name, span = match[1], match[2]
        parts = [_labelled(recording) for recording in RECORDINGS if recording.name == name]
        whole = f"({inlined(' or '.join(parts))})"
        return f"{whole}{span[:-1]}:1m]" if span else whole

    return _NAME.sub(replace, expr)


def _labelled(recording: Recording) -> str:
    expr = recording.expr
    for label, value in recording.labels.items():
        expr = f'label_replace({expr}, "{label}", "{value}", "", "")'
    return expr
