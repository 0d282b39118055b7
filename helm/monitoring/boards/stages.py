"""Worker and aggregator stage, of both runners."""

from monitoring.boards.kit import LAG_LIMITS, Board, Panel, Query, Row, by_process, one, quantiles
from monitoring.recordings import RESULTS, WRITERS

DELAY_BY_WORKER = Panel(
    "Delay by worker",
    "How long each worker would take for what waits for it, at the pace at which it is sent events, or combines them "
    "at the source.",
    "s",
    one("keygrouping:worker_delay:seconds", "{{worker}}"),
    limits=(30, 300),
    alert="KeygroupingWorkersBehind",
)
LAG_BY_STAGE = Panel(
    "Lag by stage",
    "How long as much takes to be routed, or combined at the source, as a stage has yet to read. What grows for long "
    "will not be processed in time.",
    "s",
    one("keygrouping:lag:seconds", "{{stage}}"),
    limits=LAG_LIMITS,
    alert="KeygroupingLagSteady",
)

_WATERMARK = "keygrouping_watermark_timestamp_seconds"
_OWNERS = by_process(
    "max",
    f'label_replace({_WATERMARK}{{group=~".*-worker"}}, "worker", "$1", "partition", "(.+)")',
    "namespace",
    "worker",
)
"""Each worker's number with the process that has its partition."""

_OURS = "and on (namespace, instance) keygrouping_event_loop_lag_seconds_count"


def _per_batch(spent: str, part: str) -> str:
    """Seconds of each part of a batch of Spark's, on average, by a histogram with the part as label."""
    rates = (f"sum by (query, {part}) (rate({spent}_{series}[$__rate_interval]))" for series in ("sum", "count"))
    return " / ".join(rates)


HELD_BACK = Row(
    "Why are results late?",
    (
        Panel(
            "Held back by",
            "How far the event time of an input partition is behind the furthest one of its stage: the ten that hold "
            "results back the most. Those that are idle hold nothing back.",
            "s",
            one(
                f"topk(10, max by (namespace, group) ({_WATERMARK}) - on (namespace, group) group_right () "
                f"max by (namespace, group, partition) ({_WATERMARK} > 0))",
                "{{group}} [{{partition}}]",
            ),
            limits=(RESULTS.within / 2, RESULTS.within),
            alert="KeygroupingResultsBudgetBurnFast",
        ),
        Panel(
            "Age of the watermark",
            "How far the event time up to which a stage is complete is behind the clock. In a replay of history that "
            "is much.",
            "s",
            one(f"time() - min by (group) ({_WATERMARK} > 0)", "{{group}}"),
            alert="KeygroupingNoResults",
        ),
        Panel(
            "Partitions without a watermark",
            "Input partitions that are not idle and of which no event time is known yet: they hold back all results.",
            "short",
            one(f"sum by (group) ({_WATERMARK} == bool 0)", "{{group}}"),
            limits=(1,),
            alert="KeygroupingNoResults",
        ),
    ),
)
FULL = Row(
    "Which process is full?",
    (
        Panel(
            "Delay by worker and pod",
            "How long each worker would take for what waits for it, with the pod that works on its partition now.",
            "s",
            one(
                f"(0 * {_OWNERS} + 1) * on (namespace, worker) group_left () keygrouping:worker_delay:seconds "
                "or on (worker) keygrouping:worker_delay:seconds",
                "{{worker}}: {{process}}",
            ),
            limits=(30, 300),
            alert="KeygroupingWorkerSaturated",
        ),
        Panel(
            "CPU",
            "Cores that each process uses, of all services. Spark's executors do not tell.",
            "none",
            one(by_process("sum", f"rate(process_cpu_seconds_total[$__rate_interval]) {_OURS}"), "{{process}}"),
            alert="KeygroupingLagGrowing",
        ),
        Panel(
            "Memory",
            "Memory that each process holds, of all services.",
            "bytes",
            one(by_process("sum", f"process_resident_memory_bytes {_OURS}"), "{{process}}"),
            alert="KeygroupingTargetDown",
        ),
        Panel(
            "Records to read",
            "Records in the partitions of a process that it has yet to read, by group.",
            "short",
            one(by_process("sum", "keygrouping_lag_records", "group"), "{{group}}: {{process}}"),
            alert="KeygroupingLagGrowing",
        ),
        Panel(
            "Lag of all event loops",
            "How late the event loop of a process wakes a task.",
            "s",
            one(
                "histogram_quantile(0.99, "
                + by_process("sum", "rate(keygrouping_event_loop_lag_seconds_bucket[$__rate_interval])", "le")
                + ")",
                "p99 {{process}}",
            ),
            limits=(0.25, 1),
            alert="KeygroupingTransactionAborts",
        ),
        Panel(
            "Dead letters by service",
            "Records per second that each service sends to dead-letters, and for which reasons; they are in no result.",
            "cps",
            (
                *(
                    Query(f"sum by (namespace) (rate(keygrouping_{part}_dead_letters_total[$__rate_interval]))", part)
                    for part in WRITERS
                ),
                Query("sum by (namespace) (rate(keygrouping_producer_bad_lines_total[$__rate_interval]))", "producer"),
                Query("keygrouping:dead_letters:rate5m > 0", "of them: {{reason}}"),
            ),
            alert="KeygroupingDeadLetters",
        ),
    ),
)

STAGES = Board(
    "keygrouping-stages",
    "Keygrouping / Workers and aggregator",
    "What the stages behind the router do, on Spark and on the native runner.",
    (
        Row(
            "Both runners",
            (
                DELAY_BY_WORKER,
                LAG_BY_STAGE,
                Panel(
                    "Final results",
                    "Final results written per second.",
                    "cps",
                    one("keygrouping:results:rate5m", "results"),
                    alert="KeygroupingNoResults",
                ),
            ),
        ),
        HELD_BACK,
        FULL,
        Row(
            "Native workers",
            (
                Panel(
                    "Events and partials",
                    "Events aggregated and partials written, per second: the wider the keys, the more partials.",
                    "cps",
                    (
                        Query("sum by (namespace) (rate(keygrouping_worker_events_total[$__rate_interval]))", "events"),
                        Query(
                            "sum by (namespace) (rate(keygrouping_worker_partials_total[$__rate_interval]))", "partials"
                        ),
                    ),
                    alert="KeygroupingStageStalled",
                ),
                Panel(
                    "Flushes",
                    "Flushes of a partition's partials per second, by worker process.",
                    "cps",
                    one(by_process("sum", "rate(keygrouping_worker_flushes_total[$__rate_interval])"), "{{process}}"),
                    alert="KeygroupingStageStalled",
                ),
                Panel(
                    "Groups of the workers",
                    "Keys times windows that workers hold until the next flush.",
                    "short",
                    one(by_process("sum", "keygrouping_worker_groups"), "{{process}}"),
                    alert="KeygroupingTargetDown",
                ),
            ),
        ),
        Row(
            "Native aggregator",
            (
                Panel(
                    "Partials",
                    "Partials merged per second, and those passed over: merged before, or too late.",
                    "cps",
                    one(
                        "sum by (outcome) (rate(keygrouping_aggregator_partials_total[$__rate_interval]))",
                        "{{outcome}}",
                    ),
                    look="stacked",
                    alert="KeygroupingStageStalled",
                ),
                Panel(
                    "Open windows",
                    "Windows that are not final, per partition of partials. If they only rise, no window gets final.",
                    "short",
                    one(by_process("sum", "keygrouping_aggregator_open_windows"), "{{process}}"),
                    alert="KeygroupingNoResults",
                ),
                Panel(
                    "Groups of the aggregators",
                    "Keys times windows that aggregators hold.",
                    "short",
                    one(by_process("sum", "keygrouping_aggregator_groups"), "{{process}}"),
                    alert="KeygroupingTargetDown",
                ),
            ),
        ),
        Row(
            "Spark",
            (
                Panel(
                    "Time of a batch",
                    "From trigger to commit, by query. A batch longer than the trigger's interval delays the next.",
                    "s",
                    quantiles("keygrouping_spark_batch_seconds", "query"),
                    limits=(10, 60),
                    alert="KeygroupingSparkQueryStalled",
                ),
                Panel(
                    "Phases of a batch",
                    "What a batch's time consists of on average, by Spark's names of its phases.",
                    "s",
                    one(_per_batch("keygrouping_spark_phase_seconds", "phase"), "{{query}}: {{phase}}"),
                    limits=(10, 60),
                    alert="KeygroupingSparkQueryStalled",
                ),
                Panel(
                    "Steps of a batch",
                    "What the phase addBatch consists of on average: the worker announces, writes and refuses, the "
                    "aggregator merges, commits and publishes.",
                    "s",
                    one(_per_batch("keygrouping_spark_step_seconds", "step"), "{{query}}: {{step}}"),
                    limits=(10, 60),
                    alert="KeygroupingSparkQueryStalled",
                ),
                Panel(
                    "Records read",
                    "Records per second in finished batches, by query.",
                    "cps",
                    one("sum by (query) (rate(keygrouping_spark_input_rows_total[$__rate_interval]))", "{{query}}"),
                    alert="KeygroupingSparkQueryStalled",
                ),
                Panel(
                    "Lag of Spark's queries",
                    "Records of a topic that a query has yet to read.",
                    "short",
                    one("sum by (query, topic) (keygrouping_spark_source_lag_records)", "{{query}}: {{topic}}"),
                    alert="KeygroupingLagGrowing",
                ),
                Panel(
                    "Rows of state",
                    "Rows in the state of a query's operator: keys of open windows.",
                    "short",
                    one("sum by (query, operator) (keygrouping_spark_state_rows)", "{{query}}: {{operator}}"),
                    alert="KeygroupingSparkDriverRestarting",
                ),
                Panel(
                    "Memory of the state",
                    "Memory that the state in an executor takes and can't give back; all queries there share it.",
                    "bytes",
                    one("max by (query) (keygrouping_spark_state_memory_bytes)", "{{query}}"),
                    alert="KeygroupingSparkDriverRestarting",
                ),
                Panel(
                    "Restarts of a query",
                    "Times within an hour that a query restarted after an error.",
                    "short",
                    one("sum by (query) (increase(keygrouping_spark_query_restarts_total[1h]))", "{{query}}"),
                    limits=(1, 3),
                    alert="KeygroupingSparkQueryStalled",
                ),
                Panel(
                    "Dropped rows",
                    "Repeated partials per second that came after their window closed: they were counted before.",
                    "cps",
                    one("sum by (query) (rate(keygrouping_spark_dropped_rows_total[$__rate_interval]))", "{{query}}"),
                    alert="KeygroupingSparkQueryStalled",
                ),
                Panel(
                    "Age of the driver",
                    "Time since Spark's driver was started last.",
                    "s",
                    one("time() - keygrouping:spark_start:time", "driver"),
                    alert="KeygroupingSparkDriverRestarting",
                ),
            ),
        ),
    ),
)
