"""One change of what can be set, as the history has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from keygrouping_router.control.orders import Values
from keygrouping_router.control.overrides import shown, shown_id
from keygrouping_router.control.seeds import fingerprint
from keygrouping_router.control.state import Control

What = Literal["thresholds", "grouping", "workers", "shadow", "overrides"]


@dataclass(frozen=True)
class Change:
    """Who has changed what at which time (seconds since 1970), from what to what."""

    at: float
    by: str
    version: int
    what: What
    before: Values
    after: Values


def difference(what: What, before: Control, after: Control) -> tuple[Values, Values]:
    """What a change of `what` shows of both; of overrides, of which there may be many, only those that differ."""
    was, became = _part(what, before), _part(what, after)
    if what != "overrides":
        return was, became
    same = {name for name, value in was.items() if became.get(name) == value}
    return _without(was, same), _without(became, same)


def _part(what: What, control: Control) -> Values:
    """The part of the document that such a change is about."""
    parts: dict[What, dict[str, Any]] = {
        "thresholds": dict(control.settings),
        "grouping": {
            "name": control.grouping,
            "settings": control.settings,
            "sharing": control.sharing,
            "observe_only": control.observe_only,
            "seed": fingerprint(control.seed),
        },
        "workers": {
            "workers": control.workers,
            "mode": "auto" if control.auto else "fixed",
            "capacities": {str(worker): capacity for worker, capacity in control.capacities.items()},
        },
        "shadow": {
            "groupings": [{"name": entry.name, "settings": entry.settings} for entry in control.shadow],
            "sample": control.sample,
        },
        "overrides": {shown_id(entry): shown(entry) for entry in control.overrides},
    }
    return parts[what]


def _without(values: Values, names: set[str]) -> Values:
    return {name: value for name, value in values.items() if name not in names}
