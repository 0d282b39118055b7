"""What members of an app tell, as one page for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from keygrouping.printable import printable
from rich.box import SIMPLE_HEAD
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from keygrouping_app.members import Answers, Group, Key, groups_of
from keygrouping_app.split import seconds, split_words

_WAITS = {"lane": "a lane", "key": "its call", "try": "its next try", "rate": "its rate"}


def page(answers: Answers, rows: int) -> RenderableType:
    """All handlers, each with so many keys; members that did not answer stand below."""
    names = ", ".join(sorted({_safe(told["app"]) for told in answers.told})) or "no app"
    members = f"{len(answers.told)} of {len(answers.told) + len(answers.silent)} members"
    parts: list[RenderableType] = [f"[bold]{names}[/bold] · {members}"]
    for group in groups_of(answers.told):
        parts += ["", *_handler(group, rows)]
    parts += [f"[red]{_safe(url)}: {_safe(why)}[/red]" for url, why in answers.silent.items()]
    return Lines(*parts)


def _handler(group: Group, rows: int) -> Iterator[RenderableType]:
    yield f"[bold]{_safe(group.topic)}[/bold] · {_safe(group.handler)}"
    yield _figures(_numbers(group))
    if moves := group.moves:
        yield _figures(_moves(moves))
        if balance := _balance(moves):
            yield _figures(balance)
    keys = group.by_need()
    if keys:
        yield _keys(group, keys[:rows])
        yield split_words(group.loads, group.span)


def _figures(fields: dict[str, str]) -> Table:
    """Each below its name."""
    table = Table.grid(padding=(0, 2))
    table.add_row(*(f"[dim]{name}[/dim]" for name in fields))
    table.add_row(*(f"[bold]{value}[/bold]" for value in fields.values()))
    return table


def _numbers(group: Group) -> dict[str, str]:
    breakers = ", ".join(group.breakers)
    fields = {
        "events/s": f"{group.sum('rate'):,.1f}",
        "lanes busy": f"{group.sum('busy'):,} of {group.sum('lanes'):,}",
        "in memory": f"{group.sum('held_events'):,}",
        "oldest": seconds(group.oldest) if group.oldest else "-",
        "gap": f"{group.gap:,}",
        "retries": f"{group.sum('retries'):,}",
        "dead letters": f"{group.sum('dead_letters'):,}",
        "breaker": breakers if breakers == "closed" else f"[red]{breakers}[/red]",
    }
    if shares := group.sharing:
        fields["given to others"] = f"{sum(each['written'] for each in shares):,}"
        fields["load of slots"] = seconds(sum(each["slot_seconds"] for each in shares))
        before, after = (max(each["imbalance"][name] for each in shares) for name in ("before", "after"))
        fields["λ whole, shared"] = f"{before:.2f}, {after:.2f}"
    fields |= _restoring(group.restoring)
    if group.refused:
        fields["not committed"] = f"[red]{group.refused:,}[/red]"
    return fields


def _moves(told: list[dict[str, Any]]) -> dict[str, str]:
    done = sum(each["done"] for each in told)
    oldest = max(each["oldest"] for each in told)
    return {
        "handed over": f"{done:,}",
        "states sent": decimal(sum(each["bytes"] for each in told)),
        "held": seconds(sum(each["seconds"] for each in told) / done) if done else "-",
        "at slots": f"{sum(each['away'] for each in told):,}",
        "on their way": f"{sum(each['under_way'] for each in told):,}",
        "events held": f"{sum(each['held_events'] for each in told):,}",
        "longest": seconds(oldest) if oldest else "-",
    }


def _balance(told: list[dict[str, Any]]) -> dict[str, str]:
    """The latest plan that a member knows of, and the work of all members; those of earlier versions tell neither."""
    balances = [each["imbalance"] for each in told if "imbalance" in each]
    plans = [each for each in told if each.get("plan") is not None]
    now = max((each["now"] for each in balances if each["now"] is not None), default=None)
    if not plans and now is None:
        return {}
    last, figures = "-", [None, None, now]
    if plans:
        latest = min(plans, key=lambda each: each["plan"]["age"])
        last = f"{latest['plan']['keys']:,} keys, {seconds(latest['plan']['age'])} ago"
        figures = [latest["imbalance"]["before"], latest["imbalance"]["after"], now]
    told_of = ", ".join("-" if each is None else f"{each:.2f}" for each in figures)
    return {"last plan": last, "λ before, planned, now": told_of}


def _restoring(told: list[dict[str, Any]]) -> dict[str, str]:
    if not told:
        return {}
    partitions, done, left = (sum(each[name] for each in told) for name in ("partitions", "done", "left"))
    return {"restoring": f"{partitions:,}, {done / (done + left):.0%}" if left else f"{partitions:,}"}


def _keys(group: Group, keys: list[Key]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("key", overflow="fold", max_width=40)
    for name in ("waiting", "oldest wait", "waits for", "share", "of a lane"):
        table.add_column(name, justify="right", no_wrap=True)
    for rank, key in enumerate(keys, 1):
        wait = seconds(key.wait) if key.waiting else "-"
        of_lane = f"{key.needs / group.span:.0%}" if group.span and key.ordered else "-"
        table.add_row(
            *(str(rank), _safe(key.name) if key.name is not None else "[dim]without order[/dim]"),
            *(f"{key.waiting:,}", wait, _WAITS.get(key.what, "-")),
            *(f"{key.needs / group.seconds:.1%}" if group.seconds else "-", of_lane),
        )
    return table


def _safe(text: str) -> str:
    """A text of others: neither the terminal nor the markup takes anything in it as meant for it."""
    return escape(printable(text))
