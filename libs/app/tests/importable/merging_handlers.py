"""A handler with states that merge, in a module that other processes can import."""

from __future__ import annotations

from dataclasses import dataclass, field

from keygrouping_app import Event, Output


@dataclass
class Visits:
    """Of a page: how many there were, and the latest of each visitor."""

    count: int = 0
    latest: dict[str, int] = field(default_factory=dict)


def merge(left: Visits, right: Visits) -> None:
    """Visits of both."""
    left.count += right.count
    for visitor, number in right.latest.items():
        left.latest[visitor] = max(number, left.latest.get(visitor, 0))


def visit(event: Event, visits: Visits) -> Output | None:
    """Counts a visit; an event may say what is returned, or that it fails afterwards."""
    visits.count += 1
    visits.latest[event.value["by"]] = event.value.get("number", 0)
    if event.value.get("fails"):
        raise ValueError("after the state was changed")
    return Output(event.value["to"], event.value.get("text", "")) if "to" in event.value else None
