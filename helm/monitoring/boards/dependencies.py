"""Kafka and Redis as the services see them; their own exporters tell the rest."""

from monitoring.boards.kit import Board, Panel, Query, Row, by_process, one
from monitoring.recordings import grown

KAFKA_LAST_SEEN = Panel(
    "Kafka last seen",
    "How long ago a group's input was last looked up in Kafka, by the process that waits longest. Spark's driver does "
    "not tell.",
    "s",
    one("time() - min by (group) (keygrouping_input_seen_timestamp_seconds)", "{{group}}"),
    limits=(30, 180),
    alert="KeygroupingKafkaCutOff",
)

DEPENDENCIES = Board(
    "keygrouping-dependencies",
    "Keygrouping / Kafka and Redis",
    "Kafka and Redis as the services see them.",
    (
        Row(
            "Kafka",
            (
                KAFKA_LAST_SEEN,
                Panel(
                    "Processes that see Kafka",
                    "Part of all processes that have looked up their input in Kafka within three minutes.",
                    "percentunit",
                    one(
                        "1 - avg by (namespace) (time() - keygrouping_input_seen_timestamp_seconds > bool 180)",
                        "see it",
                    ),
                    limits=(1, 0.25),
                    alert="KeygroupingKafkaUnreachable",
                ),
                Panel(
                    "Requests with events refused",
                    "Requests with events per second that producers have not taken: they were wrong, or too many.",
                    "reqps",
                    one("keygrouping:refused_requests:rate5m", "refused"),
                    limits=(0.2,),
                    alert="KeygroupingRequestsRefused",
                ),
                Panel(
                    "Assigned partitions",
                    "Partitions of its input that a group has given to its processes; what is missing has no owner.",
                    "short",
                    one("sum by (group) (keygrouping_assigned_partitions)", "{{group}}"),
                    alert="KeygroupingNothingAssigned",
                ),
                Panel(
                    "Commits",
                    "Commits of output, offset and progress per second, by consumer group.",
                    "cps",
                    one("sum by (group) (rate(keygrouping_commits_total[$__rate_interval]))", "{{group}}"),
                    alert="KeygroupingStageStalled",
                ),
                Panel(
                    "Aborted transactions",
                    "Part of the transactions that were begun and not committed, in ten minutes.",
                    "percentunit",
                    one("keygrouping:transaction_aborts:ratio_rate10m", "{{group}}"),
                    limits=(0.05, 0.5),
                    alert="KeygroupingTransactionAborts",
                ),
                Panel(
                    "Restarts",
                    "Times within ten minutes that partitions were revoked, or restarted after an error.",
                    "short",
                    (
                        Query("sum by (group) (increase(keygrouping_rebalances_total[10m]))", "revoked: {{group}}"),
                        Query(
                            "sum by (group) (increase(keygrouping_partition_restarts_total[10m]))", "error: {{group}}"
                        ),
                    ),
                    alert="KeygroupingPartitionRestarting",
                ),
                Panel(
                    "Lag by group",
                    "Records that a group has yet to read.",
                    "short",
                    one("sum by (group) (keygrouping_lag_records)", "{{group}}"),
                    alert="KeygroupingLagGrowing",
                ),
                Panel(
                    "Expired offsets",
                    "Offsets that retention deleted unread, within an hour: these events are in no result.",
                    "short",
                    one(f"sum by (group) ({grown('keygrouping_expired_offsets_total', '1h')})", "{{group}}"),
                    limits=(1,),
                    alert="KeygroupingEventsLost",
                ),
                Panel(
                    "Expiring records",
                    "Records that a group has yet to read and that retention deletes soon: older than three quarters "
                    "of what their topic keeps.",
                    "short",
                    one("sum by (group) (keygrouping_expiring_records)", "{{group}}"),
                    limits=(1,),
                    alert="KeygroupingEventsExpiring",
                ),
                Panel(
                    "Premises",
                    "1 where Kafka gives what exact results rest on, 0 where it does not, as processes found at their "
                    "start.",
                    "none",
                    one("min by (check) (keygrouping_premise)", "{{check}}"),
                    alert="KeygroupingPremiseViolated",
                ),
                Panel(
                    "Purged",
                    "Offsets per second that are deleted of a topic, as all its readers have committed them.",
                    "cps",
                    one("sum by (topic) (rate(keygrouping_purged_offsets_total[$__rate_interval]))", "{{topic}}"),
                    alert="KeygroupingPremiseViolated",
                ),
                Panel(
                    "Events accepted",
                    "Events per second that the producer has written, from a source or over HTTP.",
                    "cps",
                    (
                        Query(
                            "sum by (namespace) (rate(keygrouping_producer_sent_total[$__rate_interval]))", "replayed"
                        ),
                        Query(
                            "sum by (namespace) (rate(keygrouping_producer_accepted_total[$__rate_interval]))", "HTTP"
                        ),
                        Query(
                            "sum by (namespace) (rate(keygrouping_producer_bad_lines_total[$__rate_interval]))", "bad"
                        ),
                    ),
                    alert="KeygroupingDeadLetters",
                ),
            ),
        ),
        Row(
            "Redis",
            (
                Panel(
                    "Store away",
                    "1 while a router can't use the store that it shares with the others.",
                    "none",
                    one(by_process("max", "keygrouping_router_store_degraded"), "{{process}}"),
                    limits=(1,),
                    alert="KeygroupingStoreDegraded",
                ),
                Panel(
                    "Replicas that see each other",
                    "Routers that share the store and are alive, as each of them sees it, and those that show metrics.",
                    "short",
                    (
                        Query(by_process("max", "keygrouping_router_replicas"), "seen by {{process}}"),
                        Query("count by (namespace) (keygrouping_router_replicas)", "there are"),
                    ),
                    alert="KeygroupingStoreDegraded",
                ),
                Panel(
                    "Open files and connections",
                    "Of each process, as part of the most that it may open.",
                    "percentunit",
                    one(
                        by_process(
                            "max",
                            "process_open_fds / process_max_fds "
                            "and on (namespace, instance) "
                            "(keygrouping_event_loop_lag_seconds_count or keygrouping_app_ready)",
                        ),
                        "{{process}}",
                    ),
                    limits=(0.5, 0.8),
                    alert="KeygroupingFileDescriptorsLow",
                ),
                Panel(
                    "Bad values in the store",
                    "Values within 15 minutes that routers could not use and took for missing, by what they should be.",
                    "short",
                    one(f"sum by (kind) ({grown('keygrouping_router_store_bad_values_total', '15m')})", "{{kind}}"),
                    limits=(1,),
                    alert="KeygroupingStoreBadValues",
                ),
            ),
        ),
    ),
)
