"""An inspection as a page: one file with its style and diagrams, without scripts."""

from collections.abc import Sequence
from html import escape

from keygrouping.cli.drawing import Line, diagram
from keygrouping.inspection.advice import EVEN, Advice, advise, warnings
from keygrouping.inspection.report import HotKeyReport, Outcome, Report
from keygrouping.inspection.stages import advise_stages

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --dim: #5b6672; --paper: #fff; --rule: #d5dbe1; --bar: #2f6fb0;
  --good: #1a7f4b; --bad: #b3362b; --c0: #b3362b; --c1: #2f6fb0; --c2: #1a7f4b; --c3: #8a5a00; --c4: #7a3fa0;
  --c5: #00757f; --c6: #5b6672; --c7: #a8327d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --dim: #9aa6b2; --paper: #14191f; --rule: #333c46;
  --bar: #5b9bd8; --good: #55c08a; --bad: #ef7d72; --c0: #ef7d72; --c1: #6eabe6; --c2: #55c08a; --c3: #d9a441;
  --c4: #c08be0; --c5: #4fc3cd; --c6: #9aa6b2; --c7: #e57fbd; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
.dim { color: var(--dim); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .25rem .6rem; text-align: right;
  border-bottom: 1px solid var(--rule); white-space: nowrap; } th { color: var(--dim); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
td.key { font-family: ui-monospace, monospace; max-width: 24rem; overflow: hidden; text-overflow: ellipsis; }
tr.next td { border-top: 2px solid var(--dim); } .good { color: var(--good); } .bad { color: var(--bad); }
td.bar { width: 30%; } .bar i { display: block; height: .8rem; background: var(--bar); border-radius: 2px; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem 2rem; }
.card { border: 1px solid var(--rule); border-left: 4px solid var(--good); padding: .6rem 1rem; margin: .6rem 0; }
pre { margin: .4rem 0 0; overflow-x: auto; } figure { margin: 0; } figcaption { font-weight: 600; margin-top: 1rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--dim); font-size: 12px; } .grid { stroke: var(--rule); }
polyline { fill: none; stroke-width: 2; } .legend { list-style: none; margin: 0; padding: 0; font-size: 13px; }
.legend li { display: inline-block; margin-right: 1rem; } .legend li::before { content: ""; display: inline-block;
  width: 1.2em; height: 3px; margin-right: .4em; vertical-align: middle; background: currentColor; }
"""
_COLOURS = 8
_MOST_LINES = 8


def page(report: Report) -> str:
    """The page as text."""
    name = escape(report.source.name)
    colours = "".join(
        f"polyline.c{n}{{stroke:var(--c{n})}}circle.c{n}{{fill:var(--c{n})}}li.c{n}{{color:var(--c{n})}}"
        for n in range(_COLOURS)
    )
    body = "".join(
        (
            f"<h1>{escape(report.source.kind)} {name}</h1>",
            _summary(report),
            _advice(report),
            _keys(report),
            _outcomes(report),
            _trend(report),
            _partitions(report),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>keygrouping inspect: {name}</title>'
        f"<style>{_STYLE}{colours}</style></head><body>{body}</body></html>\n"
    )


def _summary(report: Report) -> str:
    from keygrouping.cli.inspect_tables import headline

    notes = "".join(f"<li>{escape(warning)}</li>" for warning in warnings(report))
    return f'<p class="dim">{escape(headline(report))}</p>' + (f"<ul>{notes}</ul>" if notes else "")


def _advice(report: Report) -> str:
    cards = "".join(_card(advice) for advice in advise(report))
    stages = "".join(f"<p>{each.workers} workers: {escape(each.text)}</p>" for each in advise_stages(report))
    return f"<h2>Recommended</h2>{cards}{stages}"


def _card(advice: Advice) -> str:
    settings = "\n".join(advice.lines)
    return (
        f'<div class="card"><b>{advice.workers} workers: {escape(advice.grouping)}</b><br>{escape(advice.reason)}'
        f"<pre>{escape(settings)}</pre></div>"
    )


def _keys(report: Report) -> str:
    most = max((key.share for key in report.top), default=0.0) or 1.0
    rows = "".join(_key(key, most) for key in report.top)
    return (
        '<h2>Heaviest keys</h2><p class="dim">Shares of all weight read. The true share lies between the bounds; the '
        'thirds are estimates.</p><div class="scroll"><table><tr><th>key<th>share<th>at least<th>at most'
        f"<th>first third<th>last third<th></tr>{rows}</table></div>"
    )


def _key(key: HotKeyReport, most: float) -> str:
    parts = (key.share, key.low, key.high, key.first_third, key.last_third)
    cells = "".join("<td>-</td>" if part is None else f"<td>{part:.2%}</td>" for part in parts)
    bar = f'<td class="bar"><i style="width:{100 * key.share / most:.1f}%"></i></td>'
    return f'<tr><td class="key" title="{escape(key.name)}">{escape(key.name)}</td>{cells}{bar}</tr>'


def _outcomes(report: Report) -> str:
    rows, last = "", 0
    for each in report.outcomes:
        even = "good" if each.lambda_ <= EVEN else "bad"
        rows += (
            f"<tr{' class=next' if last not in (0, each.workers) else ''}><td>{escape(each.label)}</td>"
            f'<td>{each.workers}</td><td class="{even}">{each.lambda_:.3f}</td><td>{each.figures.std_dev:.3f}</td>'
            f"<td>{each.dist_cost:.3f}</td><td>{each.speed_up:.1f}</td><td>{each.run.lambda_:.3f}</td>"
            f"<td>{each.run.dist_cost:.3f}</td></tr>"
        )
        last = each.workers
    return (
        "<h2>What each grouping gives</h2>"
        f'<p class="dim">Of intervals of {report.source.interval:,} events on average, and of the whole range. λ: '
        "largest over average load, 1 is even. Workers per key: the replication factor (DIST_COST). Works like: W / λ, "
        'the workers whose work is done.</p><div class="scroll"><table><tr><th>grouping<th>W<th>λ<th>STD_DEV'
        "<th>workers per key<th>works like<th>λ, whole<th>workers per key, whole</tr>"
        f"{rows}</table></div>{_by_workers(report)}"
    )


def _by_workers(report: Report) -> str:
    if len(report.workers) < 2:
        return ""
    labels = list(dict.fromkeys(each.label for each in report.outcomes))[:_MOST_LINES]
    lambdas = [_curve(report, label, [each.lambda_ for each in _of(report, label)]) for label in labels]
    costs = [_curve(report, label, [each.dist_cost for each in _of(report, label)]) for label in labels]
    return (
        f'<div class="two"><figure><figcaption>λ by W</figcaption>{diagram(lambdas, "W", "λ by W", least=1)}</figure>'
        f"<figure><figcaption>Workers per key by W</figcaption>"
        f"{diagram(costs, 'W', 'workers per key by W', least=1)}</figure></div>"
    )


def _curve(report: Report, label: str, values: Sequence[float]) -> Line:
    found = sorted(zip((each.workers for each in _of(report, label)), values, strict=True))
    return Line(label, [workers for workers, _ in found], [value for _, value in found])


def _of(report: Report, label: str) -> list[Outcome]:
    return [each for each in report.outcomes if each.label == label]


def _trend(report: Report) -> str:
    if len(report.trend) < 2:
        return ""
    until = [float(point.until) for point in report.trend]
    workers = max(report.workers)
    lambdas = [
        Line(each.label, until, [point.lambdas[number] for point in report.trend])
        for number, each in enumerate(report.outcomes)
        if each.workers == workers
    ][:_MOST_LINES]
    shares = [Line("heaviest key of each part", until, [100 * point.share for point in report.trend])]
    return (
        f'<h2>Trend</h2><div class="two"><figure><figcaption>λ of each part, W = {workers}</figcaption>'
        f"{diagram(lambdas, 'events read', 'λ of each part', least=1)}</figure><figure><figcaption>share of the "
        f"heaviest key, %</figcaption>{diagram(shares, 'events read', 'share of the heaviest key')}</figure></div>"
        f"{_parts(report)}"
    )


def _parts(report: Report) -> str:
    """The parts of the trend in figures."""
    from keygrouping.cli.inspect_tables import clock, ends

    layout = clock(report)
    times = "<th>earliest, UTC<th>latest, UTC" if layout else ""
    rows = ""
    for point in report.trend:
        shown = "".join(f"<td>{each}</td>" for each in ends(point.span, layout)) if layout else ""
        name = escape(point.heaviest or "-")
        key = f'<td class="key" title="{name}">{name}</td>'
        rows += f"<tr><td>{point.until:,}</td>{shown}{key}<td>{point.share:.2%}</td></tr>"
    return f'<div class="scroll"><table><tr><th>until event{times}<th>heaviest key<th>share</tr>{rows}</table></div>'


def _partitions(report: Report) -> str:
    if not report.partitions:
        return ""
    total = sum(each.weight for each in report.partitions) or 1.0
    most = max(each.weight for each in report.partitions) or 1.0
    rows = "".join(
        f"<tr><td>{each.partition}</td><td>{each.events:,}</td><td>{each.weight:,.0f}</td>"
        f'<td>{each.weight / total:.2%}</td><td class="bar"><i style="width:{100 * each.weight / most:.1f}%"></i></td>'
        "</tr>"
        for each in report.partitions
    )
    return (
        f"<h2>Partitions of the topic</h2><p>λ {report.partition_lambda:.3f}, STD_DEV {report.partition_std_dev:.3f}: "
        "what a consumer of each partition would have to do.</p>"
        '<div class="scroll"><table><tr><th>partition<th>events<th>weight<th>share<th></tr>'
        f"{rows}</table></div>"
    )
