"""Partial Key Grouping with several sources: how often they agree with an oracle, and sources that get uneven parts.

Source: "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams" (2015), section 6.2, Q2 and Q3,
figures 6 and 8.
"""

from collections.abc import Sequence

import numpy as np
from keygrouping.simulate import create_sources
from keygrouping.simulate.sources import Sources
from keygrouping.workload import Workload

from keygrouping_experiments.lab import Lab
from keygrouping_experiments.model import Claim, Experiment, Line, Outcome, Panel, Row
from keygrouping_experiments.pkg import COLLIDING, PAPER, TIMELESS, stream_of
from keygrouping_experiments.published import compare
from keygrouping_experiments.rows import line, value, values
from keygrouping_experiments.streams import Unsourced

_COUNTS = (5, 10, 15, 20)
_EXPONENTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
_FEW = 5


def _agreement(lab: Lab) -> Outcome:
    cases = [
        *(("WP", 0.0, 5, workers) for workers in (5, 10)),
        *(("ZF", z, sources, _FEW) for sources in _COUNTS for z in _EXPONENTS),
    ]
    rows: list[Row] = []
    for data, z, sources, workers in lab.each(cases):
        stream = stream_of(lab, data) if data == "WP" else lab.workload("zipf", settings={"z": z, "keys": 10_000})
        same = _same_decisions(stream, sources, workers)
        row: Row = {"data": data, "z": z, "sources": sources, "workers": workers, "agreement": same}
        rows.append({**row, "Jaccard overlap": same / (2 - same), "disagreement (%)": 100 * (1 - same)})
    ours = {
        (f"WP, S=5, W={workers}", "agreement with the oracle (Jaccard)"): value(
            rows, "Jaccard overlap", data="WP", workers=workers
        )
        for workers in (5, 10)
    }
    lines = tuple(
        line(rows, f"{sources} sources", "z", "disagreement (%)", sources=sources, data="ZF") for sources in _COUNTS
    )
    panel = Panel(f"Zipf, 10 k keys, W={_FEW}", "z", "decisions unlike the oracle's (%)", lines)
    return Outcome(tuple(rows), (panel,), compare("pkg-agreement", ours), _agreement_claims(lines))


def _same_decisions(stream: Workload, sources: int, workers: int) -> float:
    """The part of the events that several sources send where a single one, which knows all loads, sends them."""
    local = Sources(create_sources("pkg", workers, sources, COLLIDING), stream.table)
    oracle = Sources(create_sources("pkg", workers, 1, COLLIDING), stream.table)
    same = events = 0
    for chunk in stream.chunks():
        ours, theirs = (each.route(chunk.keys, None, None, events, 0.0) for each in (local, oracle))
        same += int(np.count_nonzero(ours == theirs))
        events += len(chunk)
    return same / events if events else 1.0


def _agreement_claims(lines: Sequence[Line]) -> tuple[Claim, ...]:
    ends = ", ".join(f"{each.y[0]:.0f} to {each.y[-1]:.0f} %" for each in lines)
    spread = max(max(ys) - min(ys) for ys in zip(*(each.y for each in lines), strict=True))
    return (
        Claim(
            "skew makes sources decide more like the oracle",
            "section 6.2, Q2, figure 6",
            f"disagreement from z = 0.1 to 1.2: {ends}",
            all(each.y[-1] < each.y[0] for each in lines),
        ),
        Claim(
            "regardless of how many sources there are",
            "section 6.2, Q2, figure 6",
            f"at most {spread:.0f} percentage points between 5 and 20 sources",
            spread < 10,
        ),
    )


AGREEMENT = Experiment(
    name="pkg-agreement",
    title="decisions with estimated and with known loads",
    source=f"{PAPER}, section 6.2, Q2, figure 6",
    setup="`pkg` with several sources against one that knows all loads, event by event.",
    differences=(
        "The published 47 % is a Jaccard overlap: with a part a of equal decisions it is a / (2 - a). The numbers of "
        "sources and workers that it is for are not stated, so it is compared with two that are in use there."
    ),
    events=5_000_000,
    run=_agreement,
)


def _skewed_sources(lab: Lab) -> Outcome:
    stream = lab.workload("livejournal")
    splits = {"uniform": Unsourced(stream), "skewed": stream}
    cases = [(split, sources, workers) for split in splits for sources in _COUNTS for workers in (5, 10, 50, 100)]
    rows: list[Row] = []
    for split, sources, workers in lab.each(cases):
        result = lab.run(splits[split], create_sources("pkg", workers, sources, COLLIDING), TIMELESS)
        imbalance = result.average_imbalance_fraction
        rows.append({"split": split, "sources": sources, "workers": workers, "average imbalance": imbalance})
    panels = tuple(
        Panel(
            f"{split} sources",
            "workers",
            "average imbalance",
            tuple(
                line(rows, f"{sources} sources", "workers", "average imbalance", split=split, sources=sources)
                for sources in _COUNTS
            ),
            log_x=True,
            log_y=True,
        )
        for split in splits
    )
    return Outcome(tuple(rows), panels, claims=_skewed_claims(rows))


def _skewed_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    uniform, skewed = (values(rows, "average imbalance", split=split) for split in ("uniform", "skewed"))
    ratios = [theirs / ours for ours, theirs in zip(uniform, skewed, strict=True)]
    grows = (
        value(rows, "average imbalance", split="skewed", sources=5, workers=5),
        value(rows, "average imbalance", split="skewed", sources=20, workers=100),
    )
    return (
        Claim(
            "on average the imbalance with skewed sources is similar to that with uniform ones",
            "section 6.2, Q3, figure 8",
            f"skewed over uniform: {min(ratios):.2f} to {max(ratios):.2f}",
            max(ratios) < 2 and min(ratios) > 0.5,
        ),
        Claim(
            "it grows slightly with sources and workers, but stays very low",
            "section 6.2, Q3, figure 8",
            f"{grows[0]:.1e} with 5 sources and workers, {grows[1]:.1e} with 20 sources and 100 workers; at most "
            f"{max(skewed):.1e}",
            grows[0] < grows[1] and max(skewed) < 1e-2,
        ),
    )


SKEWED = Experiment(
    name="pkg-sources",
    title="graph edges with uniform and skewed sources",
    source=f"{PAPER}, section 6.2, Q3, figure 8",
    setup=(
        "Edges with LiveJournal's statistics; the key is the vertex that an edge goes to. Uniform: sources take "
        "turns; skewed: edges are keyed on the sources by the vertex that they come from, so that each gets an "
        "uneven part."
    ),
    differences=(
        "The figure's values are not printed. The graph is generated: out-degrees are as skewed as in-degrees (0.29 "
        "% for the first vertex), which is an assumption, and both ends are drawn independently. The published "
        "stream has 69 M edges."
    ),
    events=10_000_000,
    run=_skewed_sources,
)
