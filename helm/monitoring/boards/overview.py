"""The first look: is the stream balanced, does it keep up, what is hot?"""

from dataclasses import replace

from monitoring.boards.kit import LAG_LIMITS, Board, Panel, Query, Row, one
from monitoring.boards.router import EVENTS_BY_WORKER
from monitoring.boards.stages import DELAY_BY_WORKER, LAG_BY_STAGE
from monitoring.recordings import EVENTS, RESULTS

IMBALANCE = (
    Query("keygrouping:imbalance:rate5m", "as routed"),
    Query("keygrouping:imbalance_before:avg5m", "by key hash"),
)
RESULTS_OVERDUE = Panel(
    "Results overdue",
    "By how much the last final result, or the begin of the events if that is more recent, is older than a window and "
    "the allowed lateness. While results come in time it is near 0.",
    "s",
    one("clamp_min((time() - keygrouping:waiting:since) - on (namespace) keygrouping:result_wait:seconds, 0)"),
    look="number",
    limits=(RESULTS.within, 300),
    alert="KeygroupingNoResults",
    width=4,
)
_FIRING = 'ALERTS{alertname=~"Keygrouping.*", alertstate="firing"}'
_RULES = '{__name__=~"keygrouping:.+", namespace="$namespace"}'
"""What the recording rules have made."""

ALERTS_FIRING = Panel(
    "Alerts",
    "Alerts that fire now, of the rules in Prometheus. It can't tell of alerts that Grafana evaluates.",
    "none",
    one(f"count({_FIRING}) or 0 * count({_RULES})"),
    look="number",
    limits=(1, 3),
    alert="KeygroupingExporterMissing",
    width=4,
    nothing="no rules",
)

OVERVIEW = Board(
    "keygrouping-overview",
    "Keygrouping / Overview",
    "Is the stream balanced, is it keeping up, what is hot?",
    (
        Row(
            "Now",
            (
                Panel(
                    "λ",
                    "Load of the busiest worker over the average, of all routers, five minutes; 1 is perfect balance. "
                    "Where workers combine at the source, of those that have partitions.",
                    "none",
                    one("keygrouping:imbalance:rate5m"),
                    look="number",
                    limits=(1.5, 2),
                    alert="KeygroupingUnbalanced",
                    width=4,
                    decimals=2,
                ),
                Panel(
                    "λ by key hash",
                    "What λ would be if every key went to one worker by its hash: what is gained by splitting.",
                    "none",
                    one("keygrouping:imbalance_before:avg5m"),
                    look="number",
                    alert="KeygroupingUnbalanced",
                    width=4,
                    decimals=2,
                ),
                Panel(
                    "Events",
                    "Events that routers have sent to workers, or workers have combined at the source, per second.",
                    "cps",
                    one("keygrouping:events:rate5m"),
                    look="number",
                    alert="KeygroupingNoResults",
                    width=4,
                ),
                Panel(
                    "Behind",
                    "How long as much takes to be routed, or combined at the source, as the stage that is furthest "
                    "behind has yet to read.",
                    "s",
                    one("max by (namespace) (keygrouping:lag:seconds)"),
                    look="number",
                    limits=LAG_LIMITS,
                    alert="KeygroupingLagGrowing",
                    width=4,
                ),
                RESULTS_OVERDUE,
                ALERTS_FIRING,
            ),
        ),
        Row(
            "What is in no result?",
            (
                Panel(
                    "Lost events",
                    "Offsets that retention deleted within the last hour before they were read. They are gone.",
                    "short",
                    one("sum by (namespace) (keygrouping:lost_events:increase1h)"),
                    look="number",
                    limits=(1, 1),
                    alert="KeygroupingEventsLost",
                    width=6,
                    nothing="0",
                ),
                Panel(
                    "Soon lost",
                    "Records that retention is about to delete and that are not read yet.",
                    "short",
                    one("sum by (namespace) (keygrouping_expiring_records)"),
                    look="number",
                    limits=(1, 1),
                    alert="KeygroupingEventsExpiring",
                    width=6,
                    nothing="0",
                ),
                Panel(
                    "Late events",
                    "Part of all events within ten minutes that came too late for their window.",
                    "percentunit",
                    one("keygrouping:late_events:ratio_rate10m"),
                    look="number",
                    limits=(0.01, 0.05),
                    alert="KeygroupingEventsLate",
                    width=6,
                    decimals=2,
                ),
                Panel(
                    "Events in no result",
                    "Part of all events within ten minutes that went to late and dead-letters when the input was read.",
                    "percentunit",
                    one("keygrouping:excluded:ratio_rate10m"),
                    look="number",
                    limits=(0.01, 0.9),
                    alert="KeygroupingEventsExcluded",
                    width=6,
                    decimals=2,
                ),
                Panel(
                    "Dead letters",
                    "Records that all services have sent to dead-letters within 15 minutes.",
                    "short",
                    one("sum by (namespace) (keygrouping:dead_letters:increase15m)"),
                    look="number",
                    limits=(1, 100),
                    alert="KeygroupingDeadLettersBurst",
                    width=6,
                    nothing="0",
                ),
            ),
        ),
        Row(
            "Is the stream balanced?",
            (
                Panel(
                    "λ through time",
                    "Load of the busiest worker over the average, as all routers together have sent events, and as by "
                    "key hashing: the mean of what the routers have seen.",
                    "none",
                    IMBALANCE,
                    look="logarithmic",
                    limits=(1.5,),
                    alert="KeygroupingUnbalanced",
                    width=12,
                ),
                Panel(
                    "Events by worker",
                    "Events per second sent to each worker, or combined by it at the source: equal bands are a "
                    "balanced stream.",
                    "cps",
                    EVENTS_BY_WORKER,
                    look="stacked",
                    alert="KeygroupingUnbalanced",
                    width=12,
                ),
            ),
        ),
        Row(
            "Is it keeping up?",
            (
                replace(LAG_BY_STAGE, width=6),
                replace(DELAY_BY_WORKER, width=6),
                Panel(
                    "Slow events",
                    f"Part of the sampled events that took longer than {EVENTS.within:.0f} s from their own timestamp "
                    "to the partial that holds them.",
                    "percentunit",
                    one("keygrouping:slow_events:ratio_rate5m", "slow"),
                    limits=(0.01, 0.144),
                    alert="KeygroupingLatencyBudgetBurnFast",
                    width=6,
                ),
                Panel(
                    "Late results",
                    f"Part of the windows whose final results came more than {RESULTS.within:.0f} s after the end of "
                    "window and lateness.",
                    "percentunit",
                    one(RESULTS.ratio("5m"), "late"),
                    limits=(0.01, 0.144),
                    alert="KeygroupingResultsBudgetBurnFast",
                    width=6,
                ),
            ),
        ),
        Row(
            "What is hot?",
            (
                Panel(
                    "Hot keys",
                    "Keys that are spread over more workers than a cold key.",
                    "short",
                    one("max by (namespace) (keygrouping_router_hot_keys)", "hot keys"),
                    alert="KeygroupingUnbalanced",
                ),
                Panel(
                    "Width of the widest keys",
                    "Workers of the ten widest keys. Which keys they are is on the router's page.",
                    "short",
                    one("max by (rank) (keygrouping_router_width)", "rank {{rank}}"),
                    alert="KeygroupingUnbalanced",
                ),
                Panel(
                    "Workers in use",
                    "W, as the routers have it, and the replicas of each part that show metrics.",
                    "short",
                    (
                        Query("max by (namespace) (keygrouping_router_workers)", "W"),
                        Query("keygrouping:instances:count", "{{part}}"),
                    ),
                    alert="KeygroupingExporterMissing",
                ),
            ),
        ),
    ),
)
