"""Each alert fires on what it is for and is quiet on what looks like it: promtool's unit tests, with their texts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring.alerts import ALERTS
from monitoring.boards.kit import scoped
from monitoring.boards.overview import ALERTS_FIRING
from monitoring.writing import grafana_alerts, prometheus_rules

NS = 'namespace="ns"'
ROUTER = f'{{{NS}, job="router", instance="r"}}'
ROUTED = f'keygrouping_router_routed_total{{{NS}, instance="r", worker="0"}}'
OBSERVER = f'keygrouping_observer_workers{{{NS}, instance="o"}}'
SKIPPED = f'keygrouping_router_skipped_fields_total{{{NS}, instance="r", field="/n"}}'
ENDS = f'keygrouping_router_override_end_timestamp_seconds{{{NS}, instance="r", action="pin"}}'


@dataclass(frozen=True)
class Case:
    """Series, one sample a minute; when to look; the labels of the alert and how its value reads, if it fires.

    `minutes` lie between two evaluations, of all cases of an alert.
    """

    name: str
    series: Mapping[str, str]
    at: str
    labels: Mapping[str, str] | None = None
    value: str = ""
    minutes: int = 1


def waiting(results: str, routed: str = "0+60000x600", wait: int = 70) -> dict[str, str]:
    return {
        ROUTED: routed,
        f'keygrouping_last_result_timestamp_seconds{{{NS}, instance="a", group="k-aggregator"}}': results,
        f"keygrouping_router_result_wait_seconds{ROUTER}": f"{wait}x600",
        f"process_start_time_seconds{ROUTER}": "0x600",
        f"keygrouping_router_epoch{ROUTER}": "1x600",
    }


def gone_routers(minute: str) -> dict[str, str]:
    """The routers' series end; the observer goes on if there is one."""
    return {
        ROUTED: f"0+60000x{minute} stale",
        f"keygrouping_router_result_wait_seconds{ROUTER}": f"70x{minute} stale",
        f"process_start_time_seconds{ROUTER}": f"0x{minute} stale",
        f"keygrouping_router_epoch{ROUTER}": f"1x{minute} stale",
    }


def stage(lag: str, commits: str | None) -> dict[str, str]:
    labels = f'{{{NS}, instance="r", group="k-router"}}'
    committed = {} if commits is None else {f"keygrouping_commits_total{labels}": commits}
    return {f"keygrouping_lag_records{labels}": lag, **committed}


def premise(check: str, instance: str) -> str:
    return f'keygrouping_premise{{{NS}, instance="{instance}", check="{check}"}}'


def latency(fast: str, all_: str) -> dict[str, str]:
    return {
        f'keygrouping_observer_latency_seconds_bucket{{{NS}, instance="o", le="10.0"}}': fast,
        f'keygrouping_observer_latency_seconds_count{{{NS}, instance="o"}}': all_,
    }


def delays_of_results(in_time: str, all_: str) -> dict[str, str]:
    """Windows that became final, as two aggregators count them."""
    return {**delays_at("a", in_time, all_), **delays_at("b", in_time, all_)}


def delays_at(instance: str, in_time: str, all_: str) -> dict[str, str]:
    labels = f'{NS}, instance="{instance}", group="k-aggregator"'
    return {
        f'keygrouping_result_delay_seconds_bucket{{{labels}, le="60.0"}}': in_time,
        f"keygrouping_result_delay_seconds_count{{{labels}}}": all_,
    }


def rollout(late: Sequence[int]) -> dict[str, str]:
    """Three aggregators with an old late window go one by one; the new ones have a late one at these minutes."""
    series: dict[str, str] = {}
    for number, (minute, end) in enumerate(zip(late, (10, 20, 30), strict=True)):
        series |= delays_at(f"old-{number}", f"9x{end} stale", f"10x{end} stale")
        series |= delays_at(f"new-{number}", f"_x{end} 0x80", f"_x{end} 0x{minute - end - 1} 1x80")
    return series


def dead(each_minute: int) -> dict[str, str]:
    labels = f'{{{NS}, instance="r", reason="bad-json"}}'
    return {ROUTED: "0+9990x60", f"keygrouping_router_dead_letters_total{labels}": f"0+{each_minute}x60"}


def balance(
    routed: Mapping[str, Sequence[str]], splitting: int = 1, capacities: Sequence[float] = (1, 1, 1, 1)
) -> dict[str, str]:
    """What each router has sent to the workers, of which there are four."""
    series = {
        f'keygrouping_router_routed_total{{{NS}, instance="{router}", worker="{worker}"}}': total
        for router, totals in routed.items()
        for worker, total in enumerate(totals)
    }
    for router, totals in routed.items():
        labels = f'{{{NS}, job="router", instance="{router}"}}'
        # What a router sees itself is of no account.
        series[f"keygrouping_router_imbalance{labels}"] = f"{4 if len(totals) < 4 else 1}x60"
        series[f"keygrouping_router_splitting{labels}"] = f"{splitting}x60"
        series[f"keygrouping_router_workers{labels}"] = "4x60"
        for worker, capacity in enumerate(capacities):
            series[f'keygrouping_router_worker_capacity{{{NS}, instance="{router}", worker="{worker}"}}'] = (
                f"{capacity}x60"
            )
    return series


def skipped(each_minute: float) -> dict[str, str]:
    return {ROUTED: "0+60000x60", SKIPPED: f"0+{each_minute}x60"}


def overridden(sent: str, *, routed: str = "0+60000x60", twice: bool = False, capacity: float = 1) -> dict[str, str]:
    """What overrides send to worker 0, of four."""
    series = balance({"r": (routed,) * 4}, capacities=(capacity, 1, 1, 1))
    for router in ("r", "q") if twice else ("r",):
        series[f'keygrouping_router_overridden_total{{{NS}, instance="{router}", worker="0"}}'] = sent
    return series


def delays(*lags: int, events: str = "0+60000x60") -> dict[str, str]:
    series = {}
    for worker, lag in enumerate(lags):
        labels = f'{{{NS}, instance="r", worker="{worker}"}}'
        series[f"keygrouping_router_worker_lag_records{labels}"] = f"{lag}x60"
        series[f"keygrouping_router_routed_total{labels}"] = events
    return series


READ = f'keygrouping_inspect_read_timestamp_seconds{{{NS}, instance="i", topic="orders"}}'


def inspected(works_like: str, partitions: int, events: int = 60_000) -> dict[str, str]:
    """What an exporter says of a topic, to which so many events come each minute."""
    labels = f'{{{NS}, instance="i", topic="orders"}}'
    return {
        f"keygrouping_inspect_works_like_workers{labels}": works_like if "x" in works_like else f"{works_like}x60",
        f"keygrouping_inspect_partitions{labels}": f"{partitions}x60",
        f"keygrouping_inspect_events_total{labels}": f"0+{events}x60",
    }


def aborts(aborted: int, committed: int) -> dict[str, str]:
    labels = f'{{{NS}, instance="r", group="k-router"}}'
    return {
        f"keygrouping_transaction_aborts_total{labels}": f"0+{aborted}x60",
        f"keygrouping_commits_total{labels}": f"0+{committed}x60",
    }


def seen(*values: str) -> dict[str, str]:
    """When each process of a group last saw its input."""
    return {
        f'keygrouping_input_seen_timestamp_seconds{{{NS}, instance="{number}", group="k-router"}}': times
        for number, times in enumerate(values)
    }


def restarts(total: str) -> dict[str, str]:
    return {f'keygrouping_partition_restarts_total{{{NS}, instance="r", group="k-router"}}': total}


def audited(*windows: str) -> dict[str, str]:
    """Windows that differ, as observers show them."""
    return {
        f'keygrouping_observer_audit_differences{{{NS}, instance="{number}", kind="window"}}': values
        for number, values in enumerate(windows)
    }


def unaccounted(windows: str) -> dict[str, str]:
    """What the audit can't account for; another observer stands by."""
    name = "keygrouping_observer_audit_differences"
    return {
        f'{name}{{{NS}, instance="{instance}", kind="{kind}"}}': windows
        if (instance, kind) == ("o", "window")
        else "0x70"
        for instance in ("o", "p")
        for kind in ("window", "input")
    }


def compared(*times: str, routed: str = "0+60000x60") -> dict[str, str]:
    """When each observer had last compared everything."""
    name = "keygrouping_observer_audit_compared_seconds"
    return {ROUTED: routed} | {f'{name}{{{NS}, instance="o{n}"}}': seconds for n, seconds in enumerate(times)}


def spark(batches: str, routed: str) -> dict[str, str]:
    labels = f'{{{NS}, instance="s", query="worker"}}'
    return {f"keygrouping_spark_batch_seconds_count{labels}": batches, ROUTED: routed}


def driver(starts: str) -> dict[str, str]:
    labels = f'{{{NS}, instance="s"}}'
    return {f"process_start_time_seconds{labels}": starts, f"keygrouping_spark_results_total{labels}": "0x60"}


def lost(*totals: str, group: str = "k-router", started: str = "0x200") -> dict[str, str]:
    """Expired offsets, as each process counts them, and the seconds at which it has started."""
    series = {}
    for number, total in enumerate(totals):
        labels = f'{{{NS}, instance="{number}", group="{group}"}}'
        series[f"keygrouping_expired_offsets_total{labels}"] = total
        series[f'process_start_time_seconds{{{NS}, instance="{number}"}}'] = started
    return series


def expiring(*records: str) -> dict[str, str]:
    return {
        f'keygrouping_expiring_records{{{NS}, instance="{number}", group="k-router"}}': values
        for number, values in enumerate(records)
    }


def late(each_minute: int, in_time: int) -> dict[str, str]:
    labels = f'{{{NS}, instance="r", reason="late"}}'
    return {ROUTED: f"0+{in_time}x60", f"keygrouping_router_late_total{labels}": f"0+{each_minute}x60"}


DEAD = f'keygrouping_router_dead_letters_total{{{NS}, instance="r", reason="invalid-json"}}'


def refused(problems: str, accepted: str, status: int = 503) -> dict[str, str]:
    return {
        f'keygrouping_http_problems_total{{{NS}, instance="p", status="{status}"}}': problems,
        f'keygrouping_producer_accepted_total{{{NS}, instance="p"}}': accepted,
    }


def assigned(**partitions: Sequence[str]) -> dict[str, str]:
    """How many partitions each process of a stage has."""
    return {
        f'keygrouping_assigned_partitions{{{NS}, instance="{number}", group="k-{stage}"}}': values
        for stage, processes in partitions.items()
        for number, values in enumerate(processes)
    }


def burst(total: str, routed: str = "0+60000x100", started: int = 0) -> dict[str, str]:
    labels = f'{{{NS}, instance="r", reason="invalid-json"}}'
    return {
        ROUTED: routed,
        f"keygrouping_router_dead_letters_total{labels}": total,
        f'process_start_time_seconds{{{NS}, instance="r"}}': f"{started}x100",
    }


def steady(lag: str, events: int) -> dict[str, str]:
    """The lag of the router stage, and events a minute."""
    return {ROUTED: f"0+{events}x120", **stage(lag, None)}


def epochs(one: str, other: str, sharing: int = 1) -> dict[str, str]:
    series = {}
    for instance, epoch in (("q", one), ("r", other)):
        labels = f'{{{NS}, instance="{instance}"}}'
        series[f"keygrouping_router_epoch{labels}"] = epoch
        series[f"keygrouping_router_sharing{labels}"] = f"{sharing}x90"
    return series


def observed(ends: str, events: str, routed: str = "0+60000x90") -> dict[str, str]:
    labels = f'{{{NS}, instance="o"}}'
    return {
        ROUTED: routed,
        f"keygrouping_observer_interval_end_seconds{labels}": ends,
        f'keygrouping_observer_events_total{{{NS}, instance="o", worker="0"}}': events,
        f"keygrouping_observer_workers{labels}": "1x90",
        f"process_start_time_seconds{labels}": "0x90",
    }


def files(opened: str, event_loop: bool = True) -> dict[str, str]:
    labels = f'{{{NS}, instance="r"}}'
    ours = {f"keygrouping_event_loop_lag_seconds_count{labels}": "1x60"} if event_loop else {}
    return {f"process_open_fds{labels}": opened, f"process_max_fds{labels}": "1000x60", **ours}


def outage(*values: str) -> dict[str, str]:
    """When each group last saw its input."""
    return {
        f'keygrouping_input_seen_timestamp_seconds{{{NS}, instance="{number}", group="k-{number}"}}': times
        for number, times in enumerate(values)
    }


def bad_values(total: str, started: int = 0) -> dict[str, str]:
    labels = f'{{{NS}, instance="r", kind="plan"}}'
    return {
        f"keygrouping_router_store_bad_values_total{labels}": total,
        f'process_start_time_seconds{{{NS}, instance="r"}}': f"{started}x60",
    }


def members(ready: str, more: str = "") -> dict[str, str]:
    """An app's only member."""
    return {f'keygrouping_app_ready{{{NS}, instance="m", group="billing", until=""}}': ready} | (
        {f'process_start_time_seconds{{{NS}, instance="m"}}': more} if more else {}
    )


def of_app(name: str, values: str, **labels: str) -> dict[str, str]:
    """One series of the app's only handler."""
    given = "".join(f', {label}="{value}"' for label, value in labels.items())
    return {f'keygrouping_app_{name}{{{NS}, instance="m", group="billing", topic="orders"{given}}}': values}


def app_lag(lag: str, ended: str) -> dict[str, str]:
    return of_app("lag_records", lag) | of_app("events_total", ended)


def waits(first: str, tenth: str | None = None) -> dict[str, str]:
    """Of the key that waits longest, and of the tenth."""
    found = of_app("key_wait_seconds", first, rank="1")
    return found if tenth is None else found | of_app("key_wait_seconds", tenth, rank="10")


def app_shares(whole: str, shared: str, busy: str, given: str = "0x60") -> dict[str, str]:
    """Of a handler with `split` and eight lanes."""
    return {
        **of_app("imbalance_ratio", f"{whole}x60", keys="whole"),
        **of_app("imbalance_ratio", f"{shared}x60", keys="shared"),
        **of_app("busy_lanes", f"{busy}x60"),
        **of_app("lanes", "8x60"),
        **of_app("surplus_events_total", given),
    }


def app_plans(now: str, busy: str) -> dict[str, str]:
    """Of a handler whose keys move by plan."""
    return of_app("imbalance_ratio", now, keys="now") | of_app("busy_lanes", busy)


def app_dead(total: str, ended: str, started: int = 0) -> dict[str, str]:
    return {
        **of_app("dead_letters_total", total, reason="failed"),
        **of_app("events_total", ended),
        f'process_start_time_seconds{{{NS}, instance="m"}}': f"{started}x100",
    }


OF_APP = {"namespace": "ns", "group": "billing"}
ORDERS = {**OF_APP, "topic": "orders"}
AWAY, SEEN = "0+60x10 600x90", "0+60x100"
"""A group that has not seen Kafka since the tenth minute, and one that sees it."""

PLANS = f"keygrouping_router_plan_changes_total{ROUTER}"
RESHUFFLES = f"keygrouping_router_reshuffles_total{ROUTER}"
EVEN = ("0+60000x60",) * 4
UNEVEN = ("0+150000x60", "0+30000x60", "0+30000x60", "0+30000x60")
DEGRADED = f"keygrouping_router_store_degraded{ROUTER}"
LOOP = f"keygrouping_event_loop_lag_seconds_count{ROUTER}"
BOTH = f'keygrouping_router_epoch{{{NS}, instance="r"}}', f'keygrouping_router_epoch{{{NS}, instance="q"}}'
HERE = {"namespace": "ns"}
RESTARTED = "9x20 0x60", "10x20 0x10 1x10 0x10 1x20"
TEN_MINUTES = " ".join(f"{6 * n}x9" for n in range(12))
DAILY = " ".join(f"{6 * n}x1439" for n in range(4))

CASES: dict[str, tuple[Case, ...]] = {
    "KeygroupingNoResults": (
        Case("results end", waiting("0+60x10 600x100"), "30m", HERE, "20m 0s"),
        Case("results have ended for five minutes", waiting("0+60x10 600x100"), "15m", HERE, "5m 0s"),
        Case("the aggregator has been gone for five minutes", waiting("0+60x10 stale"), "15m", HERE, "5m 0s"),
        Case(
            "the routers have been gone for five minutes",
            {**waiting("0+60x10 600x100"), **gone_routers("10"), OBSERVER: "4x60"},
            "15m",
            HERE,
            "5m 0s",
        ),
        Case("the release is gone", {**waiting("0+60x10 stale"), **gone_routers("10")}, "15m"),
        Case("a restart of three minutes", waiting("0+60x10 600x2 780+60x30"), "13m"),
        Case("events end", waiting("0+60x9 600x60", routed="0+60000x10 600000x60"), "13m"),
        Case("events have just ended", waiting("0+60x9 600x60", routed="0+60000x10 600000x60"), "12m"),
        Case(
            "events come each minute and a half",
            waiting("0x1 120x1 240x1 360x1 480x1 600x1", routed="0 1 1 2 3 3 4 5 5 6 7 7"),
            "11m",
        ),
        Case("there never was one", {k: v for k, v in waiting("").items() if v}, "30m", HERE, "30m 0s"),
        Case("the aggregator is gone", waiting("0+60x10 stale"), "30m", HERE, "20m 0s"),
        Case("results come", waiting("0+60x100"), "30m"),
        Case("results of long windows are not due", waiting("0+60x10 600x100", wait=3600), "60m"),
        Case("no events", waiting("0+60x10 600x200", routed="0+60000x10 600000x200"), "60m"),
        Case(
            "events come again after a pause",
            waiting("0+60x10 600x200", routed="0+60000x10 600000x100 660000+60000x60", wait=3600),
            "140m",
        ),
    ),
    "KeygroupingStageStalled": (
        Case(
            "commits end", stage("500x60", "0+5x5 25x60"), "30m", {**HERE, "group": "k-router", "instance": "r"}, "500"
        ),
        Case("no commit ever", stage("500x60", None), "30m", {**HERE, "group": "k-router", "instance": "r"}, "500"),
        Case("it works", stage("500x60", "0+5x60"), "30m"),
        Case("nothing to do", stage("0x60", "25x60"), "30m"),
    ),
    "KeygroupingEventsLost": (
        Case("while it is watched", lost("0x20 5000x100"), "25m", {**HERE, "group": "k-router"}, "5k"),
        Case(
            "before the first scrape of a process that has just started",
            lost("_x20 5000x100", started="1190x200"),
            "25m",
            {**HERE, "group": "k-router"},
            "5k",
        ),
        Case(
            "its process ended at once",
            lost("_x20 5000x1 stale", started="1190x200"),
            "40m",
            {**HERE, "group": "k-router"},
            "5k",
        ),
        Case(
            "it found them lost after more than an hour's rest",
            lost("0x5 _x70 5000x100", started="0x5 _x70 4550x100"),
            "80m",
            {**HERE, "group": "k-router"},
            "5k",
        ),
        Case(
            "it has been restarted since",
            lost("0x20 5000x5 0x100", started="0x25 1570x100"),
            "60m",
            {**HERE, "group": "k-router"},
            "5k",
        ),
        Case("long ago, and restarted", lost("5000x100 0x100", started="0x100 6050x100"), "105m"),
        Case("long ago", lost("5000x200", started="0x200"), "90m"),
        Case("a Prometheus is new, the process is not", lost("_x100 5000x100", started="0x200"), "105m"),
        Case("nothing", lost("0x100", "0x100"), "25m"),
        Case("what the observer did not see is in the results", lost("0x20 50x100", group="k-observer"), "25m"),
    ),
    "KeygroupingEventsExpiring": (
        Case("soon", expiring("0x10 40x60", "0x10 2x60"), "20m", {**HERE, "group": "k-router"}, "42"),
        Case("not for long", expiring("0x10 40x3 0x60"), "20m"),
        Case("none", expiring("0x60"), "20m"),
    ),
    "KeygroupingLagSteady": (
        Case("ten millions", steady("10000000x120", 6_000_000), "60m", {**HERE, "stage": "router"}, "1m 40s"),
        Case(
            "nothing is routed at all",
            steady("10000000x120", 0),
            "60m",
            {**HERE, "stage": "router"},
            "115d 17h 46m 40s",
        ),
        Case("it grows", steady("0+100000x120", 600_000), "60m", {**HERE, "stage": "router"}, "10m 0s"),
        Case("it is processed", steady("20000000-150000x120", 6_000_000), "60m"),
        Case("it is a second's", steady("100000x120", 6_000_000), "60m"),
        Case("it is small", steady("900x120", 60), "60m"),
    ),
    "KeygroupingEventsLate": (
        Case("half of them", late(5000, 5000), "30m", HERE, "50%"),
        Case("one of 100", late(100, 9900), "30m"),
        Case(
            "all of them, from the first one on",
            {k: v for k, v in late(600, 0).items() if k != ROUTED},
            "30m",
            HERE,
            "100%",
        ),
        Case("no events", late(0, 0), "30m"),
    ),
    "KeygroupingEventsExcluded": (
        Case("all are late", late(600, 0), "30m", HERE, "100%"),
        Case("all are of no use, from the first one on", {DEAD: "0+600x60"}, "30m", HERE, "100%"),
        Case("half are late, the others of no use", {**late(300, 0), DEAD: "0+300x60"}, "30m", HERE, "100%"),
        Case("19 of 20 are late", late(950, 50), "30m", HERE, "95%"),
        Case("half are late", late(5000, 5000), "30m"),
        Case("a bad event each ten minutes, and no other", {**late(0, 0), DEAD: "1x9 2x9 3x9 4x9 5x9 6x9"}, "30m"),
        Case("three bad minutes", {ROUTED: "0+600x60", DEAD: "0x20 0+600x3 1800x40"}, "30m"),
        Case("no events", late(0, 0), "30m"),
    ),
    "KeygroupingFieldLost": (
        Case("all of them", skipped(60000), "30m", {**HERE, "field": "/n"}, "100%"),
        Case("half of them", skipped(30000), "30m"),
        Case("few events", {ROUTED: "0+6x60", SKIPPED: "0+6x60"}, "30m"),
    ),
    "KeygroupingRequestsRefused": (
        Case("Kafka takes nothing", refused("0+600x60", "0x60"), "30m", HERE, "10"),
        Case("what is sent is no event", refused("0+60x60", "0x60", status=422), "30m", HERE, "1"),
        Case("some are accepted", refused("0+600x60", "0+6x60"), "30m"),
        Case("somebody has no token", refused("0+600x60", "0x60", status=401), "30m"),
        Case("a stray one", refused("0x9 3x60", "0x60"), "12m"),
        Case("it is not the producer that refuses", {k: v for k, v in refused("0+600x60", "").items() if v}, "30m"),
    ),
    "KeygroupingNothingAssigned": (
        Case("since the start", assigned(router=("0x60", "0x60")), "30m", {**HERE, "group": "k-router"}, "0"),
        Case(
            "taken away", assigned(router=("4x10 0x60",), worker=("9x60",)), "30m", {**HERE, "group": "k-router"}, "0"
        ),
        Case("one has all", assigned(router=("8x60", "0x60"), worker=("9x60",)), "30m"),
        Case("a rebalance of three minutes", assigned(worker=("9x10 0x3 9x60",)), "14m"),
        Case("the observers stand by", assigned(observer=("0x60",), audit=("0x60",)), "30m"),
        Case("the release is gone", assigned(router=("4x10 stale",)), "30m"),
    ),
    "KeygroupingDeadLettersBurst": (
        Case(
            "the first burst, within a minute",
            burst("0x20 50000x80"),
            "25m",
            {**HERE, "reason": "invalid-json"},
            "50k",
        ),
        Case(
            "before the first scrape",
            burst("_x20 50000x80", started=1190),
            "25m",
            {**HERE, "reason": "invalid-json"},
            "50k",
        ),
        Case(
            "a few in a slow stream",
            burst("0x20 200x80", routed="0+600x100"),
            "25m",
            {**HERE, "reason": "invalid-json"},
            "200",
        ),
        Case("a few in a fast stream", burst("0x20 200x80"), "25m"),
        Case("it is over", burst("0x20 50000x80"), "40m"),
        Case("a Prometheus is new, the process is not", burst("_x20 50000x80"), "25m"),
        Case("none", burst("0x100"), "25m"),
    ),
    "KeygroupingWorkersBehind": (
        Case("three of four", delays(6_000_000, 6_000_000, 6_000_000, 10), "30m", HERE, "3"),
        Case("three of four get nothing more", delays(600, 600, 600, 10, events="0x60"), "30m", HERE, "3"),
        Case("one of four", delays(6_000_000, 10, 10, 10), "30m"),
        Case("half a minute", delays(30_000, 30_000, 30_000, 30_000), "30m"),
    ),
    "KeygroupingRoutersApart": (
        Case(
            "one stands still for 80 minutes",
            epochs("0+6x90", "0+6x10 60x80"),
            "80m",
            {**HERE, "instance": "r"},
            "60",
        ),
        Case("each is scraped at another time", epochs("0+6x90", "6+6x90"), "60m"),
        Case("a moment", epochs("0+6x90", "0+6x10 60x8 108+6x90"), "40m"),
        Case("each plans on its own", epochs("0+6x90", "0x90", sharing=0), "60m"),
        Case("there are no plans", epochs("7x90", "7x90"), "60m"),
    ),
    "KeygroupingObserverBlind": (
        Case("it ends no interval", observed("0+60x10 600x80", "0+60000x90"), "30m", HERE, "20m 0s"),
        Case("it never ended one", observed("0x90", "0x90"), "30m", HERE, "30m 0s"),
        Case("it sees none of the events", observed("0+60x90", "0x90"), "30m", HERE, "10m 0s"),
        Case("it sees them", observed("0+60x90", "0+60000x90"), "30m"),
        Case("there are none", observed("0+60x10 600x80", "0x90", routed="0x90"), "30m"),
    ),
    "KeygroupingKafkaCutOff": (
        Case("one of two is cut off", seen("0+60x60", "300x60"), "20m", {**HERE, "group": "k-router"}, "15m 0s"),
        Case("Kafka is away", seen("0+60x10 600x30"), "20m", {**HERE, "group": "k-router"}, "10m 0s"),
        Case("Kafka is away, and it is another alert's first", seen("0+60x10 600x30"), "16m"),
        Case("it is seen", seen("0+60x60", "0+60x60"), "20m"),
        Case("who did not see it is gone", seen("0+60x60", "0+60x10 600x2 stale"), "30m"),
    ),
    "KeygroupingStoreBadValues": (
        Case("a plan is none", bad_values("0x10 4x60"), "15m", {**HERE, "kind": "plan"}, "4"),
        Case("before the first scrape", bad_values("_x10 4x60", started=590), "15m", {**HERE, "kind": "plan"}, "4"),
        Case("long ago", bad_values("4x60"), "40m"),
        Case("none", bad_values("0x60"), "15m"),
    ),
    "KeygroupingFileDescriptorsLow": (
        Case("nearly all", files("100+20x40 900x20"), "59m", {**HERE, "instance": "r"}, "90%"),
        Case(
            "nearly all of an app's member",
            files("900x60", event_loop=False)
            | {f'keygrouping_app_ready{{{NS}, instance="r", group="billing", until=""}}': "1x60"},
            "59m",
            {**HERE, "instance": "r"},
            "90%",
        ),
        Case("half of them", files("500x60"), "40m"),
        Case("it is not ours", files("990x60", event_loop=False), "40m"),
    ),
    "KeygroupingLagGrowing": (
        Case("it grows", stage("0+100x120", None), "60m", {**HERE, "stage": "router"}, "4.5k"),
        Case(
            "Spark's grows",
            {f'keygrouping_spark_source_lag_records{{{NS}, query="worker", topic="routed"}}': "0+100x120"},
            "60m",
            {**HERE, "stage": "worker"},
            "4.5k",
        ),
        Case("it is large and steady", stage("5000x120", None), "60m"),
        Case(
            "it comes and goes", stage("0 9000 0 9000 0 9000 0 9000 0 9000 0 9000 0 9000 0 9000 0+500x30", None), "16m"
        ),
        Case("it is processed", stage("90000-500x120", None), "60m"),
    ),
    "KeygroupingLatencyBudgetBurnFast": (
        Case("every fifth is slow", latency("0+80x100", "0+100x100"), "90m", HERE, "20%"),
        Case("one of 200 is slow", latency("0+199x100", "0+200x100"), "90m"),
        Case("it is over", latency("0x60 100+100x60", "0+100x121"), "95m"),
        Case("all have been slow for 18 minutes", latency("0+100x60 6000x60", "0+100x120"), "79m", HERE, "31.67%"),
        Case("the first events of a new release are slow", latency("0x30 0x60", "0x30 40x60"), "34m"),
        Case("they are, over two minutes", latency("0x30 0x60", "0x30 20 40x60"), "34m"),
        Case("they are, and later ones are not", latency("0x30 0x1 0+1x60", "0x30 40x1 40+1x60"), "36m"),
    ),
    "KeygroupingLatencyBudgetBurnSlow": (
        Case("one of 50 is slow for days", latency("0+49x2900", "0+50x2900"), "2d", HERE, "2%", minutes=5),
        Case("one of 200 is slow for days", latency("0+199x2900", "0+200x2900"), "2d", minutes=5),
        Case("the first events of a new release are slow", latency("0x30 0x600", "0x30 40x600"), "2h", minutes=5),
    ),
    "KeygroupingResultsBudgetBurnFast": (
        Case("every fifth is late", delays_of_results("0+8x100", "0+10x100"), "90m", HERE, "20%"),
        Case("all are late, with windows of ten minutes", delays_of_results("0x110", TEN_MINUTES), "58m", HERE, "100%"),
        Case("one of 200 is late", delays_of_results("0+199x100", "0+200x100"), "90m"),
        Case("it is over", delays_of_results("0x60 10+10x100", "0+10x121"), "95m"),
        Case(
            "the last window before a pause is the first after it",
            delays_of_results("0x62 6+6x40", "0x60 6x1 12+6x40"),
            "64m",
        ),
        Case("one late window of a day", delays_of_results("0x200", "0x60 6x140"), "64m"),
        Case("all come in one go after an outage", delays_of_results("0x200", "0x60 720x140"), "64m"),
        Case("a late window after a rollout", rollout((45, 45, 45)), "48m"),
        Case("three processes are late, one after the other", rollout((30, 37, 44)), "48m", HERE, "100%"),
        Case("both restart before each of two late windows", delays_of_results(*RESTARTED), "57m"),
        Case("no results", delays_of_results("0x200", "0x200"), "90m"),
        Case("results have ended", delays_of_results("0+10x60 600x100", "0+10x60 600x100"), "120m"),
    ),
    "KeygroupingResultsBudgetBurnSlow": (
        Case("one of 50 is late for days", delays_of_results("0+49x2900", "0+50x2900"), "2d", HERE, "2%", minutes=5),
        Case("three windows of a day are late", delays_of_results("0x4500", DAILY), "73h", HERE, "100%", minutes=5),
        Case("two windows of a day are late", delays_of_results("0x4500", DAILY), "49h", minutes=5),
        Case("one of 200 is late for days", delays_of_results("0+199x2900", "0+200x2900"), "2d", minutes=5),
    ),
    "KeygroupingDeadLetters": (
        Case("one of 1000", dead(20), "30m", {**HERE, "reason": "bad-json"}, "0.1998%"),
        Case("one of 10,000", dead(1), "30m"),
    ),
    "KeygroupingEventsUnaccounted": (
        Case("a window differs", unaccounted("0x10 2x60"), "30m", {**HERE, "kind": "window"}, "2"),
        Case("nobody audits any more", audited("0x10 2x5 stale"), "50m", {**HERE, "kind": "window"}, "2"),
        Case("the next one finds that nothing differs", audited("0x10 2x5 stale", "_x20 0x60"), "50m"),
        Case("nothing differs", unaccounted("0x60"), "30m"),
    ),
    "KeygroupingAuditStalled": (
        Case("it stands still", compared("0+60x10 600x60"), "40m", HERE, "30m 0s"),
        Case("it compares", compared("0+60x60"), "40m"),
        Case("who stands by has compared nothing", compared("0+60x60", "0x60"), "40m"),
        Case("no events", compared("0+60x10 600x60", routed="0+60000x10 600000x60"), "40m"),
    ),
    "KeygroupingUnbalanced": (
        Case("splitting does not help", balance({"r": UNEVEN}), "30m", HERE, "2.5"),
        Case("all routers send most to one worker", balance({"r": UNEVEN, "q": UNEVEN}), "30m", HERE, "2.5"),
        Case("one worker gets nothing", balance({"r": EVEN[:2]}), "30m", HERE, "2"),
        Case("the busiest worker can do five times as much", balance({"r": UNEVEN}, capacities=(5, 1, 1, 1)), "30m"),
        Case("a slow worker has as much as all", balance({"r": EVEN}, capacities=(1, 4, 4, 4)), "30m", HERE, "3.25"),
        Case("one of two routers has few events, for one worker", balance({"r": EVEN, "q": ("0+60x60",)}), "30m"),
        Case("keys are not to be split", balance({"r": UNEVEN}, splitting=0), "30m"),
        Case("there are too few events to tell", balance({"r": ("0+600x60",)}), "30m"),
        Case("one bad minute", balance({"r": ("0+60000x20 1500000+60000x30", *EVEN[1:])}), "30m"),
    ),
    "KeygroupingFieldsSkipped": (
        Case("one of 100", skipped(600), "30m", {**HERE, "field": "/n"}, "1%"),
        Case("one of 100,000", skipped(0.6), "30m"),
        Case("a burst of five minutes", {**skipped(0), SKIPPED: "0x10 0+600x5 3000x50"}, "30m"),
    ),
    "KeygroupingOverrideOverloads": (
        Case("a pinned key has half of all", overridden("0+120000x60"), "30m", {**HERE, "worker": "0"}, "2"),
        Case("two routers pin it", overridden("0+60000x60", twice=True), "30m", {**HERE, "worker": "0"}, "2"),
        Case("its worker can do four times as much", overridden("0+120000x60", capacity=4), "30m"),
        Case("a pinned key has a fair share", overridden("0+60000x60"), "30m"),
        Case("the key was pinned for ten minutes", overridden("0x10 0+120000x10 1200000x60"), "30m"),
        Case("there are too few events to tell", overridden("0+1200x60", routed="0+600x60"), "30m"),
    ),
    "KeygroupingOverrideEnds": (
        Case("in ten minutes, after two hours", {ENDS: "7200x200"}, "110m", {**HERE, "action": "pin"}, "10m 0s"),
        Case("in twenty minutes", {ENDS: "7200x200"}, "100m"),
        Case("it began half an hour ago", {ENDS: "_x80 7200x200"}, "110m"),
        Case("it was made longer", {ENDS: "7200x100 72000x200"}, "115m"),
        Case("it was ended", {ENDS: "7200x100 stale"}, "115m"),
    ),
    "KeygroupingWorkerSaturated": (
        Case("one of three", delays(90_500, 10, 10), "30m", {**HERE, "worker": "0"}, "1m 30s"),
        Case("one of two", delays(90_500, 10), "30m", {**HERE, "worker": "0"}, "1m 30s"),
        Case("all are behind", delays(60_000, 50_000, 70_000), "30m"),
        Case("none is behind", delays(1000, 10, 10), "30m"),
    ),
    "KeygroupingPlanFlapping": (
        Case("each ten seconds a plan moves keys", {PLANS: "0+6x60", RESHUFFLES: "0+6x60"}, "40m", HERE, "60"),
        Case(
            "each ten seconds there is a plan, and one in an hour moves", {PLANS: "0+6x60", RESHUFFLES: "1x60"}, "40m"
        ),
        Case("each minute a plan moves keys", {PLANS: "0+1x60", RESHUFFLES: "0+1x60"}, "40m"),
        Case("a burst", {PLANS: "0+6x60", RESHUFFLES: "0x10 60+6x10 120x40"}, "40m"),
    ),
    "KeygroupingKafkaUnreachable": (
        Case("Kafka is away", outage(AWAY, AWAY, AWAY, AWAY), "20m", HERE, "10m 0s"),
        Case("one process has started meanwhile", outage(AWAY, AWAY, AWAY, "_x15 900x90"), "17m", HERE, "7m 0s"),
        Case("it never was there", outage("0x60"), "6m", HERE, "6m 0s"),
        Case("it is back for nine minutes", outage(*["0+60x10 600x20 1800+60x60"] * 4), "39m", HERE, "21m 0s"),
        Case("it is back for eleven minutes", outage(*["0+60x10 600x20 1800+60x60"] * 4), "42m"),
        Case("one of two groups is cut off", outage(SEEN, AWAY), "20m"),
        Case("one of four is cut off", outage(SEEN, SEEN, SEEN, AWAY), "20m"),
        Case("it is seen", outage(SEEN, SEEN), "20m"),
        Case("it was away for three minutes", outage("0+60x10 600x3 780+60x30"), "15m"),
    ),
    "KeygroupingStoreDegraded": (
        Case("it stays away", {DEGRADED: "0x5 1x30"}, "20m", {**HERE, "instance": "r"}),
        Case("it was away", {DEGRADED: "0x5 1x3 0x30"}, "20m"),
    ),
    "KeygroupingTransactionAborts": (
        Case("one of ten", aborts(10, 90), "30m", {**HERE, "group": "k-router"}, "10%"),
        Case("one of 100", aborts(1, 99), "30m"),
    ),
    "KeygroupingPartitionRestarting": (
        Case(
            "each two minutes",
            restarts(" ".join(f"{count}x1" for count in range(20))),
            "36m",
            {**HERE, "group": "k-router", "instance": "r"},
            "5",
        ),
        Case("all once, as brokers go one by one", restarts("0x10 16x10 32x60"), "50m"),
        Case("many in an outage of ten minutes", restarts("0x10 20+10x10 120x60"), "60m"),
    ),
    "KeygroupingSparkQueryStalled": (
        Case("batches end", spark("0+10x10 100x60", "0+60000x60"), "40m", {**HERE, "query": "worker"}, "0"),
        Case("never one batch", spark("0x60", "0+60000x60"), "40m", {**HERE, "query": "worker"}, "0"),
        Case("its driver has begun ten minutes ago", spark("_x30 0x60", "0+60000x90"), "42m"),
        Case("it works", spark("0+10x60", "0+60000x60"), "40m"),
        Case("no events", spark("0+10x10 100x60", "0+60000x10 600000x60"), "40m"),
    ),
    "KeygroupingSparkDriverRestarting": (
        Case("three times", driver("0x10 660x10 1320x10 1980x20"), "40m", HERE, "3"),
        Case("once", driver("0x10 660x50"), "40m"),
    ),
    "KeygroupingPremiseViolated": (
        Case(
            "one process found it so",
            {premise("retention", "r"): "1x20", premise("retention", "w"): "0x20", premise("disk", "r"): "1x20"},
            "10m",
            {**HERE, "check": "retention"},
        ),
        Case("all is given", {premise("retention", "r"): "1x20"}, "10m"),
        Case("one broker is no fault of a laptop", {premise("one-broker", "r"): "0x20"}, "10m"),
        Case("it was fixed and started again", {premise("retention", "r"): "0x4 1x20"}, "10m"),
    ),
    "KeygroupingTargetDown": (
        Case(
            "it does not answer",
            {f"up{ROUTER}": "1x10 0x30", LOOP: "1x10 stale"},
            "20m",
            {**HERE, "job": "router", "instance": "r"},
            "10m 0s",
        ),
        Case(
            "an app's member does not answer",
            {f'up{{{NS}, job="billing", instance="m"}}': "1x10 0x30"}
            | {f'keygrouping_app_ready{{{NS}, job="billing", instance="m", group="billing", until=""}}': "1x10 stale"},
            "20m",
            {**HERE, "job": "billing", "instance": "m"},
            "10m 0s",
        ),
        Case("it answers", {f"up{ROUTER}": "1x30", LOOP: "1x30"}, "20m"),
        Case("it is not ours", {f"up{ROUTER}": "0x30"}, "20m"),
        Case("it was taken away", {f"up{ROUTER}": "1x10 stale", LOOP: "1x10 stale"}, "20m"),
    ),
    "KeygroupingExporterMissing": (
        Case("both are gone", dict.fromkeys(BOTH, "1x20 stale"), "40m", {**HERE, "part": "router"}, "2"),
        Case("one is left", {BOTH[0]: "1x20 stale", BOTH[1]: "1x60"}, "40m"),
    ),
    "KeygroupingScalingCeiling": (
        Case("one partition has it all", inspected("3.1", 12), "60m", {**HERE, "topic": "orders"}, "3.1"),
        Case("it is even enough", inspected("8", 12), "60m"),
        Case("hardly anything comes", inspected("1", 12, events=60), "60m"),
        Case("nothing comes, so nothing is known", inspected("3.1x5 stale", 12), "60m"),
        Case("a topic of one partition has no ceiling below it", inspected("1", 1), "60m"),
    ),
    "KeygroupingInspectBlind": (
        Case("it was not read", {READ: "0x60"}, "10m", {**HERE, "topic": "orders"}, "10m 0s"),
        Case("it is read, though nothing comes", {READ: "0+60x60"}, "10m"),
        Case("it came back", {READ: "0x8 540+60x60"}, "10m"),
    ),
    "KeygroupingAppBreakerOpen": (
        Case(
            "it opens and tries in vain",
            of_app("breaker_state", "0x5 1 0 1 0 1 1 0 1 1 1 0 1 1 1 1 1 1", state="open")
            | of_app("breaker_state", "0x5 0 1 0 1 0 0 1 0 0 0 1 0 0 0 0 0 0", state="probing")
            | of_app("breaker_state", "1x5 0x20", state="closed"),
            "18m",
            ORDERS,
            "1",
        ),
        Case("it was open for a minute", of_app("breaker_state", "0x5 1 0x30", state="open"), "8m"),
        Case("it is closed", of_app("breaker_state", "1x60", state="closed"), "30m"),
        Case(
            "it closes now and then",
            of_app("breaker_state", "0x5 1x6 0 1x6 0 1x6", state="open"),
            "25m",
        ),
    ),
    "KeygroupingAppNotReady": (
        Case("the group does not come to rest", members("1x5 0x30"), "15m", OF_APP, "1"),
        Case("a rebalance of two minutes", members("1x5 0x2 1x30"), "8m"),
        Case("it is ready", members("1x60"), "15m"),
    ),
    "KeygroupingAppMissing": (
        Case("its only member is gone", members("1x10 stale"), "25m", OF_APP, "1"),
        Case("it was restarted", members("1x10 stale _x3 1x30"), "25m"),
        Case("it has been gone for long", members("1x10 stale"), "90m"),
        Case(
            "a backfill has ended",
            {'keygrouping_app_ready{namespace="ns", instance="m", group="billing", until="latest"}': "1x10 stale"},
            "25m",
        ),
    ),
    "KeygroupingAppLagSteady": (
        Case("it grows", app_lag("40000+1000x60", "0+6000x60"), "50m", ORDERS, "15m 0s"),
        Case("it stays", app_lag("60000x60", "0+6000x60"), "50m", ORDERS, "10m 0s"),
        Case("nothing ends at all", app_lag("12x60", "7x60"), "50m", ORDERS, "10m 0s"),
        Case("calls take long, and it stays", app_lag("60x60", "0+6x60"), "50m", ORDERS, "10m 0s"),
        Case("it catches up", app_lag("600000-6000x60", "0+6000x60"), "50m"),
        Case("a minute's work waits", app_lag("6000x60", "0+6000x60"), "50m"),
        Case("it has nothing to do", app_lag("0x60", "7x60"), "50m"),
    ),
    "KeygroupingAppKeyBlocked": (
        Case("a key hangs", waits("0+60x60"), "12m", {**ORDERS, "instance": "m"}, "12m 0s"),
        Case(
            "a key hangs and few others wait",
            waits("0+60x60", "10x60"),
            "12m",
            {**ORDERS, "instance": "m"},
            "12m 0s",
        ),
        Case("all keys wait for lanes", waits("0+60x60", "0+50x60"), "12m"),
        Case("keys wait for a minute", waits("60x60"), "12m"),
        Case("it went on", waits("0+60x8 5x60"), "12m"),
    ),
    "KeygroupingAppGapFull": (
        Case(
            "an event hangs",
            of_app("gap_room_offsets", "24000-2000x11 700x60", partition="3"),
            "30m",
            {**ORDERS, "partition": "3"},
            "700",
        ),
        Case("it comes and goes", of_app("gap_room_offsets", "700 24000 700 20000 " * 10, partition="3"), "30m"),
        Case("there is room", of_app("gap_room_offsets", "24000x60", partition="3"), "30m"),
    ),
    "KeygroupingAppNotShared": (
        Case("nothing is given", app_shares("2.5", "1.02", "8"), "25m", ORDERS, "2.5"),
        Case("it is shared", app_shares("2.5", "1.02", "8", "0+60x60"), "25m"),
        Case("it went on", app_shares("2.5", "1.02", "8", "0x12 60+60x60"), "25m"),
        Case("members have lanes to spare", app_shares("2.5", "1.02", "3"), "25m"),
        Case("sharing would not help", app_shares("2.5", "1.9", "8"), "25m"),
        Case("members have the same", app_shares("1.2", "1", "8"), "25m"),
        Case("it is not to be shared", of_app("busy_lanes", "8x60") | of_app("lanes", "8x60"), "25m"),
    ),
    "KeygroupingAppNotPlanned": (
        Case("reports are refused", app_plans("1.5x20 stale", "2x80"), "32m", {**ORDERS, "instance": "m"}, "1.5"),
        Case("it hears of them once more", app_plans("1.5x20 stale _x7 1x60", "2x80"), "40m"),
        Case("members have nothing to do", app_plans("1.5x20 stale", "2x18 0x60"), "40m"),
        Case("members have begun", app_plans("_x80", "2x80"), "40m"),
        Case("it was ended", app_plans("1.5x20 stale", "2x20 _x60"), "40m"),
    ),
    "KeygroupingAppKeyHeld": (
        Case("a call hangs", of_app("move_oldest_seconds", "0+60x60"), "8m", {**ORDERS, "instance": "m"}, "8m 0s"),
        Case("keys come and go", of_app("move_oldest_seconds", "0 3 0 130 0 2 " * 10), "20m"),
        Case("none is held", of_app("move_oldest_seconds", "0x60"), "20m"),
    ),
    "KeygroupingAppRestoring": (
        Case(
            "a changelog can't be read", of_app("restoring_partitions", "2x60"), "12m", {**ORDERS, "instance": "m"}, "2"
        ),
        Case("members restart, and read theirs", of_app("restoring_partitions", "2x8 0x2 1x8 0x40"), "30m"),
    ),
    "KeygroupingAppRefused": (
        Case("a right is taken away", of_app("refused_partitions", "1x60"), "7m", {**ORDERS, "instance": "m"}, "1"),
        Case("it comes and goes", of_app("refused_partitions", "1 0 1 1 0 " * 10), "30m"),
    ),
    "KeygroupingAppDeadLetters": (
        Case("many", app_dead("0x20 200x60", "0+1000x100"), "25m", {**ORDERS, "reason": "failed"}, "200"),
        Case(
            "before the first scrape of a member that has just started",
            app_dead("_x20 200x60", "_x20 300x60", started=1190),
            "21m",
            {**ORDERS, "reason": "failed"},
            "200",
        ),
        Case(
            "so many that their share is no excuse",
            app_dead("0x20 12000x60", "0+10000000x100"),
            "25m",
            {**ORDERS, "reason": "failed"},
            "12k",
        ),
        Case("a few", app_dead("0x20 90x60", "0+10x100"), "25m"),
        Case("few among many", app_dead("0x20 200x60", "0+100000x100"), "25m"),
        Case("long ago", app_dead("0x20 200x60", "0+1000x100"), "50m"),
    ),
    "KeygroupingAppProcessesDying": (
        Case(
            "an event kills them",
            of_app("processes_replaced_total", "0x10 4x60", why="died")
            | {f'process_start_time_seconds{{{NS}, instance="m"}}': "0x100"},
            "20m",
            ORDERS,
            "4",
        ),
        Case(
            "they were late",
            of_app("processes_replaced_total", "0x10 4x60", why="late")
            | of_app("processes_replaced_total", "0x60", why="died"),
            "20m",
        ),
        Case("one died", of_app("processes_replaced_total", "0x10 1x60", why="died"), "20m"),
    ),
    "KeygroupingAppRestarting": (
        Case(
            "it crashes",
            members("1x60", "0x10 600x10 1200x10 1800x60"),
            "40m",
            {**HERE, "instance": "m"},
            "3",
        ),
        Case("a rollout", members("1x60", "0x10 600x90"), "40m"),
        Case("something else crashes", {f'process_start_time_seconds{{{NS}, instance="x"}}': "0 1 2 3 4 5x60"}, "10m"),
    ),
}


@dataclass
class Source:
    """A file of rules in which the alerts are, and whether it is good without recording rules."""

    name: str
    rules: dict[str, Any] = field(default_factory=dict)


@cache
def sources() -> list[Source]:
    of_grafana = [
        {
            "alert": rule["title"],
            "expr": next(query["model"]["expr"] for query in rule["data"] if query["refId"] == "A"),
            **{name: rule[name] for name in ("for", "labels")},
            "annotations": {
                name: text.replace("$values.A.Value", "$value") for name, text in rule["annotations"].items()
            },
        }
        for group in yaml.safe_load(grafana_alerts())["groups"]
        for rule in group["rules"]
    ]
    return [
        Source("Prometheus", yaml.safe_load(prometheus_rules())),
        Source("Grafana", {"groups": [{"name": "grafana", "rules": of_grafana}]}),
    ]


def only(rules: dict[str, Any], alert: str) -> dict[str, Any]:
    """The rules that an alert needs."""
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    needed = [rule for rule in every if rule.get("alert") == alert]
    names: set[str] = set()
    while missing := set(re.findall(r"keygrouping:[\w:]+", str(needed))) - names:
        names |= missing
        needed += [rule for rule in every if rule.get("record") in missing]
    order = [rule for rule in every if rule in needed]
    return {"groups": [{"name": "needed", "rules": order}]}


def written(template: str, case: Case) -> str:
    """A template's text, given the labels and how the value reads; no case has a release."""
    labels = case.labels or {}
    template = re.sub(r"{{ with index \$labels .*?{{ end }}", "", template)
    text = re.sub(r"{{ \$labels\.(\w+) }}", lambda match: labels.get(match[1], ""), template)
    return re.sub(r"{{ \$value \| [^}]+ }}", case.value, text)


def unit_test(case: Case, alert: Any) -> dict[str, Any]:
    expected = {
        "exp_labels": {"severity": alert.severity, **(case.labels or {})},
        "exp_annotations": {
            "summary": written(alert.summary, case),
            "description": written(alert.description, case),
            "runbook_url": alert.runbook,
        },
    }
    fires = [] if case.labels is None else [expected]
    return {
        "interval": "1m",
        "name": case.name,
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [{"eval_time": case.at, "alertname": alert.name, "exp_alerts": fires}],
    }


def passes(promtool: str, folder: Path, content: dict[str, Any]) -> None:
    """Has promtool carry out its tests."""
    (folder / "tests.yaml").write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [promtool, "test", "rules", folder / "tests.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_every_alert_is_seen_firing_and_quiet() -> None:
    assert set(CASES) == {alert.name for alert in ALERTS}
    for name, cases in CASES.items():
        assert {case.labels is None for case in cases} == {True, False}, name


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
def test_it_fires_on_what_it_is_for_and_on_nothing_else(
    promtool: str, source: Source, alert: Any, tmp_path: Path
) -> None:
    cases = CASES[alert.name]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(only(source.rules, alert.name)))
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{cases[0].minutes}m",
        "tests": [unit_test(case, alert) for case in cases],
    }
    passes(promtool, tmp_path, content)


OUTAGE = "KeygroupingKafkaUnreachable"


def outage_of_20_minutes() -> dict[str, str]:
    """A pipeline from before an outage of Kafka (minutes 30 to 50) to long after it; it catches up in four minutes."""
    stands, router, observer = "1800x19 3060+60x60", f'{NS}, instance="r"', f'{NS}, instance="o"'
    series = {
        f"keygrouping_router_result_wait_seconds{{{router}}}": "70x120",
        f"keygrouping_router_epoch{{{router}}}": "1x120",
        f"process_start_time_seconds{{{router}}}": "0x120",
        f'keygrouping_last_result_timestamp_seconds{{{NS}, instance="a", group="k-aggregator"}}': f"0+60x30 {stands}",
        f"keygrouping_observer_interval_end_seconds{{{observer}}}": f"0+60x30 {stands}",
        f"keygrouping_observer_audit_compared_seconds{{{observer}}}": f"0+60x30 {stands}",
        f'keygrouping_observer_events_total{{{observer}, worker="0"}}': "0+60000x30 1800000x19 1860000+60000x60",
        f'keygrouping_observer_latency_seconds_bucket{{{observer}, le="10.0"}}': "0+600x30 18000x23 18600+600x60",
        f"keygrouping_observer_latency_seconds_count{{{observer}}}": "0+600x30 18000x19 21000+3000x3 30600+600x60",
        **delays_at("a", "0+6x30 180x23 186+6x60", "0+6x30 180x19 320x3 326+6x60"),
    }
    for worker in range(4):
        labels = f'{{{router}, worker="{worker}"}}'
        series[f"keygrouping_router_routed_total{labels}"] = "0+60000x30 1800000x19 1900000+300000x3 2860000+60000x60"
        series[f"keygrouping_router_worker_lag_records{labels}"] = "10x30 5000x19 900000-200000x3 10x60"
    for group, instance in (("k-router", "r"), ("k-worker", "w"), ("k-aggregator", "a"), ("k-observer", "o")):
        labels = f'{{{NS}, instance="{instance}", group="{group}"}}'
        series[f"keygrouping_input_seen_timestamp_seconds{labels}"] = f"0+60x30 {stands}"
        series[f"keygrouping_lag_records{labels}"] = "10x30 5000x19 900000-200000x3 10x60"
        series[f"keygrouping_commits_total{labels}"] = "0+60x30 1800x19 1860+60x60"
        series[f"keygrouping_partition_restarts_total{labels}"] = "0x30 0+2x19 40x60"
        series[f"keygrouping_transaction_aborts_total{labels}"] = "0x30 0+2x19 40x60"
    return series


def test_nobody_is_woken_but_by_the_outage_while_it_lasts_and_after_it(promtool: str, tmp_path: Path) -> None:
    """What follows from an outage of Kafka fires while its own alert does, which keeps it quiet in Alertmanager."""
    (tmp_path / "rules.yaml").write_text(prometheus_rules())
    firing = 'ALERTS{alertstate="firing", severity="critical"'
    own = f'{firing}, alertname="{OUTAGE}"}}'
    others = f'sum(count by (namespace) ({firing}, alertname!="{OUTAGE}"}}) unless on (namespace) {own})'
    alone = [{"expr": others, "eval_time": f"{minute}m", "exp_samples": []} for minute in range(100)]
    stalled = f'sum({firing}, alertname="KeygroupingStageStalled"}})'
    seen = [
        {"expr": f"sum({own})", "eval_time": "37m", "exp_samples": [{"labels": "{}", "value": 1}]},
        {"expr": f"sum({own})", "eval_time": "34m", "exp_samples": []},
        {"expr": f"sum({own})", "eval_time": "64m", "exp_samples": []},
        {"expr": stalled, "eval_time": "48m", "exp_samples": [{"labels": "{}", "value": 4}]},
    ]
    series = [{"series": name, "values": values} for name, values in outage_of_20_minutes().items()]
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [*alone, *seen]}],
    }
    passes(promtool, tmp_path, content)


IDLE = {
    ROUTED: "5x30",
    f'keygrouping_router_worker_lag_records{{{NS}, instance="r", worker="0"}}': "0x30",
    f'keygrouping_router_late_total{{{NS}, instance="r", reason="late"}}': "0x30",
    f'keygrouping_router_dead_letters_total{{{NS}, instance="r", reason="no-key"}}': "0x30",
    f'keygrouping_expired_offsets_total{{{NS}, instance="r", group="k-router"}}': "0x30",
    f'keygrouping_commits_total{{{NS}, instance="r", group="k-router"}}': "7x30",
    f'keygrouping_transaction_aborts_total{{{NS}, instance="r", group="k-router"}}': "0x30",
    f'keygrouping_lag_records{{{NS}, instance="r", group="k-router"}}': "0x30",
    f'process_start_time_seconds{{{NS}, instance="r"}}': "0x30",
}
ZEROS = (
    "keygrouping:lag:seconds",
    "keygrouping:worker_delay:seconds",
    "keygrouping:dead_letters:increase15m",
    "keygrouping:lost_events:increase1h",
    "keygrouping:late_events:ratio_rate10m",
    "keygrouping:transaction_aborts:ratio_rate10m",
)


def test_what_is_nothing_is_0_and_not_no_data(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(prometheus_rules())
    asked = [
        {"expr": f"sum({name})", "eval_time": "25m", "exp_samples": [{"labels": "{}", "value": 0}]} for name in ZEROS
    ]
    series = [{"series": name, "values": values} for name, values in IDLE.items()]
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}],
    }
    passes(promtool, tmp_path, content)


@pytest.mark.parametrize(
    ("series", "shown"),
    [
        ((), []),
        (('keygrouping:events:rate5m{namespace="other"}',), []),
        (('keygrouping:events:rate5m{namespace="ns"}',), [0]),
        (
            (
                'keygrouping:events:rate5m{namespace="ns"}',
                f'ALERTS{{alertname="KeygroupingX", alertstate="firing", {NS}}}',
            ),
            [1],
        ),
    ],
)
def test_the_overview_tells_no_alerts_only_where_rules_are(
    promtool: str, series: Sequence[str], shown: Sequence[int], tmp_path: Path
) -> None:
    (query,) = ALERTS_FIRING.queries
    asked = {
        "expr": scoped(query.expr).replace("$namespace", "ns"),
        "eval_time": "1m",
        "exp_samples": [{"labels": "{}", "value": value} for value in shown],
    }
    content = {
        "tests": [{"input_series": [{"series": s, "values": "1x5"} for s in series], "promql_expr_test": [asked]}]
    }
    passes(promtool, tmp_path, content)
    assert ALERTS_FIRING.nothing == "no rules"


def test_the_rule_file_is_one_for_prometheus(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(prometheus_rules())
    done = subprocess.run(
        [promtool, "check", "rules", tmp_path / "rules.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
