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
    "inspect": "keygrouping_inspect_read_timestamp_seconds",
}
"""A metric of each part that is there from its start, once."""

WRITERS = ("router", "worker", "aggregator", "observer", "spark")
"""Services that write to `dead-letters` and say why; the producer counts what it can't read."""
_DEAD = " or ".join(f"rate(keygrouping_{part}_dead_letters_total[5m])" for part in WRITERS)

_SECONDS = {"15m": 900, "1h": 3600}


def grown(counter: str, span: str) -> str:
    """By how much a counter has grown over `span`, also before it was scraped for the first time.

    `increase` knows nothing of what a process counts between its start and its first scrape. Whoever has started
    within `span` has counted all of it since; that is the answer where it is the larger one.
    """
    started = f"last_over_time(process_start_time_seconds[{span}]) > time() - {_SECONDS[span]}"
    since_start = f"(last_over_time({counter}[{span}]) and on (namespace, instance) ({started}))"
    increase = f"increase({counter}[{span}])"
    return f"({since_start} > {increase} or {increase} or {since_start})"


COMBINING = "keygrouping_worker_result_wait_seconds"
"""Above 0 at workers that combine at the source, and at no others."""


ROUTED, LATE = "keygrouping_router_routed_total", "keygrouping_router_late_total"
DEAD_LETTERS, SKIPPED = "keygrouping_router_dead_letters_total", "keygrouping_router_skipped_fields_total"
OF_WORKERS = {
    ROUTED: "keygrouping_worker_events_total",
    LATE: "keygrouping_worker_late_total",
    DEAD_LETTERS: "keygrouping_worker_dead_letters_total",
    SKIPPED: "keygrouping_worker_skipped_fields_total",
}
"""What routers count, as workers count it that combine at the source."""


def at_input(how: str, counter: str, span: str) -> str:
    """`rate` or `increase` of what whoever reads the input counts: routers, and workers that combine at the source.

    Workers behind routers count what these have counted already, and would go on for a while after them: they are left
    out.
    """
    return f"({how}({counter}[{span}]) or {combined(how, counter, span)})"


def combined(how: str, counter: str, span: str) -> str:
    """What workers that combine at the source count of what is `counter` at routers."""
    here = f"last_over_time({COMBINING}[{span}]) > 0"
    return f"({how}({OF_WORKERS[counter]}[{span}]) and on (namespace, instance) {here})"


def used(how: str, span: str) -> str:
    """The events that routers have sent to workers, and those that workers have combined at the source."""
    return at_input(how, ROUTED, span)


def by_worker(expr: str) -> str:
    """Series of routers have the label `worker`; those of workers get it: the pod, or the instance without pods."""
    named = f'label_replace({expr}, "worker", "$1", "instance", "(.*)")'
    return f'label_replace({named}, "worker", "$1", "pod", "(.+)")'


_DEAD_GROWN = " or ".join(grown(f"keygrouping_{part}_dead_letters_total", "15m") for part in WRITERS)

_LOST = 'keygrouping_expired_offsets_total{group!~".*-(observer|audit)"}'
"""What the observer has not seen is in the results all the same."""

_LATE_EVENTS = f"sum by (namespace) ({at_input('rate', LATE, '10m')})"

_EXCLUDED = f"{at_input('rate', LATE, '10m')} or {at_input('rate', DEAD_LETTERS, '10m')}"
"""Events that go into no partial; the labels `reason` of the two kinds are not the same."""

_UNSEEN = "time() - keygrouping_input_seen_timestamp_seconds > 180"
_AWAY = (
    f"min by (namespace) ({_UNSEEN}) and on (namespace) "
    f"count by (namespace) ({_UNSEEN}) >= 0.75 * count by (namespace) (keygrouping_input_seen_timestamp_seconds) "
    "or 0 * count by (namespace) (keygrouping_input_seen_timestamp_seconds)"
)
"""How long Kafka has been away, by three quarters of all processes: one that has just started knows nothing of it."""

_WORKER_LAG = "max by (namespace, worker) (keygrouping_router_worker_lag_records)"
_COMBINES_HERE = f"{COMBINING} > 0 and on (namespace, instance) keygrouping_assigned_partitions > 0"
"""A worker that combines and has a partition: those beyond the number of partitions stand by."""
_COMBINER_LAG = by_worker(f"keygrouping_lag_records and on (namespace, instance) ({_COMBINES_HERE})")
_COMBINED = by_worker(f"rate(keygrouping_worker_events_total[5m]) and on (namespace, instance) ({_COMBINES_HERE})")


_CAPACITY = "max by (namespace, worker) (keygrouping_router_worker_capacity)"
_LOAD_OF_COMBINER = f"sum by (namespace, worker) ({_COMBINED})"
_IMBALANCE_COMBINED = (
    f"max by (namespace) ({_LOAD_OF_COMBINER}) / on (namespace) (avg by (namespace) ({_LOAD_OF_COMBINER}) > 0)"
)
_IMBALANCE = (
    "max by (namespace) (sum by (namespace, worker) (rate(keygrouping_router_routed_total[5m])) "
    f"/ on (namespace, worker) {_CAPACITY}) "
    f"/ on (namespace) keygrouping:events:rate5m * on (namespace) sum by (namespace) ({_CAPACITY})"
)


def _delay(lag: str, rate: str) -> str:
    return f"{lag} / clamp_min(sum by (namespace, worker) ({rate}) or 0 * {lag}, 1)"


_WORKER_DELAY = (
    f"{_delay(_WORKER_LAG, 'rate(keygrouping_router_routed_total[5m])')} or "
    f"{_delay(f'sum by (namespace, worker) ({_COMBINER_LAG})', _COMBINED)}"
)

_ABORTS = "sum by (namespace, group) (rate(keygrouping_transaction_aborts_total[10m]))"
_COMMITS = "sum by (namespace, group) (rate(keygrouping_commits_total[10m]))"

_WAITING_SINCE = (
    "max by (namespace) (max_over_time(keygrouping_last_result_timestamp_seconds[1d]) "
    "or max_over_time(((keygrouping:events:rate2m == 0) + time())[1d:1m]) "
    "or min by (namespace, job) (process_start_time_seconds and on (namespace, instance) "
    f"(keygrouping_router_epoch or {COMBINING} > 0)))"
)
"""The newest of: the last result, the last moment without events, the start of whoever reads the input."""


_IMBALANCE_BEFORE = (
    "sum by (namespace) (sum by (namespace, instance) (avg_over_time(keygrouping_router_imbalance_before[5m])) "
    "* sum by (namespace, instance) (rate(keygrouping_router_routed_total[5m]))) / on (namespace) "
    "keygrouping:events:rate5m"
)
"""Each router counts as much as it routes: by chance alone, one with few events sees a large λ."""


_APP_LAG = "sum by (namespace, group, topic) (keygrouping_app_lag_records)"
_APP_DIED = 'keygrouping_app_processes_replaced_total{why="died"}'


def _late(objective: Objective) -> Recording:
    """What was late in the last five minutes, each counted once: `increase` would miss what comes between two spans.

    A process that is gone or was started again counts for nothing, whatever it had counted before.
    """
    every, in_time = f"{objective.histogram}_count", f'{objective.histogram}_bucket{{le="{objective.within}"}}'
    return Recording(
        f"keygrouping:{objective.missed}:increase5m",
        f"sum by (namespace) (clamp_min(({every} - {every} offset 5m) "
        f"- ignoring (le) ({in_time} - {in_time} offset 5m), 0))",
    )


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
    Recording("keygrouping:events:rate2m", f"sum by (namespace) ({used('rate', '2m')})"),
    Recording("keygrouping:events:rate5m", f"sum by (namespace) ({used('rate', '5m')})"),
    Recording(
        "keygrouping:result_wait:seconds",
        f"max by (namespace) (keygrouping_router_result_wait_seconds or {COMBINING} > 0)",
    ),
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
        "keygrouping:lag:seconds",
        "keygrouping:lag:sum / on (namespace) group_left () clamp_min(keygrouping:events:rate5m, 1)",
    ),
    Recording("keygrouping:worker_delay:seconds", _WORKER_DELAY),
    Recording("keygrouping:imbalance:rate5m", f"{_IMBALANCE_COMBINED} or {_IMBALANCE}"),
    Recording("keygrouping:imbalance_before:avg5m", _IMBALANCE_BEFORE),
    Recording(
        "keygrouping:overridden:ratio_rate5m",
        "sum by (namespace, worker) (rate(keygrouping_router_overridden_total[5m])) "
        f"/ on (namespace, worker) {_CAPACITY} / on (namespace) group_left () (keygrouping:events:rate5m > 0) "
        f"* on (namespace) group_left () sum by (namespace) ({_CAPACITY})",
    ),
    Recording("keygrouping:dead_letters:rate5m", f"sum by (namespace, reason) ({_DEAD})"),
    Recording("keygrouping:dead_letters:increase15m", f"sum by (namespace, reason) ({_DEAD_GROWN})"),
    Recording(
        "keygrouping:lost_events:increase1h",
        f"sum by (namespace, group) ({grown(_LOST, '1h')})",
    ),
    Recording(
        "keygrouping:late_events:ratio_rate10m",
        f"{_LATE_EVENTS} / clamp_min({_LATE_EVENTS} "
        f"+ (sum by (namespace) ({used('rate', '10m')}) or 0 * {_LATE_EVENTS}), 1e-9)",
    ),
    Recording("keygrouping:excluded:rate10m", f"sum by (namespace) ({_EXCLUDED})"),
    Recording(
        "keygrouping:excluded:ratio_rate10m",
        "keygrouping:excluded:rate10m / on (namespace) clamp_min(keygrouping:excluded:rate10m + on (namespace) "
        f"(sum by (namespace) ({used('rate', '10m')}) or 0 * keygrouping:excluded:rate10m), 1e-9)",
    ),
    Recording(
        "keygrouping:refused_requests:rate5m",
        'sum by (namespace) (rate(keygrouping_http_problems_total{status=~"413|415|422|429|503"}[5m]) '
        "and on (namespace, instance) keygrouping_producer_accepted_total)",
    ),
    Recording(
        "keygrouping:skipped_fields:ratio_rate5m",
        f"sum by (namespace, field) ({at_input('rate', SKIPPED, '5m')}) / on (namespace) group_left () "
        "(keygrouping:events:rate5m > 0)",
    ),
    Recording("keygrouping:kafka_away:seconds", _AWAY),
    Recording(
        "keygrouping:observed:since",
        "max by (namespace) (keygrouping_observer_interval_end_seconds > 0 "
        "or (process_start_time_seconds and on (namespace, instance) keygrouping_observer_workers))",
    ),
    Recording(
        "keygrouping:transaction_aborts:ratio_rate10m",
        f"{_ABORTS} / clamp_min({_ABORTS} + ({_COMMITS} or 0 * {_ABORTS}), 1e-9)",
    ),
    Recording(
        "keygrouping:spark_start:time",
        "max by (namespace) (process_start_time_seconds and on (namespace, instance) keygrouping_spark_results_total)",
    ),
    Recording("keygrouping:app_members:count", 'count by (namespace, group) (keygrouping_app_ready{until=""})'),
    Recording("keygrouping:app_lag:sum", _APP_LAG),
    Recording(
        "keygrouping:app_lag:seconds",
        f"{_APP_LAG} / clamp_min(sum by (namespace, group, topic) (rate(keygrouping_app_events_total[10m])), 0.02)",
    ),
    Recording(
        "keygrouping:app_dead_letters:increase15m",
        f"sum by (namespace, group, topic, reason) ({grown('keygrouping_app_dead_letters_total', '15m')})",
    ),
    Recording(
        "keygrouping:app_processes_died:increase15m", f"sum by (namespace, group, topic) ({grown(_APP_DIED, '15m')})"
    ),
    *(_slow(objective, window) for objective in (EVENTS, RESULTS) for window in WINDOWS),
    *(_late(objective) for objective in (EVENTS, RESULTS)),
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
