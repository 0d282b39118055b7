"""The alerts: what users of the results notice, and what leads to it soon. docs/runbooks.md has a section for each."""

from __future__ import annotations

from monitoring.model import Alert, Objective
from monitoring.recordings import COMBINING, EVENTS, grown, used
from monitoring.recordings import RESULTS as FINAL

_FLOWING = "on (namespace) keygrouping:events:rate5m > 0"
_FLOWED_LAST = (
    "on (namespace) (last_over_time(keygrouping:events:rate2m[1h]) > 0) "
    "and on (namespace) count by (namespace) (keygrouping:instances:count)"
)
"""Events flow, or did until the series of those who read the input ended; and something of the pipeline is there."""
_WAIT = "(keygrouping:result_wait:seconds or last_over_time(keygrouping:result_wait:seconds[1h]))"
_DEAD = "sum by (namespace) (keygrouping:dead_letters:rate5m)"
_PROMISE = f"{EVENTS.part:.0%} of all events within {EVENTS.within:.0f} s"
_FINAL_PROMISE = f"{FINAL.part:.0%} of all windows final within {FINAL.within:.0f} s of when they could be"
_ANY_PROCESS = "keygrouping_event_loop_lag_seconds_count or keygrouping_app_ready"
"""What each process of ours has, and each member of an app."""
_NO_ROUTER_NEEDED = (
    f'unless on (namespace, part) label_replace(count by (namespace) ({COMBINING} > 0), "part", "router", "", "")'
)
"""Who has changed to workers that combine at the source has stopped the routers."""
_FAST = (("1h", "5m", 14.4), ("6h", "30m", 6.0))
_SLOW = (("1d", "2h", 3.0), ("3d", "6h", 1.0))


_NO_OUTAGE = " unless on (namespace) max_over_time(keygrouping:kafka_away:seconds[1h]) > 0"
"""Of what was late in an outage of Kafka, the alert of the outage tells: nobody is woken twice."""


def _burning(objective: Objective, *pairs: tuple[str, str, float], and_also: str = "", after_all: str = "") -> str:
    """The budget of 30 days is used up this many times too fast, over a long window and still over a short one.

    `and_also` is a further condition, in which `{long}` stands for the long window; `after_all` is one on the whole.
    """
    either = " or ".join(
        f"({objective.ratio(long)} > {factor * objective.budget:g} "
        f"and {objective.ratio(short)} > {factor * objective.budget:g}{and_also.format(long=long)})"
        for long, short, factor in pairs
    )
    return f"({either}){after_all}" if after_all else either


def _repeatedly(objective: Objective) -> str:
    """Late ones came at three times, five minutes apart, within the long window.

    There may be few of them: one alone, as the last before a pause, the first of a new release, or many in one go
    after an outage wake nobody.
    """
    return f" and sum_over_time((keygrouping:{objective.missed}:increase5m > bool 0)[{{long}}:5m]) >= 3"


RESULTS = (
    Alert(
        "KeygroupingNoResults",
        f"(time() - keygrouping:waiting:since) > on (namespace) {_WAIT} + 120 and {_FLOWED_LAST}",
        "1m",
        "critical",
        "No final results in {{ $labels.namespace }} for {{ $value | humanizeDuration }}, although events flow",
        "Events come, but the last final result is {{ $value | humanizeDuration }} old: the next one was due more than "
        "two minutes ago. Whoever reads the results sees old data.",
    ),
    Alert(
        "KeygroupingStageStalled",
        "sum by (namespace, group, pod, instance) (keygrouping_lag_records) > 0 unless "
        "sum by (namespace, group, pod, instance) (increase(keygrouping_commits_total[10m])) > 0",
        "5m",
        "critical",
        "{{ $labels.instance }} of group {{ $labels.group }} has records to read and commits nothing",
        "{{ $value | humanize }} records wait for it, and for 15 minutes it has committed nothing. Results of the keys "
        "in its partitions no longer come.",
    ),
    Alert(
        "KeygroupingEventsLost",
        "keygrouping:lost_events:increase1h > 0",
        "0m",
        "critical",
        "Retention has deleted {{ $value | humanize }} records that {{ $labels.group }} in {{ $labels.namespace }} had "
        "not read",
        "Within the last hour {{ $value | humanize }} offsets were deleted before {{ $labels.group }} had read them. "
        "What was in them is in no result and is gone from the topic.",
    ),
    Alert(
        "KeygroupingEventsExpiring",
        "sum by (namespace, group) (keygrouping_expiring_records) > 0",
        "5m",
        "warning",
        "Retention is about to delete {{ $value | humanize }} records that {{ $labels.group }} in "
        "{{ $labels.namespace }} has not read",
        "{{ $value | humanize }} records that {{ $labels.group }} has yet to read are older than three quarters of the "
        "time that their topic keeps, or among the oldest quarter of what it has room for. When they are deleted they "
        "are in no result.",
    ),
    Alert(
        "KeygroupingLagGrowing",
        "min_over_time(keygrouping:lag:sum[15m]) > 1000 and deriv(keygrouping:lag:sum[15m]) > 0",
        "15m",
        "warning",
        "The {{ $labels.stage }} stage in {{ $labels.namespace }} falls behind",
        "Its lag has grown for half an hour and was never below {{ $value | humanize }} records in the last 15 "
        "minutes: more comes in than it can do, and results come later and later.",
    ),
    Alert(
        "KeygroupingLagSteady",
        f"keygrouping:lag:seconds > {FINAL.within:.0f} and keygrouping:lag:sum > 1000 "
        "and keygrouping:lag:sum >= 0.9 * min_over_time(keygrouping:lag:sum[5m] offset 15m)",
        "15m",
        "warning",
        "The {{ $labels.stage }} stage in {{ $labels.namespace }} is {{ $value | humanizeDuration }} behind and does "
        "not catch up",
        "What waits for the {{ $labels.stage }} stage is as much as is routed, or combined at the source, in "
        "{{ $value | humanizeDuration }}, and for half an hour it has not become less: all results are late by that "
        "much.",
    ),
    Alert(
        "KeygroupingLatencyBudgetBurnFast",
        _burning(EVENTS, *_FAST, and_also=_repeatedly(EVENTS), after_all=_NO_OUTAGE),
        "2m",
        "critical",
        "{{ $value | humanizePercentage }} of the events in {{ $labels.namespace }} are late",
        f"Promised are {_PROMISE}; {{{{ $value | humanizePercentage }}}} take longer. At this pace the error budget of "
        "30 days is gone within five days or sooner.",
    ),
    Alert(
        "KeygroupingLatencyBudgetBurnSlow",
        _burning(EVENTS, *_SLOW, and_also=_repeatedly(EVENTS)),
        "15m",
        "warning",
        "{{ $value | humanizePercentage }} of the events in {{ $labels.namespace }} have been late for long",
        f"Promised are {_PROMISE}; {{{{ $value | humanizePercentage }}}} take longer. At this pace the error budget of "
        "30 days does not last.",
    ),
    Alert(
        "KeygroupingResultsBudgetBurnFast",
        _burning(FINAL, *_FAST, and_also=_repeatedly(FINAL), after_all=_NO_OUTAGE),
        "2m",
        "critical",
        "{{ $value | humanizePercentage }} of the windows in {{ $labels.namespace }} become final too late",
        f"Promised are {_FINAL_PROMISE}; {{{{ $value | humanizePercentage }}}} take longer. At this pace the error "
        "budget of 30 days is gone within five days or sooner.",
    ),
    Alert(
        "KeygroupingResultsBudgetBurnSlow",
        _burning(FINAL, *_SLOW, and_also=_repeatedly(FINAL)),
        "15m",
        "warning",
        "{{ $value | humanizePercentage }} of the windows in {{ $labels.namespace }} have long been final too late",
        f"Promised are {_FINAL_PROMISE}; {{{{ $value | humanizePercentage }}}} take longer. At this pace the error "
        "budget of 30 days does not last.",
    ),
    Alert(
        "KeygroupingEventsLate",
        "keygrouping:late_events:ratio_rate10m > 0.05",
        "5m",
        "warning",
        "{{ $value | humanizePercentage }} of the events in {{ $labels.namespace }} come too late for their window",
        "{{ $value | humanizePercentage }} of all events go to the topic for late ones and are in no result: they came "
        "after newer events of their own input partition by more than the allowed lateness.",
    ),
    Alert(
        "KeygroupingEventsExcluded",
        "keygrouping:excluded:ratio_rate10m > 0.9 and on (namespace) keygrouping:excluded:rate10m > 0.2",
        "5m",
        "critical",
        "{{ $value | humanizePercentage }} of the events in {{ $labels.namespace }} are in no result",
        "{{ $value | humanizePercentage }} of all events are late for their window or can't be used, and go to the "
        "topics late and dead-letters. Results go on for what little is left, or end.",
    ),
    Alert(
        "KeygroupingDeadLetters",
        f"keygrouping:dead_letters:rate5m / on (namespace) group_left () ({_DEAD} + "
        f"(keygrouping:events:rate5m or 0 * {_DEAD})) > 0.001",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the events in {{ $labels.namespace }} go to dead-letters: "
        "{{ $labels.reason }}",
        "For ten minutes {{ $value | humanizePercentage }} of all events have gone to dead-letters with the reason "
        "{{ $labels.reason }}. They are in no result.",
    ),
    Alert(
        "KeygroupingDeadLettersBurst",
        "keygrouping:dead_letters:increase15m > 10000 or (keygrouping:dead_letters:increase15m > 100 and "
        "keygrouping:dead_letters:increase15m > on (namespace) group_left () "
        f"0.001 * sum by (namespace) ({used('increase', '15m')}))",
        "0m",
        "warning",
        "{{ $value | humanize }} events in {{ $labels.namespace }} went to dead-letters within 15 minutes: "
        "{{ $labels.reason }}",
        "Within 15 minutes {{ $value | humanize }} events went to dead-letters with the reason "
        "{{ $labels.reason }}. They are in no result.",
    ),
    Alert(
        "KeygroupingFieldLost",
        "keygrouping:skipped_fields:ratio_rate5m > 0.9 and on (namespace) keygrouping:events:rate5m > 0.2",
        "5m",
        "critical",
        "{{ $value | humanizePercentage }} of the events in {{ $labels.namespace }} have a value of the wrong type in "
        "{{ $labels.field }}",
        "The aggregates of {{ $labels.field }} skip {{ $value | humanizePercentage }} of all events, as what stands "
        "there is no number, or no text where one is wanted: results come, and say next to nothing of it.",
    ),
    Alert(
        "KeygroupingFieldsSkipped",
        "keygrouping:skipped_fields:ratio_rate5m > 0.001",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the events in {{ $labels.namespace }} have a value of the wrong type in "
        "{{ $labels.field }}",
        "For ten minutes the aggregates of {{ $labels.field }} have skipped {{ $value | humanizePercentage }} of all "
        "events: what stands there is no number, or no text where one is wanted. The events count in all else.",
    ),
    Alert(
        "KeygroupingEventsUnaccounted",
        "(max by (namespace, kind) (keygrouping_observer_audit_differences) or "
        "max by (namespace, kind) (last_over_time(keygrouping_observer_audit_differences[1d]))) > 0",
        "1m",
        "critical",
        "Events in {{ $labels.namespace }} are missing in the results or are in them twice",
        "The audit has found {{ $value | humanize }} places ({{ $labels.kind }}) that it can't account for. Results "
        "of these windows are wrong, or can't be shown to be right: don't bill by them yet.",
    ),
    Alert(
        "KeygroupingAuditStalled",
        f"time() - max by (namespace) (keygrouping_observer_audit_compared_seconds > 0) > 900 and {_FLOWING}",
        "5m",
        "warning",
        "The audit in {{ $labels.namespace }} has compared nothing for {{ $value | humanizeDuration }}",
        "Events flow, and for {{ $value | humanizeDuration }} nobody has compared the results with what was read. "
        "Results may be right, but they are not proven.",
    ),
    Alert(
        "KeygroupingObserverBlind",
        "((time() - keygrouping:observed:since > 600) or "
        "600 + (sum by (namespace) (rate(keygrouping_observer_events_total[10m])) == 0)) and " + _FLOWING,
        "5m",
        "warning",
        "The observer in {{ $labels.namespace }} has seen no events for {{ $value | humanizeDuration }} or longer",
        "Events flow, and for {{ $value | humanizeDuration }} or longer the observer has seen none of them, or has "
        "ended no interval. Whether events are late is unknown meanwhile: the alerts on their latency are blind.",
    ),
)

BALANCE = (
    Alert(
        "KeygroupingUnbalanced",
        "keygrouping:imbalance:rate5m > 1.5 and on (namespace) max by (namespace) (keygrouping_router_splitting) == 1 "
        "and on (namespace) keygrouping:events:rate5m > on (namespace) 10 * max by (namespace) "
        "(keygrouping_router_workers)",
        "15m",
        "warning",
        "The busiest worker in {{ $labels.namespace }} has {{ $value | humanize }} times the average load",
        "Keys are being split, and yet λ after routing, over all routers, is {{ $value | humanize }}: a heavy key "
        "is pinned by an override, or the grouping in force or its thresholds do not fit this traffic. The busiest "
        "worker limits all of them.",
    ),
    Alert(
        "KeygroupingOverrideOverloads",
        "keygrouping:overridden:ratio_rate5m > 1.5 and on (namespace) keygrouping:events:rate5m > on (namespace) "
        "10 * max by (namespace) (keygrouping_router_workers)",
        "15m",
        "warning",
        "Overrides alone send worker {{ $labels.worker }} in {{ $labels.namespace }} {{ $value | humanize }} times its "
        "share",
        "What people have said of single keys gives worker {{ $labels.worker }} {{ $value | humanize }} times what is "
        "due to it of all events. The grouping gives it nothing more, and can do no better: λ is at least that.",
    ),
    Alert(
        "KeygroupingOverrideEnds",
        "min by (namespace, action) (keygrouping_router_override_end_timestamp_seconds == "
        "keygrouping_router_override_end_timestamp_seconds offset 1h) - time() < 900",
        "0m",
        "info",
        "An override in {{ $labels.namespace }} ends in {{ $value | humanizeDuration }}: {{ $labels.action }}",
        "It has been in force for an hour or longer. In {{ $value | humanizeDuration }} the grouping decides again "
        "where its key goes.",
    ),
    Alert(
        "KeygroupingWorkerSaturated",
        "keygrouping:worker_delay:seconds > 30 and on (namespace) count by (namespace) "
        "(keygrouping:worker_delay:seconds > 30) <= 0.5 * count by (namespace) (keygrouping:worker_delay:seconds)",
        "10m",
        "warning",
        "Worker {{ $labels.worker }} in {{ $labels.namespace }} is {{ $value | humanizeDuration }} behind",
        "What waits for worker {{ $labels.worker }} is as much as it was sent, or has combined at the source, in "
        "{{ $value | humanizeDuration }}. At least half of the workers keep up. Results wait for the slowest worker.",
    ),
    Alert(
        "KeygroupingWorkersBehind",
        "count by (namespace) (keygrouping:worker_delay:seconds > 300) > "
        "0.5 * count by (namespace) (keygrouping:worker_delay:seconds)",
        "10m",
        "critical",
        "{{ $value | humanize }} workers in {{ $labels.namespace }} are more than five minutes behind",
        "{{ $value | humanize }} workers, more than half of all, have waiting what they are sent, or combine at the "
        "source, in five minutes or longer: results are late by that much, for all keys.",
    ),
    Alert(
        "KeygroupingRoutersApart",
        "max by (namespace, pod, instance) (keygrouping_router_epoch) < on (namespace) group_left () "
        "max by (namespace) (keygrouping_router_epoch offset 10m) "
        "and on (namespace) max by (namespace) (keygrouping_router_sharing) == 1",
        "10m",
        "warning",
        '{{ $labels.instance }} in {{ $labels.namespace }} still routes by epoch {{ $value | printf "%.0f" }}, which '
        "others left long ago",
        'The router {{ $labels.instance }} is in epoch {{ $value | printf "%.0f" }}, and ten minutes ago another one '
        "was further already. It does not follow the common plan: hot keys are not split as they should be.",
    ),
    Alert(
        "KeygroupingPlanFlapping",
        "max by (namespace) (increase(keygrouping_router_reshuffles_total[10m])) > 30",
        "20m",
        "warning",
        "{{ $value | humanize }} plans in ten minutes have moved keys in {{ $labels.namespace }}",
        "Within ten minutes {{ $value | humanize }} plans have given at least half of their keys to other workers, for "
        "half an hour: keys go to and fro, and each time they do, more partials have to be merged.",
    ),
)

PARTS = (
    Alert(
        "KeygroupingKafkaUnreachable",
        "max_over_time(keygrouping:kafka_away:seconds[10m]) > 0",
        "2m",
        "critical",
        "Kafka can't be reached from {{ $labels.namespace }}: {{ $value | humanizeDuration }}",
        "At least three quarters of all processes in {{ $labels.namespace }} could not look up their input for "
        "{{ $value | humanizeDuration }}: the pipeline stands still. It keeps other alerts quiet until ten minutes "
        "after Kafka is back.",
    ),
    Alert(
        "KeygroupingKafkaCutOff",
        "time() - min by (namespace, group) (keygrouping_input_seen_timestamp_seconds) > 180",
        "5m",
        "critical",
        "{{ $labels.group }} in {{ $labels.namespace }} has not reached Kafka for {{ $value | humanizeDuration }}",
        "At least one process of {{ $labels.group }} could not look up the ends of its input and its offsets for "
        "{{ $value | humanizeDuration }}. Whatever it owns stands still, and nobody knows how much waits for it.",
    ),
    Alert(
        "KeygroupingRequestsRefused",
        "keygrouping:refused_requests:rate5m > 0.2 unless on (namespace) "
        "sum by (namespace) (rate(keygrouping_producer_accepted_total[5m])) > 0",
        "5m",
        "critical",
        "Producers in {{ $labels.namespace }} take no event and refuse {{ $value | humanize }} requests a second",
        "For five minutes every request with events was refused, {{ $value | humanize }} a second, and none was "
        "accepted. Those who send them hold them back, or have lost them.",
    ),
    Alert(
        "KeygroupingNothingAssigned",
        'sum by (namespace, group) (keygrouping_assigned_partitions{group!~".*-(observer|audit)"}) == 0',
        "5m",
        "critical",
        "No process of {{ $labels.group }} in {{ $labels.namespace }} has a partition of its input",
        "The processes of {{ $labels.group }} run, and for five minutes Kafka has given them "
        "{{ $value | humanize }} partitions: the group doesn't come to rest, somebody else has joined it, or they "
        "don't find their input. Nothing of it is processed, and its lag is not known.",
    ),
    Alert(
        "KeygroupingStoreDegraded",
        "max by (namespace, pod, instance) (keygrouping_router_store_degraded) == 1",
        "5m",
        "warning",
        "{{ $labels.instance }} has not reached its store for five minutes",
        "The router {{ $labels.instance }} in {{ $labels.namespace }} routes on by its last plan. New hot keys are not "
        "split by all routers alike, and changes over the API are refused.",
    ),
    Alert(
        "KeygroupingStoreBadValues",
        f"sum by (namespace, kind) ({grown('keygrouping_router_store_bad_values_total', '15m')}) > 0",
        "1m",
        "warning",
        "The store of {{ $labels.namespace }} holds a value that routers can't use: {{ $labels.kind }}",
        "Within 15 minutes routers have {{ $value | humanize }} times read a value of the kind {{ $labels.kind }} that "
        "is none, and have taken it for missing. Another program writes to the store, or another version of ours.",
    ),
    Alert(
        "KeygroupingTransactionAborts",
        "keygrouping:transaction_aborts:ratio_rate10m > 0.05",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the transactions of group {{ $labels.group }} are aborted",
        "For ten minutes {{ $value | humanizePercentage }} of the transactions of {{ $labels.group }} in "
        "{{ $labels.namespace }} were begun and not committed. Their work is done again: nothing is lost, but it costs "
        "time.",
    ),
    Alert(
        "KeygroupingPartitionRestarting",
        "sum by (namespace, group, pod, instance) (increase(keygrouping_partition_restarts_total[10m])) >= 3",
        "20m",
        "warning",
        "{{ $labels.instance }} of group {{ $labels.group }} keeps restarting",
        "In each ten minutes of the last half hour work on its partitions ended with an error at least three times, "
        "{{ $value | humanize }} times in the last ones. If it is one partition, results of its keys may no longer "
        "come, though the others go on.",
    ),
    Alert(
        "KeygroupingPremiseViolated",
        'min by (namespace, check) (keygrouping_premise{check!="one-broker"}) == 0',
        "5m",
        "warning",
        "Kafka does not give what exact results rest on in {{ $labels.namespace }}: {{ $labels.check }}",
        "At its last start a process has found that the premise {{ $labels.check }} is not given. Results are right "
        "until something fails; then they may not be. The log of the process says what to change.",
    ),
    Alert(
        "KeygroupingSparkQueryStalled",
        "sum by (namespace, query) (increase(keygrouping_spark_batch_seconds_count[10m])) == 0 and "
        f"sum by (namespace, query) (keygrouping_spark_batch_seconds_count offset 10m) >= 0 and {_FLOWING}",
        "5m",
        "critical",
        "Spark's {{ $labels.query }} query in {{ $labels.namespace }} has ended no batch for 15 minutes",
        "Events flow, and the {{ $labels.query }} query has ended {{ $value | humanize }} batches in the last ten "
        "minutes. No further results come.",
    ),
    Alert(
        "KeygroupingSparkDriverRestarting",
        "changes(keygrouping:spark_start:time[1h]) >= 3",
        "1m",
        "warning",
        "Spark's driver in {{ $labels.namespace }} has restarted {{ $value | humanize }} times in an hour",
        "It was restarted {{ $value | humanize }} times within an hour. After each start it reads its checkpoint "
        "and asks for its executors; no results come meanwhile.",
    ),
    Alert(
        "KeygroupingFileDescriptorsLow",
        "max by (namespace, pod, instance) (process_open_fds / process_max_fds "
        f"and on (namespace, instance) ({_ANY_PROCESS})) > 0.8",
        "5m",
        "warning",
        "{{ $labels.instance }} in {{ $labels.namespace }} has {{ $value | humanizePercentage }} of its files open",
        "{{ $labels.instance }} has opened {{ $value | humanizePercentage }} of the files and connections that it may "
        "open. At 100 % it can connect to nothing any more, and ends.",
    ),
    Alert(
        "KeygroupingTargetDown",
        "time() - max by (namespace, job, pod, instance) (max_over_time((timestamp("
        "keygrouping_event_loop_lag_seconds_count) or timestamp(keygrouping_app_ready))[1h:1m]) "
        "and on (job, instance) up == 0)",
        "5m",
        "warning",
        "{{ $labels.instance }} ({{ $labels.job }}) does not answer Prometheus",
        "The last metrics of {{ $labels.instance }} of {{ $labels.job }} in {{ $labels.namespace }} came "
        "{{ $value | humanizeDuration }} ago, and it is still on Prometheus' list: it is dead, hangs, or is cut off.",
    ),
    Alert(
        "KeygroupingExporterMissing",
        f"max_over_time(keygrouping:instances:count[1h]) unless keygrouping:instances:count {_NO_ROUTER_NEEDED}",
        "10m",
        "warning",
        "No {{ $labels.part }} in {{ $labels.namespace }} shows metrics any more",
        "Within the last hour {{ $value | humanize }} of them did. Alerts that need these metrics are blind.",
    ),
)

TOPICS = (
    Alert(
        "KeygroupingScalingCeiling",
        "max by (namespace, topic) (keygrouping_inspect_works_like_workers) "
        "< 0.5 * max by (namespace, topic) (keygrouping_inspect_partitions) "
        "and sum by (namespace, topic) (rate(keygrouping_inspect_events_total[15m])) > 10",
        "30m",
        "info",
        "Consumers of topic {{ $labels.topic }} do the work of {{ $value | humanize }} at most, however many there are",
        "Its partitions are so uneven that less than half of them are in use when the busiest is full: its consumers "
        "do the work of {{ $value | humanize }}. More pods do nothing for it.",
    ),
    Alert(
        "KeygroupingInspectBlind",
        "time() - max by (namespace, topic) (keygrouping_inspect_read_timestamp_seconds) > 180",
        "5m",
        "warning",
        "Topic {{ $labels.topic }} in {{ $labels.namespace }} has not been read for {{ $value | humanizeDuration }}",
        "The exporter of topic {{ $labels.topic }} has read nothing of it for {{ $value | humanizeDuration }}: the "
        "topic is gone, or Kafka can't be reached. Its figures are old, or no more.",
    ),
)

_WAITS = 'max by (namespace, group, topic, pod, instance) (keygrouping_app_key_wait_seconds{{rank="{rank}"}})'
_ENDED = "sum by (namespace, group, topic) (increase(keygrouping_app_events_total[15m]))"
_IMBALANCE = 'max by (namespace, group, topic) (keygrouping_app_imbalance_ratio{{keys="{keys}"}})'
_BUSY = "max by (namespace, group, topic) (avg_over_time(keygrouping_app_busy_lanes[10m]) / keygrouping_app_lanes)"
_KNOWS = 'max by (namespace, group, topic, pod, instance) ({}(keygrouping_app_imbalance_ratio{{keys="now"}}{}))'
_WORKS = "max by (namespace, group, topic, pod, instance) (avg_over_time(keygrouping_app_busy_lanes[10m]))"
_HELD = "max by (namespace, group, topic, pod, instance) (keygrouping_app_move_oldest_seconds)"
_RESTORING = "max by (namespace, group, topic, pod, instance) (keygrouping_app_restoring_partitions)"
_REFUSED = "max by (namespace, group, topic, pod, instance) (keygrouping_app_refused_partitions)"
_OF_APP = "{{ $labels.group }} in {{ $labels.namespace }}"

APPS = (
    Alert(
        "KeygroupingAppBreakerOpen",
        'sum by (namespace, group, topic) (keygrouping_app_breaker_state{state!="closed"}) > 0',
        "10m",
        "critical",
        f"App {_OF_APP} has handled next to nothing of {{{{ $labels.topic }}}} for ten minutes: its breaker is open",
        "The breaker of the handler of {{ $labels.topic }} has been open for ten minutes in {{ $value | humanize }} "
        "members: most of its calls failed, so one call at a time tries whether what it needs is back. Nothing is "
        "lost; the events wait.",
    ),
    Alert(
        "KeygroupingAppNotReady",
        "count by (namespace, group) (keygrouping_app_ready == 0) > 0",
        "5m",
        "critical",
        f"{{{{ $value | humanize }}}} members of app {_OF_APP} have no partitions",
        "They run, and for five minutes the group has not come to rest: {{ $value | humanize }} members wait for "
        "their partitions. While it doesn't, what they had is not handled by them, and the others can't commit.",
    ),
    Alert(
        "KeygroupingAppMissing",
        "max_over_time(keygrouping:app_members:count[1h]) unless keygrouping:app_members:count",
        "10m",
        "critical",
        f"No member of app {_OF_APP} shows metrics any more",
        "Within the last hour {{ $value | humanize }} of them did. Nobody handles its events, or nobody sees it.",
    ),
    Alert(
        "KeygroupingAppLagSteady",
        "keygrouping:app_lag:seconds > 300 "
        "and keygrouping:app_lag:sum >= 0.9 * min_over_time(keygrouping:app_lag:sum[5m] offset 15m)",
        "15m",
        "warning",
        f"App {_OF_APP} is {{{{ $value | humanizeDuration }}}} behind on {{{{ $labels.topic }}}} and does not catch up",
        "What has not ended is as much as the app handles in {{ $value | humanizeDuration }}, and for half an hour it "
        "has not become less: events are handled later by that much, or later and later.",
    ),
    Alert(
        "KeygroupingAppKeyBlocked",
        f"{_WAITS.format(rank=1)} > 300 unless {_WAITS.format(rank=10)} > 0.5 * {_WAITS.format(rank=1)}",
        "5m",
        "warning",
        f"A key of {{{{ $labels.topic }}}} waits for {{{{ $value | humanizeDuration }}}} in app {_OF_APP}",
        "In {{ $labels.instance }} the next event of a key has waited for {{ $value | humanizeDuration }}, much longer "
        "than those of most others: a call of the key hangs, it keeps failing and is retried, or the key has more work "
        "than one lane can do. Once its events fill the memory of their partition, other keys wait as well.",
    ),
    Alert(
        "KeygroupingAppGapFull",
        "max_over_time(min by (namespace, group, topic, partition) (keygrouping_app_gap_room_offsets)[10m:1m]) < 1000",
        "1m",
        "warning",
        f"App {_OF_APP} can't read on in partition {{{{ $labels.partition }}}} of {{{{ $labels.topic }}}}",
        "An event at the committed offset has not ended for so long that the commit's metadata is nearly full: "
        "{{ $value | humanize }} further events may be read. The partition's other keys soon go on slowly or wait.",
    ),
    Alert(
        "KeygroupingAppNotShared",
        f"{_IMBALANCE.format(keys='whole')} > 1.5 and {_IMBALANCE.format(keys='shared')} < 1.2 and {_BUSY} > 0.9 "
        "and sum by (namespace, group, topic) (increase(keygrouping_app_surplus_events_total[10m])) == 0",
        "10m",
        "warning",
        f"Members of app {_OF_APP} don't share the hot keys of {{{{ $labels.topic }}}}",
        "A member has {{ $value | humanize }} times what members have on average, of hot keys that others could take, "
        "its lanes are full, and for ten minutes nobody has given anything away: what is given can't be written.",
    ),
    Alert(
        "KeygroupingAppNotPlanned",
        f"{_KNOWS.format('last_over_time', '[1h]')} unless {_KNOWS.format('', '')} and {_WORKS} > 0",
        "10m",
        "warning",
        f"A member of app {_OF_APP} does not hear how busy the others are that handle {{{{ $labels.topic }}}}",
        "{{ $labels.instance }} works, and for ten minutes it has known nothing of what all members have to do, though "
        "it did within the last hour: it can't write what it has to do to the topic of reports, or can't read what the "
        "others have. So no key goes from it or to it by plan.",
    ),
    Alert(
        "KeygroupingAppKeyHeld",
        f"{_HELD} > 120",
        "3m",
        "warning",
        f"A key of {{{{ $labels.topic }}}} has been held for {{{{ $value | humanizeDuration }}}} in app {_OF_APP}",
        "In {{ $labels.instance }} a key is to be handed over with its state, and has been held for "
        "{{ $value | humanizeDuration }}: a call of the key does not end, or the slot that has the key is not read. "
        "Events of the key wait; once they fill the memory of their partition, other keys wait as well.",
    ),
    Alert(
        "KeygroupingAppRestoring",
        f"{_RESTORING} > 0",
        "10m",
        "warning",
        f"{{{{ $value | humanize }}}} partitions of {{{{ $labels.topic }}}} wait for their states in app {_OF_APP}",
        "In {{ $labels.instance }} {{ $value | humanize }} partitions have waited for ten minutes until their states "
        "are read from the changelog: there are very many, a broker does not answer, or a transaction is open there. "
        "Nothing of these partitions is handled.",
    ),
    Alert(
        "KeygroupingAppRefused",
        f"{_REFUSED} > 0",
        "5m",
        "critical",
        f"A broker refuses what belongs to {{{{ $value | humanize }}}} partitions of {{{{ $labels.topic }}}} in app "
        f"{_OF_APP}",
        "In {{ $labels.instance }} a broker has refused for five minutes what belongs to commits of "
        "{{ $value | humanize }} partitions: a right is missing, or a topic of the app, or one does not take a state. "
        "Nothing is lost. But for single states, outputs and states are not written, and once what is to be written "
        "fills the memory, nothing is handled.",
    ),
    Alert(
        "KeygroupingAppDeadLetters",
        "keygrouping:app_dead_letters:increase15m > 10000 or (keygrouping:app_dead_letters:increase15m > 100 and "
        f"keygrouping:app_dead_letters:increase15m > on (namespace, group, topic) group_left () 0.001 * {_ENDED})",
        "0m",
        "warning",
        f"{{{{ $value | humanize }}}} events of {{{{ $labels.topic }}}} in app {_OF_APP} became dead letters within 15 "
        "minutes: {{ $labels.reason }}",
        "Within 15 minutes {{ $value | humanize }} events have failed for good with the reason {{ $labels.reason }}. "
        "They are kept as dead letters, from where they can be sent again.",
    ),
    Alert(
        "KeygroupingAppProcessesDying",
        "keygrouping:app_processes_died:increase15m >= 3",
        "0m",
        "warning",
        f"Processes of the handler of {{{{ $labels.topic }}}} in app {_OF_APP} keep dying",
        "Within 15 minutes {{ $value | humanize }} of its processes ended by themselves or were killed. Each was "
        "replaced; an event that kills its process at each try becomes a dead letter.",
    ),
    Alert(
        "KeygroupingAppRestarting",
        "max by (namespace, pod, instance) (changes(process_start_time_seconds[1h]) "
        "and on (namespace, instance) last_over_time(keygrouping_app_ready[1h])) >= 3",
        "1m",
        "warning",
        "{{ $labels.instance }} in {{ $labels.namespace }}, a member of an app, keeps restarting",
        "It was restarted {{ $value | humanize }} times within an hour. What ran in it, and what had ended since its "
        "last commit, runs again each time.",
    ),
)

GROUPS: dict[str, tuple[Alert, ...]] = {
    "keygrouping.results": RESULTS,
    "keygrouping.balance": BALANCE,
    "keygrouping.parts": PARTS,
    "keygrouping.topics": TOPICS,
    "keygrouping.apps": APPS,
}
"""All alerts, by the name of their group."""

ALERTS: tuple[Alert, ...] = tuple(alert for alerts in GROUPS.values() for alert in alerts)
