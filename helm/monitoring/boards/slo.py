"""The promise on latency: how well it is kept, and how fast its error budget is used up."""

from monitoring.boards.kit import Board, Panel, Query, Row, one
from monitoring.boards.overview import RESULT_AGE
from monitoring.recordings import OBJECTIVE, WINDOWS, WITHIN

_BUCKETS = "sum by (le) (rate(keygrouping_observer_latency_seconds_bucket[$__rate_interval]))"
_BUDGET = f"{1 - OBJECTIVE:g}"

SLO = Board(
    "keygrouping-slo",
    "Keygrouping / SLO",
    f"{OBJECTIVE:.0%} of all events are in a partial within {WITHIN:.0f} s of their own timestamp, over 30 days.",
    (
        Row(
            "The promise",
            (
                Panel(
                    "In time (3 days)",
                    f"Part of the sampled events that were in a partial within {WITHIN:.0f} s.",
                    "percentunit",
                    one("1 - keygrouping:slow_events:ratio_rate3d"),
                    look="number",
                    limits=(OBJECTIVE + 0.005, OBJECTIVE),
                    alert="KeygroupingLatencyBudgetBurnSlow",
                    width=6,
                    decimals=3,
                ),
                Panel(
                    "In time (1 hour)",
                    f"Part of the sampled events that were in a partial within {WITHIN:.0f} s.",
                    "percentunit",
                    one("1 - keygrouping:slow_events:ratio_rate1h"),
                    look="number",
                    limits=(OBJECTIVE, 1 - 14.4 * (1 - OBJECTIVE)),
                    alert="KeygroupingLatencyBudgetBurnFast",
                    width=6,
                    decimals=3,
                ),
                Panel(
                    "Budget used in 3 days",
                    "Part of the error budget of 30 days that the last three days have used up; a tenth is the pace "
                    "that just lasts.",
                    "percentunit",
                    one(f"keygrouping:slow_events:ratio_rate3d / {_BUDGET} * 3 / 30"),
                    look="number",
                    limits=(0.1, 0.3),
                    alert="KeygroupingLatencyBudgetBurnSlow",
                    width=6,
                    decimals=1,
                ),
                Panel(
                    "Age of the results",
                    "Time since the last final result, or since events began to flow if that is more recent.",
                    "s",
                    RESULT_AGE,
                    look="number",
                    alert="KeygroupingNoResults",
                    width=6,
                ),
            ),
        ),
        Row(
            "The budget",
            (
                Panel(
                    "Burn rate",
                    "How many times too fast the error budget is used up, over windows of several lengths. Above 14.4 "
                    "in an hour somebody is woken.",
                    "none",
                    tuple(
                        Query(f"keygrouping:slow_events:ratio_rate{window} / {_BUDGET}", window) for window in WINDOWS
                    ),
                    limits=(1, 14.4),
                    alert="KeygroupingLatencyBudgetBurnFast",
                    width=12,
                ),
                Panel(
                    "Latency",
                    "From an event's own timestamp to that of the partial that holds it, of sampled events.",
                    "s",
                    tuple(Query(f"histogram_quantile({q}, {_BUCKETS})", f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)),
                    look="logarithmic",
                    limits=(WITHIN,),
                    alert="KeygroupingLatencyBudgetBurnFast",
                    width=12,
                ),
            ),
        ),
        Row(
            "What it is measured on",
            (
                Panel(
                    "Sampled events",
                    "Events per second whose latency is looked up: below one, single events count for much.",
                    "cps",
                    one(
                        "sum by (namespace) (rate(keygrouping_observer_latency_seconds_count[$__rate_interval]))",
                        "sampled",
                    ),
                    alert="KeygroupingLatencyBudgetBurnSlow",
                ),
                Panel(
                    "Throughput by worker",
                    "Events per second of each worker in the observer's last interval.",
                    "cps",
                    one("max by (worker) (keygrouping_observer_worker_events_per_second)", "{{worker}}"),
                    look="stacked",
                    alert="KeygroupingWorkerSaturated",
                ),
                Panel(
                    "Age of the observer's figures",
                    "Time since the end of its last interval: it should stay below two intervals while events flow.",
                    "s",
                    one("time() - max by (namespace) (keygrouping_observer_interval_end_seconds > 0)", "age"),
                    alert="KeygroupingExporterMissing",
                ),
            ),
        ),
    ),
)
