"""Worker and aggregator stage, of both runners."""

from monitoring.boards.kit import LAG_LIMITS, Board, Panel, Query, Row, one, quantiles

DELAY_BY_WORKER = Panel(
    "Delay by worker",
    "How long each worker would take for what waits for it, at the pace at which it is sent events.",
    "s",
    one("keygrouping:worker_delay:seconds", "{{worker}}"),
    limits=(30,),
    alert="KeygroupingWorkerSaturated",
)
LAG_BY_STAGE = Panel(
    "Lag by stage",
    "Records that a stage has yet to read. What grows for long will not be worked off.",
    "short",
    one("keygrouping:lag:sum", "{{stage}}"),
    limits=LAG_LIMITS,
    alert="KeygroupingLagGrowing",
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
        Row(
            "Native workers",
            (
                Panel(
                    "Events and partials",
                    "Routed events aggregated and partials written, per second: the wider the keys, the more partials.",
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
                    one("sum by (instance) (rate(keygrouping_worker_flushes_total[$__rate_interval]))", "{{instance}}"),
                    alert="KeygroupingStageStalled",
                ),
                Panel(
                    "Groups in memory",
                    "Keys times windows that workers hold until the next flush.",
                    "short",
                    one("sum by (instance) (keygrouping_worker_groups)", "{{instance}}"),
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
                    one("sum by (instance) (keygrouping_aggregator_open_windows)", "{{instance}}"),
                    alert="KeygroupingNoResults",
                ),
                Panel(
                    "Groups in memory",
                    "Keys times windows that aggregators hold.",
                    "short",
                    one("sum by (instance) (keygrouping_aggregator_groups)", "{{instance}}"),
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
                    "Records read",
                    "Records per second in finished batches, by query.",
                    "cps",
                    one("sum by (query) (rate(keygrouping_spark_input_rows_total[$__rate_interval]))", "{{query}}"),
                    alert="KeygroupingSparkQueryStalled",
                ),
                Panel(
                    "Lag",
                    "Records of a topic that a query has yet to read.",
                    "short",
                    one("sum by (query, topic) (keygrouping_spark_source_lag_records)", "{{query}}: {{topic}}"),
                    limits=LAG_LIMITS,
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
                    "Times within an hour that a query began anew after an error.",
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
