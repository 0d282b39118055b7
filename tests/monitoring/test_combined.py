"""Where workers combine at the source, alerts see of them what they see of routers, and behind routers nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from monitoring.alerts import ALERTS
from monitoring.boards import BOARDS
from monitoring.boards.kit import scoped
from monitoring.recordings import OF_WORKERS

from .test_rules import (
    CASES,
    HERE,
    NS,
    OBSERVER,
    Case,
    Source,
    gone_routers,
    late,
    only,
    passes,
    sources,
    unit_test,
    waiting,
)
from .test_rules import skipped as fields

WAIT = "keygrouping_worker_result_wait_seconds"
ALIKE = (
    "KeygroupingNoResults",
    "KeygroupingLagSteady",
    "KeygroupingEventsLate",
    "KeygroupingEventsExcluded",
    "KeygroupingDeadLetters",
    "KeygroupingDeadLettersBurst",
    "KeygroupingFieldLost",
    "KeygroupingFieldsSkipped",
    "KeygroupingAuditStalled",
    "KeygroupingObserverBlind",
    "KeygroupingWorkerSaturated",
    "KeygroupingWorkersBehind",
)
"""Alerts that look at what routers show, and are needed without them too."""
OF_ROUTING = {
    "KeygroupingUnbalanced",
    "KeygroupingOverrideOverloads",
    "KeygroupingOverrideEnds",
    "KeygroupingRoutersApart",
    "KeygroupingPlanFlapping",
    "KeygroupingStoreDegraded",
    "KeygroupingStoreBadValues",
}
"""Alerts about plans and what they are kept in: nobody plans where workers combine."""
OF_SPARK = {"KeygroupingSparkQueryStalled"}
READS = f'keygrouping_worker_events_total{{{NS}, instance="w"}}'
BEHIND = {
    READS: "0+60000x600",
    f'{WAIT}{{{NS}, instance="w"}}': "0x600",
}
"""A worker behind routers, which aggregates what these have counted."""


def combined(series: Mapping[str, str]) -> dict[str, str]:
    """The series of routers as those of workers that read the input themselves, each with partitions of its own."""
    found: dict[str, str] = {}
    for name, values in series.items():
        if name.startswith("keygrouping_router_epoch"):
            continue
        for ours, theirs in OF_WORKERS.items():
            name = name.replace(ours, theirs)
        name = name.replace("keygrouping_router_worker_lag_records", "keygrouping_lag_records")
        name = name.replace("keygrouping_router_result_wait_seconds", WAIT)
        found[one_worker_each(name, series)] = values
    for instance in sorted(
        {found_in[1] for name in found if (found_in := re.search(r'_worker_.*instance="(\w+)"', name))}
    ):
        labels = f'{NS}, instance="{instance}"'
        if not any(name.startswith(WAIT) for name in found if f'instance="{instance}"' in name):
            found[f"{WAIT}{{{labels}}}"] = "70x600"
        found[f'keygrouping_assigned_partitions{{{labels}, group="k-router"}}'] = "1x600"
    return found


def one_worker_each(name: str, series: Mapping[str, str]) -> str:
    """A process for each worker where their lags are told apart, else one for all."""
    if any("worker_lag_records" in each for each in series):
        return re.sub(r'instance="r", worker="(\d)"', r'instance="\1"', name)
    return re.sub(r', worker="\d"', "", name) if "keygrouping_worker_" in name else name


def at_the_source(alert: str) -> tuple[Case, ...]:
    return tuple(replace(case, series=combined(case.series)) for case in CASES[alert])


OTHERS: dict[str, tuple[Case, ...]] = {
    "KeygroupingNoResults": (
        Case(
            "the routers have been gone for five minutes, and workers had something left for one",
            {
                **waiting("0+60x10 600x100"),
                **gone_routers("10"),
                **BEHIND,
                READS: "0+60000x11 660000x90",
                OBSERVER: "4x60",
            },
            "15m",
            HERE,
            "5m 0s",
        ),
        Case("results come, and workers are behind routers", {**waiting("0+60x100"), **BEHIND}, "30m"),
    ),
    "KeygroupingEventsLate": (
        Case("half of them, and workers count the others again", {**late(5000, 5000), **BEHIND}, "30m", HERE, "50%"),
    ),
    "KeygroupingFieldsSkipped": (
        Case("one of 1000 and more", {**fields(90), **BEHIND}, "30m", {**HERE, "field": "/n"}, "0.15%"),
    ),
    "KeygroupingWorkersBehind": (
        Case(
            "all that have partitions; most have none",
            combined(next(iter(CASES["KeygroupingWorkersBehind"])).series)
            | {f'{WAIT}{{{NS}, instance="idle-{n}"}}': "70x600" for n in range(9)}
            | {f'keygrouping_lag_records{{{NS}, instance="idle-{n}", group="k-router"}}': "0x600" for n in range(9)}
            | {
                f'keygrouping_assigned_partitions{{{NS}, instance="idle-{n}", group="k-router"}}': "0x600"
                for n in range(9)
            },
            "30m",
            HERE,
            "3",
        ),
    ),
    "KeygroupingExporterMissing": (
        Case(
            "the routers were stopped, and workers combine",
            {f'keygrouping_router_epoch{{{NS}, instance="r"}}': "1x20 stale"}
            | {
                READS: "0+1x60",
                f'{WAIT}{{{NS}, instance="w"}}': "70x60",
            },
            "40m",
        ),
        Case(
            "the routers are gone, and workers are behind them",
            {f'keygrouping_router_epoch{{{NS}, instance="r"}}': "1x20 stale", **BEHIND},
            "40m",
            {**HERE, "part": "router"},
            "1",
        ),
    ),
}


def all_hold(promtool: str, source: Source, name: str, cases: tuple[Case, ...], folder: Path) -> None:
    (alert,) = (alert for alert in ALERTS if alert.name == name)
    (folder / "rules.yaml").write_text(yaml.safe_dump(only(source.rules, name)))
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{cases[0].minutes}m",
        "tests": [unit_test(case, alert) for case in cases],
    }
    passes(promtool, folder, content)


@pytest.mark.parametrize("alert", ALIKE)
@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
def test_it_fires_and_is_quiet_as_it_is_with_routers(promtool: str, source: Source, alert: str, tmp_path: Path) -> None:
    all_hold(promtool, source, alert, at_the_source(alert), tmp_path)


@pytest.mark.parametrize("alert", OTHERS)
@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
def test_who_reads_the_input_is_told_from_who_does_not(
    promtool: str, source: Source, alert: str, tmp_path: Path
) -> None:
    all_hold(promtool, source, alert, OTHERS[alert], tmp_path)


def test_all_other_alerts_need_nothing_of_routers_or_are_about_routing() -> None:
    prometheus, _ = sources()
    asking = {alert.name for alert in ALERTS if "keygrouping_router" in str(only(prometheus.rules, alert.name))}
    assert asking == {*ALIKE, *OF_ROUTING, *OF_SPARK, "KeygroupingExporterMissing"}


READ = {
    f'keygrouping_router_routed_total{{{NS}, instance="r", worker="0"}}': "0+600x60",
    f'keygrouping_router_late_total{{{NS}, instance="r", reason="late"}}': "0+60x60",
    f'keygrouping_router_dead_letters_total{{{NS}, instance="r", reason="invalid-json"}}': "0+30x60",
    f'keygrouping_router_skipped_fields_total{{{NS}, instance="r", field="/n"}}': "0+90x60",
    f'keygrouping_router_result_wait_seconds{{{NS}, instance="r"}}': "70x60",
    f'keygrouping_last_result_timestamp_seconds{{{NS}, instance="a", group="k-aggregator"}}': "0+60x10 600x60",
    f'keygrouping_lag_records{{{NS}, instance="a", group="k-aggregator"}}': "500x60",
}
"""What routers show that have read a stream."""
_OF_INPUT = re.compile(r"keygrouping_router_(routed|late|dead_letters|skipped_fields|result_wait)")
_OF_PLANS = re.compile(r"keygrouping_router_(worker_capacity|imbalance_before|worker_lag_records)")


def test_panels_of_what_is_read_show_of_workers_that_combine_what_they_show_of_routers(
    promtool: str, tmp_path: Path
) -> None:
    panels = [panel for board in BOARDS for row in board.rows for panel in row.panels]
    queries = [query for panel in panels if panel.title != "Dead letters by service" for query in panel.queries]
    shown = {scoped(query.expr).replace("$__rate_interval", "5m") for query in queries}
    asked = sorted(expr for expr in shown if _OF_INPUT.search(expr) and not _OF_PLANS.search(expr))
    assert len(asked) >= 15
    here = {name.replace(NS, 'namespace="source"'): values for name, values in combined(READ).items()}
    content = {
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in {**READ, **here}.items()],
                "promql_expr_test": [
                    {
                        "expr": " - ".join(f"sum({expr.replace('$namespace', place)})" for place in ("ns", "source")),
                        "eval_time": "30m",
                        "exp_samples": [{"labels": "{}", "value": 0}],
                    }
                    for expr in asked
                ],
            }
        ]
    }
    passes(promtool, tmp_path, content)


def combines(instance: str, events: int, partitions: int = 1) -> dict[str, str]:
    """A worker with so many events a minute."""
    labels = f'{NS}, instance="{instance}"'
    return {
        f"keygrouping_worker_events_total{{{labels}}}": f"0+{events}x60",
        f"{WAIT}{{{labels}}}": "70x60",
        f'keygrouping_assigned_partitions{{{labels}, group="k-router"}}': f"{partitions}x60",
    }


def test_imbalance_of_workers_that_combine_is_that_of_those_that_have_partitions(promtool: str, tmp_path: Path) -> None:
    prometheus, _ = sources()
    rules = only(prometheus.rules, "KeygroupingUnbalanced")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    series = combines("a", 18000) | combines("b", 6000, 3) | combines("c", 12000) | combines("idle", 0, 0)
    asked = {"expr": "keygrouping:imbalance:rate5m", "eval_time": "30m"}
    told = {"labels": f"keygrouping:imbalance:rate5m{{{NS}}}", "value": 1.5}
    at_rest = combines("a", 0) | combines("b", 0)
    content = {
        "rule_files": ["rules.yaml"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in given.items()],
                "promql_expr_test": [{**asked, "exp_samples": found}],
            }
            for given, found in ((series, [told]), (at_rest, []))
        ],
    }
    passes(promtool, tmp_path, content)
