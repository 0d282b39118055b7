"""The router: what it sends where, how fast, and what it sends to late and dead-letters."""

from monitoring.boards.kit import Board, Panel, Query, Row, by_process, happened, one, quantiles
from monitoring.recordings import DEAD_LETTERS, LATE, OF_WORKERS, ROUTED, SKIPPED, at_input, by_worker, combined, used

EVENTS_BY_WORKER = one(
    f"sum by (worker) (rate({ROUTED}[$__rate_interval]) or {by_worker(combined('rate', ROUTED, '$__rate_interval'))})",
    "{{worker}}",
)

_LEFT_OUT = {"late": LATE, "dead": DEAD_LETTERS}
"""What is in no result, with the counters' names."""


def _by_reason(counter: str) -> str:
    """The rate of those reasons that ever occurred: all others are shown as 0, too."""
    ever = f"{counter} or {OF_WORKERS[counter]}"
    return f"sum by (reason) ({at_input('rate', counter, '$__rate_interval')}) and sum by (reason) ({ever}) > 0"


ROUTER = Board(
    "keygrouping-router",
    "Keygrouping / Router",
    "What the routers send where, how long it takes them, and what goes to late and dead-letters. Of workers that "
    "combine at the source: their traffic.",
    (
        Row(
            "Traffic",
            (
                Panel(
                    "Events routed",
                    "Events per second that each router has sent to workers, or each worker has combined at the "
                    "source.",
                    "cps",
                    one(by_process("sum", used("rate", "$__rate_interval")), "{{process}}"),
                    look="stacked",
                    alert="KeygroupingStageStalled",
                ),
                Panel(
                    "Events to be routed",
                    "Events of the input in the partitions of a process that it has yet to read.",
                    "short",
                    one(by_process("sum", 'keygrouping_lag_records{group=~".*-router"}'), "{{process}}"),
                    alert="KeygroupingLagGrowing",
                ),
                Panel(
                    "Late events and dead letters",
                    "Events per second that went to late and dead-letters, by reason; they are in no result.",
                    "cps",
                    (
                        *(
                            Query(f"sum by (namespace) ({at_input('rate', kind, '$__rate_interval')})", name)
                            for name, kind in _LEFT_OUT.items()
                        ),
                        *(Query(_by_reason(kind), f"{name}: {{{{reason}}}}") for name, kind in _LEFT_OUT.items()),
                    ),
                    alert="KeygroupingDeadLetters",
                ),
                Panel(
                    "Part of fields skipped",
                    "Part of all events whose value in a field is of the wrong type: at 1 its aggregates say nothing.",
                    "percentunit",
                    one("keygrouping:skipped_fields:ratio_rate5m", "{{field}}"),
                    limits=(0.001, 0.9),
                    alert="KeygroupingFieldLost",
                ),
                Panel(
                    "Skipped fields",
                    "Events per second with a value of the wrong type, by field: its aggregates skip them.",
                    "cps",
                    one(
                        f"sum by (field) ({at_input('rate', SKIPPED, '$__rate_interval')})",
                        "{{field}}",
                    ),
                    alert="KeygroupingFieldsSkipped",
                ),
            ),
        ),
        Row(
            "Balance",
            (
                Panel(
                    "Events by worker",
                    "Events per second sent to each worker, or combined by it at the source.",
                    "cps",
                    EVENTS_BY_WORKER,
                    look="stacked",
                    alert="KeygroupingUnbalanced",
                ),
                Panel(
                    "λ by router",
                    "λ of the last interval, of what each router has seen, what key hashing would have given, and the "
                    "emptiest worker's load over the average. With few events they are far from 1 by chance.",
                    "none",
                    (
                        Query(by_process("max", "keygrouping_router_imbalance"), "{{process}}"),
                        Query(by_process("min", "keygrouping_router_least_share"), "{{process}}, emptiest worker"),
                        Query(by_process("max", "keygrouping_router_imbalance_before"), "{{process}}, by key hash"),
                    ),
                    look="logarithmic",
                    limits=(1.5,),
                    alert="KeygroupingUnbalanced",
                ),
                Panel(
                    "λ of other groupings",
                    "λ that the groupings in the shadow would give to a sample of the same events.",
                    "none",
                    one("max by (grouping) (keygrouping_router_shadow_imbalance)", "{{grouping}}"),
                    look="logarithmic",
                    limits=(1.5,),
                    alert="KeygroupingUnbalanced",
                ),
            ),
        ),
        Row(
            "Speed",
            (
                Panel(
                    "Time to route a batch",
                    "Time to route and pack one batch once its records are read.",
                    "s",
                    quantiles("keygrouping_router_batch_seconds"),
                    limits=(0.1, 0.25),
                    alert="KeygroupingLagGrowing",
                ),
                Panel(
                    "Time in the kernel",
                    "Time to hash and route one batch: the grouping itself.",
                    "s",
                    quantiles("keygrouping_router_kernel_seconds"),
                    alert="KeygroupingLagGrowing",
                ),
                Panel(
                    "Lag of the event loop",
                    "How late a router's event loop wakes a task. While it is late no heartbeat is sent and no request "
                    "answered.",
                    "s",
                    one(
                        "histogram_quantile(0.99, "
                        + by_process(
                            "sum",
                            "rate(keygrouping_event_loop_lag_seconds_bucket[$__rate_interval]) "
                            "and on (namespace, instance) keygrouping_router_epoch",
                            "le",
                        )
                        + ")",
                        "p99 {{process}}",
                    ),
                    limits=(0.25, 1),
                    alert="KeygroupingTransactionAborts",
                ),
            ),
        ),
        Row(
            "Process and API",
            (
                Panel(
                    "CPU of the routers",
                    "Cores that each router uses.",
                    "none",
                    one(
                        by_process(
                            "sum",
                            "rate(process_cpu_seconds_total[$__rate_interval]) "
                            "and on (namespace, instance) keygrouping_router_epoch",
                        ),
                        "{{process}}",
                    ),
                    alert="KeygroupingTargetDown",
                ),
                Panel(
                    "Memory of the routers",
                    "Memory that each router holds.",
                    "bytes",
                    one(
                        by_process(
                            "sum",
                            "process_resident_memory_bytes and on (namespace, instance) keygrouping_router_epoch",
                        ),
                        "{{process}}",
                    ),
                    alert="KeygroupingTargetDown",
                ),
                Panel(
                    "Refused requests",
                    "Requests per second that were answered with an error, and listeners to events that were cut off.",
                    "cps",
                    (
                        Query("sum by (namespace) (rate(keygrouping_http_problems_total[$__rate_interval]))", "all"),
                        Query(happened("keygrouping_http_problems_total", "status"), "{{status}}"),
                        Query(
                            "sum by (namespace) (rate(keygrouping_router_dropped_listeners_total[$__rate_interval]))",
                            "listeners",
                        ),
                    ),
                    limits=(1,),
                    alert="KeygroupingStoreDegraded",
                ),
            ),
        ),
    ),
)
