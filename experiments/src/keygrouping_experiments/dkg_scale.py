"""Dynamic Key Grouping: its figures over the numbers of workers and sources.

Source: Dalabasmaz and Can, "Dynamic Key Grouping: A Load Balancing Algorithm for Distributed Stream Processing Engines"
(IEEE TPDS 2020), sections 5.5 and 5.6.
"""

from collections.abc import Sequence

from keygrouping.grouping.dkg import Thresholds

from keygrouping_experiments.dkg import (
    COST,
    FEW_WORKERS,
    GROUPINGS,
    PAPER,
    RATE,
    SETUP,
    STD_DEV,
    TIME,
    TIMING,
    measure,
    panels,
)
from keygrouping_experiments.lab import Lab
from keygrouping_experiments.model import Claim, Experiment, Outcome, Row
from keygrouping_experiments.published import compare
from keygrouping_experiments.rows import value, values


def _workers(lab: Lab) -> Outcome:
    stream = lab.workload("twitter-election")
    cases = [(workers, label) for workers in (10, 50, 100) for label in GROUPINGS]
    rows = [measure(lab, stream, label, workers) for workers, label in lab.each(cases)]
    ours: dict[tuple[str, str], float] = {}
    for workers in (5, 10, 20, 50, 100):
        thresholds = Thresholds.of(workers)
        ours[f"W={workers}", "threshold to scale out (%)"] = 100 * thresholds.scale_up
        ours[f"W={workers}", "most workers of a key"] = thresholds.max_width
    return Outcome(tuple(rows), panels(rows, "workers", "workers"), compare("dkg-workers", ours), _workers_claims(rows))


def _workers_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    times = {label: values(rows, TIME, grouping=label) for label in GROUPINGS}
    deviations = {label: values(rows, STD_DEV, grouping=label) for label in GROUPINGS}
    costs = {label: values(rows, COST, grouping=label) for label in GROUPINGS}
    change = {label: times[label][-1] / times[label][0] for label in GROUPINGS}
    ordered = all(times["SG"][i] < times["DKG"][i] < times["PKG"][i] < times["KG"][i] for i in range(3))
    return (
        Claim(
            "more workers hardly shorten the run (KG, PKG)",
            "section 5.5, figure 12.a",
            f"time with 100 over time with 10 workers: KG {change['KG']:.2f}, PKG {change['PKG']:.2f}",
            min(change["KG"], change["PKG"]) > 0.9,
        ),
        Claim(
            "DKG's run gets slightly longer with more workers, but stays shorter than PKG's",
            "section 5.5, figure 12.a",
            f"DKG {change['DKG']:.2f}; with 100 workers {times['DKG'][-1]:,.0f} s, PKG {times['PKG'][-1]:,.0f} s",
            change["DKG"] > 1 and times["DKG"][-1] < times["PKG"][-1],
        ),
        Claim(
            "KG takes longest, SG shortest, DKG less than PKG",
            "section 5.5, figure 12.a",
            "; ".join(f"{label} {times[label][0]:,.0f} s" for label in GROUPINGS) + " with 10 workers",
            ordered,
        ),
        Claim(
            "STD_DEV falls with more workers for all",
            "section 5.5, figure 12.b",
            ", ".join(
                f"{label} {deviations[label][0]:.2f} to {deviations[label][-1]:.2f}" for label in ("KG", "PKG", "DKG")
            ),
            all(deviations[label][0] > deviations[label][-1] for label in ("KG", "PKG", "DKG")),
        ),
        Claim(
            "SG's DIST_COST grows with the workers, that of the others hardly",
            "section 5.5, figure 12.c",
            ", ".join(f"{label} {costs[label][0]:.2f} to {costs[label][-1]:.2f}" for label in GROUPINGS),
            all(
                costs[label][-1] / costs[label][0] < 1.25 < costs["SG"][-1] / costs["SG"][0]
                for label in ("KG", "PKG", "DKG")
            ),
        ),
    )


WORKERS = Experiment(
    name="dkg-workers",
    title="figures over the number of workers",
    source=f"{PAPER}, section 5.5, figure 12, and section 4.3, table 1",
    setup=(
        f"{SETUP} 10 sources; the stream of the table with a key of 68 %. Table 1 is compared with the thresholds "
        "of dkg."
    ),
    differences=(
        f"{TIMING} SG's throughput grows with the workers here, as nothing else limits it; in the paper sources and "
        "network did. So the others fall behind it further than in figure 12."
    ),
    events=5_319_600,
    run=_workers,
)


def _sources(lab: Lab) -> Outcome:
    stream = lab.workload("twitter-election")
    cases = [(sources, label) for sources in (5, 10, 15, 20) for label in GROUPINGS]
    rows = [measure(lab, stream, label, FEW_WORKERS, sources) for sources, label in lab.each(cases)]
    spreads = {label: max(rates) / min(rates) for label in GROUPINGS for rates in [values(rows, RATE, grouping=label)]}
    kept = all(
        value(rows, RATE, grouping="DKG", sources=sources) > value(rows, RATE, grouping="PKG", sources=sources)
        for sources in (5, 10, 15, 20)
    )
    claims = (
        Claim(
            "the number of sources has no effect",
            "section 5.6, figure 13",
            "largest over smallest throughput: " + ", ".join(f"{label} {spreads[label]:.2f}" for label in GROUPINGS),
            max(spreads[label] for label in ("SG", "KG", "PKG", "DKG")) < 1.1,
        ),
        Claim(
            "DKG has more throughput than PKG and KG throughout",
            "section 5.6, figure 13.d",
            ", ".join(f"{rate:,.0f}" for rate in values(rows, RATE, grouping="DKG")) + " events/s",
            kept,
        ),
    )
    return Outcome(tuple(rows), panels(rows, "sources", "sources"), claims=claims)


SOURCES = Experiment(
    name="dkg-sources",
    title="figures over the number of sources",
    source=f"{PAPER}, section 5.6, figure 13",
    setup=f"{SETUP} 10 workers; the stream of the table with a key of 68 %.",
    differences=(
        "In the public code the number of spouts changes nothing in the routing, as there are always 10 splitters "
        f"behind them. Here it is the number of groupings that decide by what each of them has seen. {TIMING}"
    ),
    events=5_319_600,
    run=_sources,
)
