"""Routing tables with migration: how large the tables get, and how long a plan takes.

Source: Fang, Zhang, Fu, Zhang, Zhou and Zhu, "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC
2017, arXiv 1610.05121), section 5 and appendices B and C.
"""

from collections.abc import Sequence

import numpy as np
from keygrouping.grouping.table.compact import discretised
from keygrouping.simulate import create_sources

from keygrouping_experiments.lab import Lab
from keygrouping_experiments.migration import (
    INSTANCES,
    INTERVALS,
    PAPER,
    SETUP,
    THETA_MAX,
    Adjustment,
    adjustments,
    figures,
)
from keygrouping_experiments.model import Claim, Experiment, Line, Outcome, Panel, Row
from keygrouping_experiments.published import compare
from keygrouping_experiments.rows import line, value, values
from keygrouping_experiments.streams import key_counts

_BETAS = (1.0, 1.25, 1.5, 1.75, 2.0)
_SIZES = (50, 75, 100, 150, 200, 300, 500, 1000)


def _table(lab: Lab) -> Outcome:
    growth = [("growth", theta, "minmig", THETA_MAX) for theta in (0.02, 0.08, 0.15)]
    cases = [
        *growth,
        *(("beta", beta, "minmig", theta) for beta in _BETAS for theta in (0.02, 0.08)),
        *(("table_size", float(size), "mixed", theta) for size in _SIZES for theta in (0.02, 0.08, 0.15)),
    ]
    rows: list[Row] = []
    for sweep, at, planner, theta in lab.each(cases):
        if sweep == "growth":
            made = adjustments(lab, planner, {"theta_max": at}, intervals=_GROWTH)
            rows += [_table_row(sweep, at, number + 1, made[number : number + 1]) for number in range(0, len(made), 10)]
            continue
        setting: dict[str, object] = {sweep: at if sweep == "beta" else int(at)}
        made = adjustments(lab, planner, {"theta_max": theta, **setting})
        rows.append(_table_row(sweep, theta, at, made))
    last = [values(rows, "entries", sweep="growth", theta_max=theta)[-1] for theta in (0.02, 0.08, 0.15)]
    return Outcome(
        tuple(rows),
        _table_panels(rows),
        compare("mixed-table", {("MinMig", "entries in the end"): max(last)}),
        _table_claims(rows),
    )


_GROWTH = 1000


def _table_row(sweep: str, theta: float, at: float, made: list[Adjustment]) -> Row:
    return {"sweep": sweep, "theta_max": theta, "value": at, **figures(made)}


def _table_panels(rows: Sequence[Row]) -> tuple[Panel, ...]:
    def lines(sweep: str, y: str, thetas: Sequence[float]) -> tuple[Line, ...]:
        return tuple(line(rows, f"theta_max={theta}", "value", y, sweep=sweep, theta_max=theta) for theta in thetas)

    return (
        Panel("MinMig", "adjustments", "entries", lines("growth", "entries", (0.02, 0.08, 0.15))),
        Panel("MinMig", "beta", "entries", lines("beta", "entries", (0.02, 0.08))),
        Panel("MinMig", "beta", "migration cost (%)", lines("beta", "migration cost (%)", (0.02, 0.08))),
        Panel(
            "Mixed",
            "table size allowed",
            "migration cost (%)",
            lines("table_size", "migration cost (%)", (0.02, 0.08, 0.15)),
        ),
        Panel("Mixed", "table size allowed", "entries", lines("table_size", "entries", (0.02, 0.08, 0.15))),
    )


def _table_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    def entries(sweep: str, theta: float) -> tuple[float, ...]:
        return values(rows, "entries", sweep=sweep, theta_max=theta)

    growth = {theta: entries("growth", theta) for theta in (0.02, 0.08, 0.15)}
    middle = len(growth[0.02]) // 4
    by_beta = entries("beta", 0.08)
    costs = values(rows, "migration cost (%)", sweep="table_size", theta_max=0.08)
    kept = [row for row in rows if row["sweep"] == "table_size"]
    return (
        Claim(
            "a smaller tolerance makes MinMig's table grow faster",
            "appendix B, figure 18",
            f"after {10 * middle + 1} adjustments: "
            + ", ".join(f"{growth[theta][middle]:,.0f} at {theta}" for theta in growth),
            growth[0.02][middle] > growth[0.08][middle] > growth[0.15][middle],
        ),
        Claim(
            "a larger beta makes smaller tables",
            "appendix C, figure 20",
            ", ".join(f"{each:,.0f}" for each in by_beta) + " entries for beta 1 to 2",
            list(by_beta) == sorted(by_beta, reverse=True),
        ),
        Claim(
            "Mixed's migration cost falls greatly once the table may be large enough",
            "appendix B, figure 17",
            ", ".join(f"{cost:.1f} %" for cost in costs) + f" for {', '.join(map(str, _SIZES))} entries",
            costs[-1] < 0.67 * costs[0],
        ),
        Claim(
            "Mixed keeps the table within its size",
            "section 3",
            "mean entries over the size allowed: at most "
            f"{max(float(row['entries']) / max(1.0, float(row['value'])) for row in kept):.2f}",
            all(float(row["entries"]) <= float(row["value"]) for row in kept),
        ),
    )


TABLE = Experiment(
    name="mixed-table",
    title="size of the routing table",
    source=f"{PAPER}, appendices B and C, figures 17, 18, 20 and 21",
    setup=f"{SETUP} The growth of MinMig's table is followed for {_GROWTH} adjustments.",
    differences=(
        "In the long run a key is as likely on any instance, so that a table without bounds comes near K (W - 1) / W "
        "= 9,333 entries, which the paper gives as about 9,350. How fast depends on the fluctuation. An entry of a "
        "key that has had no events for w intervals is dropped here, and rare keys have none for some intervals."
    ),
    events=5_000_000,
    run=_table,
)


_PLANNED_KEYS = (10_000, 100_000)


def _plan_time(lab: Lab) -> Outcome:
    cases = [(keys, compact) for keys in _PLANNED_KEYS for compact in (None, *range(9))]
    rows: list[Row] = []
    for keys, compact in lab.each(cases):
        made = adjustments(lab, "mixed", {"compact": compact, "table_size": keys}, keys=keys, intervals=12)
        error = 0.0 if compact is None else _estimation_error(lab, keys, compact)
        rows.append({"keys": keys, "R": 0 if compact is None else 2**compact, **figures(made), "error (%)": error})
    exact, finest = (value(rows, "plan time (s)", keys=_PLANNED_KEYS[-1], R=degree) for degree in (0, 1))
    ours = {
        ("exact", "plan time (s)"): exact,
        ("compact, R=1", "plan time (s)"): finest,
        ("exact over compact", "plan time"): exact / finest,
    }
    return Outcome(tuple(rows), _plan_time_panels(rows), compare("mixed-plan-time", ours), _plan_time_claims(rows))


def _estimation_error(lab: Lab, keys: int, exponent: int) -> float:
    """The largest error of an instance's load, in per cent, that comes from rounding its keys' costs."""
    size = max(1, lab.events // INTERVALS)
    stream = lab.workload("fluctuation", size, {"keys": keys, "instances": INSTANCES, "interval": size})
    costs = key_counts(stream).astype(np.float64)
    (homes,) = create_sources("key", INSTANCES, 1)
    workers = homes.route_batch(stream.table.hashes(homes.seeds), None, 0.0).astype(np.int64)
    exact = np.bincount(workers, costs, INSTANCES)
    rounded = np.bincount(workers, discretised(costs, workers, exponent), INSTANCES)
    return float(100 * np.max(np.abs(rounded - exact) / np.maximum(exact, 1)))


def _plan_time_panels(rows: Sequence[Row]) -> tuple[Panel, ...]:
    compact = [row for row in rows if row["R"]]
    exact = (
        Line(f"{row['keys']:,} keys, exact", (1.0, 256.0), (float(row["plan time (s)"]),) * 2)
        for row in rows
        if not row["R"]
    )
    times = (line(compact, f"{keys:,} keys", "R", "plan time (s)", keys=keys) for keys in _PLANNED_KEYS)
    errors = (line(compact, f"{keys:,} keys", "R", "error (%)", keys=keys) for keys in _PLANNED_KEYS)
    return (
        Panel("time to plan", "R", "plan time (s)", (*times, *exact), log_x=True, log_y=True),
        Panel("error of an instance's load", "R", "error (%)", tuple(errors), log_x=True),
    )


def _plan_time_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    times = values(rows, "plan time (s)")
    errors = values(rows, "error (%)")
    coarse, fine = (value(rows, "plan time (s)", keys=_PLANNED_KEYS[-1], R=degree) for degree in (256, 1))
    return (
        Claim(
            "a plan is made within 1 second",
            "section 5, figure 9.a",
            f"{min(times):.3f} to {max(times):.3f} s",
            max(times) < 1,
        ),
        Claim(
            "coarser statistics make planning faster",
            "section 5, figure 11.a",
            f"{fine:.3f} s with R = 1, {coarse:.3f} s with R = 256",
            coarse < fine,
        ),
        Claim(
            "the estimation error stays below 1 %",
            "section 5, figure 11.b",
            f"at most {max(errors):.2f} %",
            max(errors) < 1,
        ),
    )


PLAN_TIME = Experiment(
    name="mixed-plan-time",
    title="time to plan with exact and with compact statistics",
    source=f"{PAPER}, section 5, figures 9.a and 11",
    setup=(
        f"{SETUP} Planned by exact statistics and by compact ones of degree R = 1 to 256; a table of any size; 10 "
        "k and 100 k keys."
    ),
    differences=(
        "These are wall-clock times of this library on the machine that drew the page, and no two runs have the "
        "same. They include reading the statistics, which takes as long for compact as for exact planning, since "
        "both start from the same statistics. The published figures are for a domain of keys whose size the text "
        "doesn't name."
    ),
    events=5_000_000,
    run=_plan_time,
)
