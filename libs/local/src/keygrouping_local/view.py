"""Shows a running pipeline: one calm page on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self

import orjson
from keygrouping.partial import Result
from keygrouping.printable import printable
from keygrouping_service.kafka.progress import END, MIN_TIME
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from keygrouping_local.accounts import Accounts
from keygrouping_local.comparison import Comparison
from keygrouping_local.observer import Snapshot

_BAR_WIDTH = 40
_WIDEST = 40
_PLAIN_SECONDS = 2.0


@dataclass(frozen=True)
class About:
    """What does not change while a pipeline runs."""

    title: str
    broker: str
    logs: str
    serves: str = "API"
    """What the address is that is shown of the run."""


class View(Protocol):
    """Where a run shows itself; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, about: About, snapshot: Snapshot, router_url: str | None) -> None:
        """Shows the pipeline as it is now."""

    def say(self, line: str) -> None:
        """Shows a line that stays."""


class LiveView:
    """A page on a terminal that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, about: About, snapshot: Snapshot, router_url: str | None) -> None:
        """Redraws the page."""
        self._live.update(page(about, snapshot, router_url), refresh=True)

    def say(self, line: str) -> None:
        """Prints a line above the page."""
        self._console.print(line, markup=False, highlight=False)


class PlainView:
    """One line every two seconds, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0
        self._told: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace

    def show(self, about: About, snapshot: Snapshot, router_url: str | None) -> None:
        """Prints a line if it is time for one, and where the router is as soon as that is known."""
        if router_url and router_url != self._told:
            self._told = router_url
            self.say(_places(about, router_url))
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_SECONDS
            self.say(line_of(snapshot))

    def say(self, line: str) -> None:
        """Prints a line."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def view_for(console: Console) -> View:
    """Returns the view that suits the console."""
    return LiveView(console) if console.is_terminal else PlainView(console)


def line_of(snapshot: Snapshot) -> str:
    """The pipeline as one line."""
    return (
        f"events {snapshot.events:,} ({snapshot.events_per_second:,.0f}/s)  lag {snapshot.router_lag:,}"
        f"  λ {snapshot.lambda_:.3f}  workers per key {snapshot.run.dist_cost:.2f}  results {snapshot.results:,}"
        f"  final until {moment(snapshot.final_until)}"
    )


def page(about: About, snapshot: Snapshot, router_url: str | None) -> RenderableType:
    """The pipeline as a page."""
    columns = Table.grid(padding=(0, 4))
    columns.add_row(_loads(snapshot), _hot_keys(snapshot))
    parts: list[RenderableType] = [_numbers(snapshot), "", columns, "", _results(snapshot.latest)]
    return Panel(Group(*parts), title=about.title, subtitle=_places(about, router_url), padding=(1, 2))


def _places(about: About, router_url: str | None) -> str:
    return f"{about.serves} {router_url or 'starting'}   Kafka {about.broker}   logs {about.logs}   Ctrl-C stops"


def comparison_table(comparison: Comparison) -> Table:
    """The outcome of a check against the oracle."""
    table = Table(title="results against the single-threaded oracle")
    table.add_column("")
    for name in ("expected", "found", "different", "greatest relative deviation"):
        table.add_column(name, justify="right")
    for row in comparison.rows:
        style = "red" if row.different else ""
        deviation = f"{row.deviation:.1e}" if row.deviation else "exact" if not row.different else ""
        table.add_row(
            _safe(row.name), f"{row.expected:,}", f"{row.found:,}", f"{row.different:,}", deviation, style=style
        )
    return table


def accounts_table(accounts: Accounts, name: str) -> Table:
    """What became of the input, each reason with an example."""
    table = Table(title="what became of the input")
    table.add_column("")
    table.add_column("events", justify="right")
    table.add_column("the first of them", overflow="fold")

    def refused(stage: str) -> None:
        for each in accounts.refusals:
            if each.stage == stage:
                table.add_row(f"refused by the {stage}: {_safe(each.reason)}", f"{each.count:,}", _safe(each.example))

    table.add_row("read", f"{accounts.read:,}", f"[dim]{_safe(name)}[/dim]")
    refused("producer")
    table.add_row("sent", f"{accounts.sent:,}", "")
    for stage in ("router", "worker", "aggregator"):
        refused(stage)
    table.add_row("late", f"{accounts.late:,}", "")
    table.add_row("used", f"{accounts.used:,}", "", style="" if accounts.used else "red")
    for each in accounts.skipped:
        first = f"partition {each.first[0]} at offset {each.first[1]}: not {each.wanted}"
        table.add_row(_safe(f"  of these without {each.field}"), f"{each.count:,}", first)
    return table


def moment(time_ms: int) -> str:
    """A time in ms since the epoch for people."""
    if time_ms <= MIN_TIME:
        return "-"
    if time_ms >= END:
        return "the end"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _numbers(snapshot: Snapshot) -> Table:
    fields = {
        "events/s": f"{snapshot.events_per_second:,.0f}",
        "events": f"{snapshot.events:,}",
        "lag": f"{snapshot.router_lag:,} + {snapshot.worker_lag:,}",
        "λ": f"{snapshot.lambda_:.3f}",
        "workers per key": f"{snapshot.run.dist_cost:.2f}",
        "late": f"{snapshot.late:,}",
        "dead letters": f"{snapshot.dead_letters:,}",
        "final until": moment(snapshot.final_until),
    }
    table = Table.grid(padding=(0, 3))
    table.add_row(*(f"[dim]{name}[/dim]" for name in fields))
    table.add_row(*(f"[bold]{value}[/bold]" for value in fields.values()))
    return table


def _loads(snapshot: Snapshot) -> Table:
    loads = snapshot.loads
    total, most = sum(loads) or 1.0, max(loads, default=0.0) or 1.0
    table = Table.grid(padding=(0, 1))
    table.add_row("[dim]worker[/dim]", "[dim]load[/dim]", "")
    for worker, load in enumerate(loads):
        table.add_row(str(worker), ProgressBar(total=most, completed=load, width=_BAR_WIDTH), f"{load / total:.1%}")
    return table


def _hot_keys(snapshot: Snapshot) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("[dim]hot key[/dim]", "[dim]width[/dim]", "[dim]share[/dim]")
    for hot in snapshot.hot:
        table.add_row(_safe(hot.key), str(hot.width), f"{hot.share:.1%}")
    if not snapshot.hot:
        table.add_row("[dim]none[/dim]", "", "")
    return table


def _results(latest: Iterable[Result]) -> Table:
    results = list(latest)
    names = list(results[-1].aggregates) if results else []
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("final results of", "key", "events", *map(_safe, names)):
        table.add_column(name, no_wrap=True)
    for result in reversed(results):
        values = (number(result.aggregates.get(name)) for name in names)
        key = _safe(result.key.decode(errors="backslashreplace"))
        table.add_row(moment(result.start), key, f"{result.events:,}", *values)
    return table


def number(value: Any) -> str:
    """A value of an aggregate for people."""
    if value is None:
        return "-"
    if isinstance(value, list | dict):
        text = printable(orjson.dumps(value).decode())
        return escape(text if len(text) <= _WIDEST else text[:_WIDEST] + "…")
    if isinstance(value, int | float):
        return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
    return _safe(str(value))


def _safe(text: str) -> str:
    """A text of others in a table: neither the terminal nor the markup takes anything in it as meant for it."""
    return escape(printable(text))
