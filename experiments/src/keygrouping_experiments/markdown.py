"""An experiment and its outcome as Markdown."""

import math
from collections.abc import Iterable, Sequence

from keygrouping.simulate import Deal

from keygrouping_experiments.lab import Lab
from keygrouping_experiments.model import Claim, Comparison, Experiment, Outcome

_DEALT = {Deal.KEY: "by key", Deal.ROUND_ROBIN: "round robin"}


def page(experiment: Experiment, outcome: Outcome, lab: Lab) -> str:
    """The page of an experiment: what was run, the picture, published figures beside ours, and why they differ."""
    parts = [
        f"# {experiment.name}: {experiment.title}",
        f"Source: {experiment.source}.",
        f"{experiment.setup} Run with {lab.events:,} events per stream, seed {lab.seed}, "
        f"dealt to several sources {_DEALT[lab.deal]}.",
        f"![{experiment.title}]({experiment.name}.png)",
    ]
    if outcome.comparisons:
        parts.append(_comparisons(outcome.comparisons))
    if outcome.claims:
        parts.append(_claims(outcome.claims))
    parts.append(f"**Differences.** {experiment.differences}")
    parts.append(f"All figures: [{experiment.name}.csv]({experiment.name}.csv).")
    return "\n\n".join(parts) + "\n"


def number(value: float) -> str:
    """A figure for people: four significant digits, or all digits before the point."""
    if math.isnan(value):
        return "-"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def _comparisons(comparisons: Sequence[Comparison]) -> str:
    sources = {comparison.source for comparison in comparisons}
    shown = len(sources) > 1
    head = ["case", "measure", "published", "ours", "ours / published", *(["where published"] if shown else [])]
    rows = (
        [
            comparison.case,
            comparison.measure,
            number(comparison.published),
            number(comparison.ours),
            number(comparison.ratio),
            *([comparison.source] if shown else []),
        ]
        for comparison in comparisons
    )
    text = table(head, rows)
    return text if shown else f"{text}\n\nPublished figures: {sources.pop()}."


def _claims(claims: Sequence[Claim]) -> str:
    rows = ([claim.what, claim.source, claim.measured, "yes" if claim.holds else "**no**"] for claim in claims)
    return table(["the paper says", "where", "here", "holds"], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
