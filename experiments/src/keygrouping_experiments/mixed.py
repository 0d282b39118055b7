"""Routing tables with migration: skewness of hashing, migration cost, size of the table, time to plan.

Source: Fang, Zhang, Fu, Zhang, Zhou and Zhu, "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC
2017, arXiv 1610.05121), section 5 and appendices B and C.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keygrouping_experiments.lab import Lab
from keygrouping_experiments.migration import (
    INSTANCES,
    KEYS,
    PAPER,
    SETUP,
    THETA_MAX,
    Adjustment,
    adjustments,
    figures,
    mean,
)
from keygrouping_experiments.model import Claim, Experiment, Line, Outcome, Panel, Row
from keygrouping_experiments.published import compare
from keygrouping_experiments.rows import line, value, values

_PLANNERS = ("mixed", "mintable")
_MOST = 20
"""Instances for which no key has more than a fair share."""


def _skewness(lab: Lab) -> Outcome:
    cases = [("W", workers, KEYS) for workers in (5, 10, 15, 20, 30, 40)]
    cases += [("K", INSTANCES, keys) for keys in (5_000, 10_000, 100_000, 1_000_000)]
    rows: list[Row] = []
    for sweep, workers, keys in lab.each(cases):
        for grouping in ("hash", "mixed"):
            # Hashing is a routing table that tolerates any load.
            settings: dict[str, object] = {"theta_max": 1e9 if grouping == "hash" else THETA_MAX}
            made = adjustments(lab, "mixed", settings, workers, keys)
            average = np.sort(np.mean([each.loads for each in made], axis=0))
            skewness = [float(each.loads.max() / each.loads.mean()) for each in made]
            rows.append(
                {
                    "sweep": sweep,
                    "workers": workers,
                    "keys": keys,
                    "grouping": grouping,
                    "largest over mean load": float(np.mean(skewness)),
                    "by the plan": mean(made, "skewness"),
                    "largest over smallest load": float(average[-1] / average[0]),
                    "smallest over mean load": float(average[0] / average.mean()),
                }
            )
    ours = {
        ("hash, W=40", "largest over smallest load"): value(
            rows, "largest over smallest load", sweep="W", workers=40, grouping="hash"
        )
    }
    return Outcome(tuple(rows), _skewness_panels(rows), compare("mixed-skewness", ours), _skewness_claims(rows))


def _skewness_panels(rows: Sequence[Row]) -> tuple[Panel, ...]:
    def lines(sweep: str, x: str) -> tuple[Line, ...]:
        return (
            line(rows, "hash", x, "largest over mean load", sweep=sweep, grouping="hash"),
            line(rows, "mixed, next interval", x, "largest over mean load", sweep=sweep, grouping="mixed"),
            line(rows, "mixed, by its plan", x, "by the plan", sweep=sweep, grouping="mixed"),
        )

    return (
        Panel("over the instances", "instances", "largest over mean load", lines("W", "workers")),
        Panel("over the keys", "keys", "largest over mean load", lines("K", "keys"), log_x=True),
    )


def _skewness_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    by_w = values(rows, "largest over mean load", sweep="W", grouping="hash")
    by_k = values(rows, "largest over smallest load", sweep="K", grouping="hash")
    planned = [float(row["by the plan"]) for row in rows if row["grouping"] == "mixed" and int(row["workers"]) <= _MOST]
    halves = [sum(half) / len(half) for half in (by_w[: len(by_w) // 2], by_w[len(by_w) // 2 :])]
    return (
        Claim(
            "hashing's skewness grows with the instances",
            "section 5, figure 7.a",
            ", ".join(f"{each:.2f}" for each in by_w)
            + f"; on average {halves[0]:.2f} up to 15, {halves[1]:.2f} from 20 on",
            halves[0] < halves[1],
        ),
        Claim(
            "and falls with the size of the key domain",
            "section 5, figure 7.b",
            "largest over smallest average load: " + ", ".join(f"{each:.2f}" for each in by_k) + " for 5 k to 1 M keys",
            by_k[0] > by_k[-1],
        ),
        Claim(
            "Mixed's plans balance within the tolerance of 0.08",
            "section 5",
            f"largest over mean load by the plan at most {max(planned):.3f} with up to {_MOST} instances",
            max(planned) <= 1 + THETA_MAX + 1e-9,
        ),
    )


SKEWNESS = Experiment(
    name="mixed-skewness",
    title="skewness of hashing, and of routing tables",
    source=f"{PAPER}, section 5, figure 7",
    setup=(
        f"{SETUP} 'By the plan' is the interval that the plan was made from, 'next interval' what it came to after "
        "the next fluctuation."
    ),
    differences=(
        "The paper doesn't say how it picks the keys that swap their frequencies; here one instance's load rises by "
        "the fluctuation times the mean in every interval. So a plan is made for the last interval and used in the "
        "next, which is as skewed as the fluctuation makes it, whichever grouping plans. A key with more than a fair "
        "share (4.9 % of the stream, from W = 21 on) can't be balanced by any table that doesn't split it."
    ),
    events=5_000_000,
    run=_skewness,
)

_THETAS = (0.0, 0.02, 0.05, 0.08, 0.15, 0.3, 0.5, 1.0)


def _migration(lab: Lab) -> Outcome:
    cases: list[tuple[str, float, str, int]] = [
        *(("theta_max", theta, planner, window) for theta in _THETAS for planner in _PLANNERS for window in (1, 5)),
        *(
            ("instances", each, planner, window)
            for each in (5, 10, 15, 20, 30, 40)
            for planner in _PLANNERS
            for window in (1, 5)
        ),
        *(
            ("keys", each, planner, window)
            for each in (5_000, 10_000, 100_000)
            for planner in _PLANNERS
            for window in (1, 5)
        ),
        *(("fluctuation", each, planner, 5) for each in (0.2, 0.5, 1.0, 1.5, 2.0) for planner in (*_PLANNERS, "readj")),
    ]
    rows: list[Row] = []
    for sweep, at, planner, window in lab.each(cases):
        made = _swept(lab, sweep, at, planner, {"window": window})
        rows.append({"sweep": sweep, "value": at, "planner": planner, "window": window, **figures(made)})
    mixed, mintable = (_cost_at_default(rows, planner) for planner in _PLANNERS)
    ours = {("MinTable over Mixed", "migration cost"): mintable / mixed if mixed else np.inf}
    return Outcome(tuple(rows), _migration_panels(rows), compare("mixed-migration", ours), _migration_claims(rows))


def _swept(lab: Lab, sweep: str, at: float, planner: str, settings: Mapping[str, object]) -> list[Adjustment]:
    given: dict[str, object] = {"theta_max": at if sweep == "theta_max" else THETA_MAX, **settings}
    varied: dict[str, Any] = {}
    if sweep != "theta_max":
        varied[sweep] = at if sweep == "fluctuation" else int(at)
    return adjustments(lab, planner, given, **varied)


def _cost_at_default(rows: Sequence[Row], planner: str, window: int = 5) -> float:
    return value(rows, "migration cost (%)", sweep="theta_max", value=THETA_MAX, planner=planner, window=window)


def _migration_panels(rows: Sequence[Row]) -> tuple[Panel, ...]:
    def panel(sweep: str, log_x: bool = False) -> Panel:
        chosen = [row for row in rows if row["sweep"] == sweep]
        kinds = sorted({(str(row["planner"]), int(row["window"])) for row in chosen})
        lines = (
            line(chosen, f"{planner}, w={window}", "value", "migration cost (%)", planner=planner, window=window)
            for planner, window in kinds
        )
        return Panel(f"over {sweep}", sweep, "migration cost (% of all state)", tuple(lines), log_x=log_x)

    return panel("theta_max"), panel("instances"), panel("keys", log_x=True), panel("fluctuation")


def _migration_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    def costs(sweep: str, planner: str, window: int) -> tuple[float, ...]:
        return values(rows, "migration cost (%)", sweep=sweep, planner=planner, window=window)

    cheaper = [
        ours < theirs
        for sweep in ("theta_max", "instances", "keys")
        for window in (1, 5)
        for ours, theirs in zip(costs(sweep, "mixed", window), costs(sweep, "mintable", window), strict=True)
    ]
    by_theta = costs("theta_max", "mixed", 5)
    windows = [(costs(sweep, "mixed", 1), costs(sweep, "mixed", 5)) for sweep in ("theta_max", "instances", "keys")]
    longer = [more <= less for ones, fives in windows for less, more in zip(ones, fives, strict=True)]
    readj, mixed = costs("fluctuation", "readj", 5), costs("fluctuation", "mixed", 5)
    return (
        Claim(
            "Mixed migrates less than MinTable",
            "section 5, figures 8.b, 9.b, 10.b",
            f"in {sum(cheaper)} of {len(cheaper)} cases",
            sum(cheaper) >= 0.9 * len(cheaper),
        ),
        Claim(
            "a smaller tolerance costs more migration",
            "section 5, figure 9.b",
            ", ".join(f"{each:.1f} %" for each in by_theta) + f" at theta_max = {', '.join(map(str, _THETAS))}",
            by_theta[0] > by_theta[-1] and by_theta[1] >= by_theta[4],
        ),
        Claim(
            "a longer window makes migration cheaper",
            "section 5, figures 8.b, 9.b; appendix C, figure 19",
            f"w = 5 cheaper than w = 1 in {sum(longer)} of {len(longer)} cases",
            sum(longer) >= 0.9 * len(longer),
        ),
        Claim(
            "Mixed's migration cost grows slower with the fluctuation than Readj's",
            "section 5, figure 12.b",
            f"from f = 0.2 to 2: Mixed {mixed[0]:.1f} to {mixed[-1]:.1f} %, Readj {readj[0]:.1f} to {readj[-1]:.1f} %",
            mixed[-1] - mixed[0] < readj[-1] - readj[0],
        ),
    )


MIGRATION = Experiment(
    name="mixed-migration",
    title="migration cost over tolerance, instances, keys and fluctuation",
    source=f"{PAPER}, section 5, figures 8.b, 9.b, 10.b and 12.b",
    setup=(
        f"{SETUP} Migration cost is the moved part of the state of the last w intervals. Readj has its default sigma."
    ),
    differences=(
        "The figures' values are not printed but for the factor of three. The paper picks the best sigma for Readj "
        "in every case. The paper does not say how keys swap their frequencies, and the cost depends on it."
    ),
    events=5_000_000,
    run=_migration,
)
