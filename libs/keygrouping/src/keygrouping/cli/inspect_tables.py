"""An inspection as tables."""

import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from keygrouping.inspection.advice import EVEN, advise, warnings
from keygrouping.inspection.report import Report, SourceReport
from keygrouping.inspection.span import Span, joined, moment
from keygrouping.inspection.stages import advise_stages
from keygrouping.printable import printable

_WIDTH = 110
_NAME = 40
_PARTITIONS = 16
_POINTS = 12
_BAR = 20


def show(report: Report, *, again: bool) -> None:
    """Print a report to stdout; `again`: on a terminal it takes the place of the one before."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDTH)
    elif again:
        console.clear()
    console.print(printable(headline(report)), markup=False)
    console.print(_keys(report))
    if report.partitions:
        console.print(_partitions(report))
    console.print(_outcomes(report))
    if len(report.trend) > 1:
        console.print(_trend(report))
    console.print("[bold]recommended[/bold]")
    for advice in advise(report):
        console.print(f"  [bold]W = {advice.workers}: {advice.grouping}[/bold]")
        console.print(Padding(escape(printable(advice.reason)), (0, 0, 0, 4)))
        for line in advice.lines:
            console.print(f"    {line}", markup=False, soft_wrap=True)
    for stages in advise_stages(report):
        console.print(f"  [bold]W = {stages.workers}: to route or not[/bold]")
        console.print(Padding(escape(stages.text), (0, 0, 0, 4)))
    for warning in warnings(report):
        console.print(Padding(escape(printable(f"note: {warning}")), (0, 0, 0, 2)))


def headline(report: Report) -> str:
    """What was read, in a sentence."""
    source = report.source
    found = f"{source.kind} {source.name}: {source.events:,} events{_origin(source)}"
    if source.weight != source.events:
        found += f", weight {source.weight:,.0f}"
    found += f", {report.keys:,} keys"
    if source.span is not None:
        found += f", {moment(source.span.earliest_ms)} to {moment(source.span.latest_ms)}"
    return found


def clock(report: Report) -> str | None:
    """How the times of the trend are best written: without the date if it is one day; None where none are known."""
    span = joined(*(point.span for point in report.trend))
    if span is None:
        return None
    first, last = (moment(ms, "%Y-%m-%d") for ms in span)
    return "%H:%M:%S" if first == last else "%Y-%m-%d %H:%M"


def ends(span: Span | None, layout: str) -> tuple[str, str]:
    """Earliest and latest time as texts."""
    return (moment(span.earliest_ms, layout), moment(span.latest_ms, layout)) if span else ("-", "-")


def _origin(source: SourceReport) -> str:
    """Which of the events were there, and which came since."""
    sample = source.sample
    found = []
    if sample is not None and sample.size:
        found.append(f"{source.events - source.followed:,} of a sample of {sample.size:,} of {sample.of:,} offsets")
    elif source.followed < source.events and source.followed:
        found.append(f"{source.events - source.followed:,} that were there")
    if source.followed:
        found.append(f"{source.followed:,} that came since")
    return f" ({', '.join(found)})" if found else ""


def _name(text: str) -> str:
    shown = printable(text)
    return escape(shown if len(shown) <= _NAME else shown[: _NAME - 1] + "…")


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, min_width=min(len(title), _WIDTH - 2))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _keys(report: Report) -> Table:
    table = _table("heaviest keys", "key", "share", "at least", "at most", "first third", "last third")
    table.add_column("")
    for key in report.top:
        parts = (key.share, key.low, key.high, key.first_third, key.last_third)
        figures = ["-" if part is None else f"{part:.2%}" for part in parts]
        table.add_row(_name(key.name), *figures, "█" * round(_BAR * key.share / max(report.top[0].share, 1e-12)))
    return table


def _partitions(report: Report) -> Table:
    title = f"partitions of the topic: λ {report.partition_lambda:.3f}, STD_DEV {report.partition_std_dev:.3f}"
    shown = sorted(report.partitions, key=lambda each: -each.weight)[:_PARTITIONS]
    if len(shown) < len(report.partitions):
        title += f"; the fullest {len(shown)} of {len(report.partitions):,}"
    table = _table(title, "partition", "events", "weight", "share")
    total = sum(each.weight for each in report.partitions)
    for each in shown:
        share = f"{each.weight / total:.2%}" if total else "-"
        table.add_row(str(each.partition), f"{each.events:,}", f"{each.weight:,.0f}", share)
    return table


def _outcomes(report: Report) -> Table:
    title = f"what each grouping gives: average of intervals of {report.source.interval:,} events, and the whole range"
    names = ("W", "λ", "STD_DEV", "workers per key", "works like", "λ, whole", "workers per key, whole")
    table = _table(title, "grouping", *names)
    last = None
    for each in report.outcomes:
        if last not in (None, each.workers):
            table.add_section()
        last = each.workers
        even = "green" if each.lambda_ <= EVEN else "red"
        table.add_row(
            each.label,
            str(each.workers),
            f"[{even}]{each.lambda_:.3f}[/{even}]",
            f"{each.figures.std_dev:.3f}",
            f"{each.dist_cost:.3f}",
            f"{each.speed_up:.1f} workers",
            f"{each.run.lambda_:.3f}",
            f"{each.run.dist_cost:.3f}",
        )
    return table


def _trend(report: Report) -> Table:
    chosen = {advice.workers: (advice.grouping, advice.settings) for advice in advise(report)}
    columns = [
        (number, each)
        for number, each in enumerate(report.outcomes)
        if each.workers == max(chosen)
        and (each.grouping == "key" or (each.grouping, each.settings) == chosen[each.workers])
    ]
    names = [f"λ of {each.label}, W = {each.workers}" for _, each in columns]
    layout = clock(report)
    times = ("earliest", "latest") if layout else ()
    title = "trend; times are UTC" if layout else "trend"
    table = _table(title, "until event", *times, "heaviest key", "share", *names)
    for column in table.columns[: 1 + len(times)]:
        column.no_wrap = True
    step = -(-len(report.trend) // _POINTS)
    for point in report.trend[step - 1 :: step]:
        figures = [f"{point.lambdas[number]:.3f}" for number, _ in columns]
        shown = ends(point.span, layout) if layout else ()
        table.add_row(f"{point.until:,}", *shown, _name(point.heaviest or "-"), f"{point.share:.2%}", *figures)
    return table
