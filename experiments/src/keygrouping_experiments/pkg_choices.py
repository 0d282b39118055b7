"""Partial Key Grouping under growing skew, with more choices, and its cost in counters.

Source: "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams" (2015), section 6.2, Q3 to Q5, figures
7, 9 and 10.
"""

from collections.abc import Sequence

from keygrouping.simulate import create_sources
from keygrouping.workload.popularity import harmonic

from keygrouping_experiments.lab import Lab
from keygrouping_experiments.model import Claim, Experiment, Line, Outcome, Panel, Row
from keygrouping_experiments.pkg import COLLIDING, PAPER, TIMELESS, stream_of
from keygrouping_experiments.published import compare
from keygrouping_experiments.rows import line, value, values

_WORKERS = (5, 10, 50, 100)
_KEYS = (1_000, 10_000, 100_000, 1_000_000)
_EXPONENTS = tuple(round(0.2 * step, 1) for step in range(1, 11))
_BALANCED = 1e-3


def _skew(lab: Lab) -> Outcome:
    cases = [(keys, z, workers) for keys in _KEYS for z in _EXPONENTS for workers in _WORKERS]
    rows: list[Row] = []
    for keys, z, workers in lab.each(cases):
        stream = lab.workload("zipf", settings={"z": z, "keys": keys})
        result = lab.run(stream, create_sources("pkg", workers, 1, COLLIDING), TIMELESS)
        row = {"keys": keys, "z": z, "workers": workers, "share of the top key": 1 / harmonic(keys, z)}
        rows.append({**row, "average imbalance": result.average_imbalance_fraction})
    panels = tuple(
        Panel(
            f"{keys:,} keys",
            "z",
            "average imbalance",
            tuple(line(rows, f"W={each}", "z", "average imbalance", keys=keys, workers=each) for each in _WORKERS),
            log_y=True,
        )
        for keys in _KEYS
    )
    return Outcome(tuple(rows), panels, claims=_skew_claims(rows))


def _skew_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    above = [row for row in rows if float(row["share of the top key"]) > 2 / float(row["workers"])]
    imbalanced = sum(float(row["average imbalance"]) > _BALANCED for row in above)
    lasts = {
        (keys, workers): max(
            (z for z in _EXPONENTS if value(rows, "average imbalance", keys=keys, workers=workers, z=z) <= _BALANCED),
            default=0.0,
        )
        for keys in _KEYS
        for workers in _WORKERS
    }
    few = [lasts[keys, 5] for keys in _KEYS[1:]]
    spread = max(
        max(each) - min(each) for workers in _WORKERS for each in [[lasts[keys, workers] for keys in _KEYS[1:]]]
    )
    return (
        Claim(
            "balance is lost where the top key has more than 2 / W",
            "section 6.2, Q3, figure 7; section 5.1",
            f"{imbalanced} of {len(above)} cases with p1 > 2 / W are imbalanced (above {_BALANCED})",
            imbalanced == len(above),
        ),
        Claim(
            "for Zipf the threshold is z about 1.2",
            "section 6.2, Q3, figure 7",
            "last balanced z with 5 workers: " + ", ".join(f"{z}" for z in few) + " (10 k to 1 M keys)",
            all(1.0 <= z <= 1.4 for z in few),
        ),
        Claim(
            "the trend is the same for any number of keys",
            "section 6.2, Q3, figure 7",
            f"last balanced z differs by {spread:.1f} at most between 10 k, 100 k and 1 M keys",
            spread <= 0.2 + 1e-9,
        ),
        Claim(
            "more workers lose balance at less skew",
            "section 6.2, Q3, figure 7",
            ", ".join(f"W={workers}: {lasts[10_000, workers]}" for workers in _WORKERS) + " (10 k keys)",
            all(lasts[10_000, fewer] >= lasts[10_000, more] for fewer, more in ((5, 10), (10, 50), (50, 100))),
        ),
    )


SKEW = Experiment(
    name="pkg-skew",
    title="imbalance over the skew",
    source=f"{PAPER}, section 6.2, Q3, figure 7",
    setup="`pkg` with known loads on Zipf streams of 1 k to 1 M keys.",
    differences=(
        "The figure's values are not printed; exponents are 0.2 apart here, and 2 M events per stream would do."
    ),
    events=2_000_000,
    run=_skew,
)

_CHOICES = (2, 3, 4, 5, 7, 9, 12, 16, 20, 30, 40)


def _choices(lab: Lab) -> Outcome:
    stream = lab.workload("zipf", settings={"z": 1.2, "keys": 1_000_000})
    cases = [(workers, choices) for workers in (5, 10, 40, 50, 100) for choices in _CHOICES if choices <= workers]
    rows: list[Row] = []
    for workers, choices in lab.each(cases):
        result = lab.run(stream, create_sources("pkg", workers, 1, {**COLLIDING, "choices": choices}), TIMELESS)
        row = {"workers": workers, "choices": choices, "average imbalance": result.average_imbalance_fraction}
        rows.append({**row, "DIST_COST": result.measures.dist_cost})
    lines = tuple(
        line(rows, f"W={each}", "choices", "average imbalance", workers=each) for each in (5, 10, 40, 50, 100)
    )
    panel = Panel("Zipf 1.2, 1 M keys", "choices", "average imbalance", lines, log_x=True, log_y=True)
    return Outcome(tuple(rows), (panel,), claims=_choices_claims(rows))


def _choices_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    least = {
        workers: next(
            (
                row["choices"]
                for row in rows
                if row["workers"] == workers and float(row["average imbalance"]) <= _BALANCED
            ),
            None,
        )
        for workers in (5, 10, 40, 50, 100)
    }
    many = [values(rows, "average imbalance", workers=workers) for workers in (50, 100)]
    return (
        Claim(
            "5 workers are balanced with 4 choices instead of 2",
            "section 6.2, Q4, figure 9",
            f"{value(rows, 'average imbalance', workers=5, choices=2):.1e} with 2, "
            f"{value(rows, 'average imbalance', workers=5, choices=4):.1e} with 4; balanced from {least[5]} on",
            value(rows, "average imbalance", workers=5, choices=4)
            <= _BALANCED
            < value(rows, "average imbalance", workers=5, choices=2),
        ),
        Claim(
            "40 workers are balanced with 9 choices",
            "section 6.2, Q4, figure 9",
            f"{value(rows, 'average imbalance', workers=40, choices=9):.1e} with 9; balanced from {least[40]} on",
            value(rows, "average imbalance", workers=40, choices=9) <= _BALANCED,
        ),
        Claim(
            "50 and 100 workers need a few tens of choices",
            "section 6.2, Q4, figure 9",
            f"balanced from {least[50]} and {least[100]} on; with the most choices {many[0][-1]:.1e} and "
            f"{many[1][-1]:.1e}",
            all(least[workers] is not None and 9 < int(least[workers] or 0) <= 40 for workers in (50, 100)),
        ),
    )


CHOICES = Experiment(
    name="pkg-choices",
    title="imbalance over the number of choices",
    source=f"{PAPER}, section 6.2, Q4, figure 9",
    setup="`pkg` with 2 to 40 hashes per key, which may collide, on Zipf 1.2 with 1 M keys.",
    differences=(
        "The top key has 17 to 18 % of this stream, so it needs at least its share times W workers: 9 of 50. Hashes "
        "that collide leave fewer choices, the more so the fewer workers there are; which keys lose choices is "
        "chance."
    ),
    events=5_000_000,
    run=_choices,
)


def _memory(lab: Lab) -> Outcome:
    stream = stream_of(lab, "WP")
    rows: list[Row] = []
    for label, name in lab.each([("KG", "key"), ("PKG", "pkg"), ("SG", "shuffle")]):
        result = lab.run(stream, create_sources(name, 8, 8, COLLIDING if name == "pkg" else {}), TIMELESS)
        rows.append({"grouping": label, "counters": result.measures.pairs, "keys": result.measures.keys})
    counters = {str(row["grouping"]): float(row["counters"]) for row in rows}
    ours = {(label, "counters"): count for label, count in counters.items()}
    ours |= {(label, "counters relative to KG"): count / counters["KG"] for label, count in counters.items()}
    line_ = Line("counters", (0, 1, 2), tuple(count / 1e6 for count in counters.values()))
    panel = Panel("WP, 8 workers", "", "million counters", (line_,), categories=tuple(counters))
    return Outcome(tuple(rows), (panel,), compare("pkg-memory", ours))


MEMORY = Experiment(
    name="pkg-memory",
    title="counters that a word count needs",
    source=f"{PAPER}, section 6.2, Q5",
    setup="Distinct pairs of key and worker on WP, with 8 sources and 8 workers.",
    differences=(
        "The paper's KG had 10 workers, which changes nothing in its counters. How often keys recur is a property of "
        "the data: the generator has the published messages, keys and top share, and Zipf's law in between."
    ),
    events=22_000_000,
    run=_memory,
)
