"""The promises on events and on final results: how well they are kept, and how fast their error budgets are used."""

from dataclasses import replace

from monitoring.boards.kit import Board, Panel, Query, Row, one
from monitoring.boards.overview import RESULTS_OVERDUE
from monitoring.model import Objective
from monitoring.recordings import EVENTS, RESULTS, WINDOWS

_EVENTS_FAST, _EVENTS_SLOW = "KeygroupingLatencyBudgetBurnFast", "KeygroupingLatencyBudgetBurnSlow"
_RESULTS_FAST, _RESULTS_SLOW = "KeygroupingResultsBudgetBurnFast", "KeygroupingResultsBudgetBurnSlow"


def _in_time(
    title: str, says: str, objective: Objective, window: str, limits: tuple[float, float], alert: str
) -> Panel:
    kept = one(f"1 - {objective.ratio(window)}")
    return Panel(title, says, "percentunit", kept, look="number", limits=limits, alert=alert, width=6, decimals=3)


def _kept(title: str, says: str, objective: Objective, fast: str, slow: str) -> tuple[Panel, ...]:
    """How well a promise is kept, in numbers; the titles begin with `title`."""
    part, budget = objective.part, objective.budget
    return (
        _in_time(f"{title} in time (3 days)", says, objective, "3d", (part + 0.005, part), slow),
        _in_time(f"{title} in time (1 hour)", says, objective, "1h", (part, 1 - 14.4 * budget), fast),
        Panel(
            f"{title}: budget used in 3 days",
            "Part of the error budget of 30 days that the last three days have used up; a tenth is the pace that just "
            "lasts.",
            "percentunit",
            one(f"{objective.ratio('3d')} / {budget:g} * 3 / 30"),
            look="number",
            limits=(0.1, 0.3),
            alert=slow,
            width=6,
            decimals=1,
        ),
    )


def _burn_rate(title: str, objective: Objective, alert: str) -> Panel:
    return Panel(
        title,
        "How many times too fast the error budget is used up, over windows of several lengths. Above 14.4 in an hour "
        "somebody is woken.",
        "none",
        tuple(Query(f"{objective.ratio(window)} / {objective.budget:g}", window) for window in WINDOWS),
        limits=(1, 14.4),
        alert=alert,
        width=12,
    )


def _quantiles(title: str, says: str, objective: Objective, alert: str) -> Panel:
    buckets = f"sum by (le) (rate({objective.histogram}_bucket[$__rate_interval]))"
    return Panel(
        title,
        says,
        "s",
        tuple(Query(f"histogram_quantile({q}, {buckets})", f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)),
        look="logarithmic",
        limits=(objective.within,),
        alert=alert,
        width=12,
    )


SLO = Board(
    "keygrouping-slo",
    "Keygrouping / SLO",
    f"{EVENTS.part:.0%} of all events are in a partial within {EVENTS.within:.0f} s of their own timestamp, and "
    f"{RESULTS.part:.0%} of all windows are final within {RESULTS.within:.0f} s of when they could be, over 30 days.",
    (
        Row(
            "The promise on events",
            (
                *_kept(
                    "Events",
                    f"Part of the sampled events that were in a partial within {EVENTS.within:.0f} s.",
                    EVENTS,
                    _EVENTS_FAST,
                    _EVENTS_SLOW,
                ),
                Panel(
                    "Age of the observer's figures",
                    "Time since the end of its last interval: it should stay below two intervals while events flow. "
                    "The colours are for intervals of up to 30 s.",
                    "s",
                    one("time() - max by (namespace) (keygrouping_observer_interval_end_seconds > 0)", "age"),
                    look="number",
                    limits=(60, 600),
                    alert="KeygroupingObserverBlind",
                    width=6,
                ),
            ),
        ),
        Row(
            "The promise on final results",
            (
                *_kept(
                    "Results",
                    f"Part of the windows whose final results were there within {RESULTS.within:.0f} s of the end of "
                    "window and lateness.",
                    RESULTS,
                    _RESULTS_FAST,
                    _RESULTS_SLOW,
                ),
                replace(RESULTS_OVERDUE, width=6),
            ),
        ),
        Row(
            "The proof that every event counts once",
            (
                Panel(
                    "Unaccounted",
                    "Ranges of the input, and windows, that the audit can't account for. Anything but 0 is a wrong "
                    "result, or one that can't be shown to be right.",
                    "short",
                    one("max by (kind) (keygrouping_observer_audit_differences)", "{{kind}}"),
                    look="number",
                    limits=(1, 1),
                    alert="KeygroupingEventsUnaccounted",
                    width=6,
                ),
                Panel(
                    "Windows compared",
                    "Final windows in an hour whose results were compared with what was read, by verdict.",
                    "short",
                    one("sum by (verdict) (increase(keygrouping_observer_audit_windows_total[1h]))", "{{verdict}}"),
                    alert="KeygroupingEventsUnaccounted",
                    width=6,
                ),
                Panel(
                    "Windows to compare",
                    "Windows that are not final yet, or not compared yet.",
                    "short",
                    one("max by (namespace) (keygrouping_observer_audit_open_windows)", "open"),
                    alert="KeygroupingAuditStalled",
                    width=6,
                ),
                Panel(
                    "Age of the proof",
                    "How long ago everything that was there had been read and compared.",
                    "s",
                    one("time() - max by (namespace) (keygrouping_observer_audit_compared_seconds > 0)", "age"),
                    limits=(60, 900),
                    alert="KeygroupingAuditStalled",
                    width=6,
                ),
            ),
        ),
        Row(
            "The budgets",
            (
                _burn_rate("Burn rate of events", EVENTS, _EVENTS_FAST),
                _burn_rate("Burn rate of results", RESULTS, _RESULTS_FAST),
            ),
        ),
        Row(
            "Where the time goes",
            (
                _quantiles(
                    "Latency",
                    "From an event's own timestamp to that of the partial that holds it, of sampled events.",
                    EVENTS,
                    _EVENTS_FAST,
                ),
                _quantiles(
                    "Delay of results",
                    "From the end of window and lateness to when the window's final results were committed.",
                    RESULTS,
                    _RESULTS_FAST,
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
                    one(f"sum by (namespace) (rate({EVENTS.histogram}_count[$__rate_interval]))", "sampled"),
                    limits=(1, 0.1),
                    alert=_EVENTS_SLOW,
                ),
                Panel(
                    "Final windows",
                    "Windows that became final in an hour; on the native runner each counts once for each partition "
                    "of partials that holds something of it.",
                    "short",
                    one(f"sum by (namespace) (increase({RESULTS.histogram}_count[1h]))", "final"),
                    alert=_RESULTS_SLOW,
                ),
                Panel(
                    "Throughput by worker",
                    "Events per second of each worker in the observer's last interval.",
                    "cps",
                    one("max by (worker) (keygrouping_observer_worker_events_per_second)", "{{worker}}"),
                    look="stacked",
                    alert="KeygroupingWorkerSaturated",
                ),
            ),
        ),
    ),
    since="now-3d",
)
