"""The page of the battery: what was promised and missed, and all figures."""

from collections.abc import Sequence
from statistics import fmean

from keygrouping_experiments.battery import COST, EFFICIENCY, LAMBDA, LEAST, RIVALS, Scope
from keygrouping_experiments.battery_rules import MARGIN, Finding, findings
from keygrouping_experiments.markdown import table
from keygrouping_experiments.model import Row
from keygrouping_experiments.rows import values

_HEAD = """# battery: level-fill on the streams that people have

{streams} streams, {intervals} intervals of {interval:,} events each (small ones where the name says so), {seeds} \
seeds, events dealt to the sources by `{deal}`. W workers and S sources, which share one plan per interval. λ is the \
mean over all intervals but the first quarter, so are the replication factor (pairs of key and worker per key in a \
window) and min/avg, the least worker's load over the average one. Efficiency is what was done over what the workers \
could have done until the last one was ready, with queues of 1,000 events. All of them come from the events and their \
workers alone, by code that shares nothing with the groupings. All rivals get the same events.

Worse means: by more than {margin:.0%} on average, and beyond chance by Student's paired test at 1 %.
"""


def page(scope: Scope, rows: Sequence[Row]) -> str:
    """The page as Markdown."""
    found = findings(rows)
    head = _HEAD.format(
        streams=len({row["stream"] for row in rows}),
        intervals=scope.intervals,
        interval=scope.interval,
        seeds=len(scope.seeds),
        deal=scope.deal.value,
        margin=MARGIN,
    )
    parts = [head, _promises(found), "## Missed\n", _missed(found), "## All figures\n", _figures(rows)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts) + "\nBy seed: [battery.csv](battery.csv).\n"


def _promises(found: Sequence[Finding]) -> str:
    names = dict.fromkeys(each.promise for each in found)
    lines = []
    for name in names:
        judged = [each for each in found if each.promise == name]
        worst = max(judged, key=lambda each: each.excess)
        kept = sum(each.excess <= 0 for each in judged)
        lines.append([name, f"{kept} of {len(judged)}", _case(worst) if worst.excess > 0 else "-"])
    return table(["promise", "kept", "missed most by"], lines)


def _missed(found: Sequence[Finding]) -> str:
    missed = [each for each in found if each.excess > 0]
    return table(
        ["promise", "stream", "W", "S", "measured"],
        ([each.promise, each.stream, str(each.workers), str(each.sources), each.measured] for each in missed),
    )


def _case(finding: Finding) -> str:
    return f"{finding.stream}, W={finding.workers}, S={finding.sources}: {finding.measured}"


def _figures(rows: Sequence[Row]) -> str:
    """A row for each case, with a column for each rival: λ, cost, min/avg, efficiency."""
    cases = dict.fromkeys((str(row["stream"]), int(row["W"]), int(row["S"])) for row in rows)
    rivals = [name for name in RIVALS if any(row["grouping"] == name for row in rows)]
    by_case: dict[tuple[str, int, int], list[Row]] = {case: [] for case in cases}
    for row in rows:
        by_case[str(row["stream"]), int(row["W"]), int(row["S"])].append(row)
    lines = (
        [stream, str(workers), str(sources), *(_cell(mine, rival) for rival in rivals)]
        for (stream, workers, sources), mine in by_case.items()
    )
    return "λ, cost, min/avg, efficiency:\n\n" + table(["stream", "W", "S", *rivals], lines)


def _cell(rows: Sequence[Row], grouping: str) -> str:
    figures = (values(rows, column, grouping=grouping) for column in (LAMBDA, COST, LEAST, EFFICIENCY))
    return ", ".join(f"{fmean(each):.3f}" for each in figures)
