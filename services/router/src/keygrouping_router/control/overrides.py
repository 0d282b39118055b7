"""Overrides of keys as the control document has them, and what they mean for the routing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import get_args

from keygrouping.grouping import Override
from keygrouping.grouping.overrides import Layout, lay_out

from keygrouping_router import metrics
from keygrouping_router.control.orders import Action, KeyOverride, OverrideChange, Values
from keygrouping_router.errors import Refused
from keygrouping_router.limits import LONGEST_OVERRIDDEN, LONGEST_OVERRIDE
from keygrouping_router.naming import id_of

TO_TOPIC = "quarantine-topic"
_ACTIONS = {"pin": "pin", "split": "split", "whole": "whole", "quarantine-worker": "isolate"}
_TAKEN = {"pin": ("worker",), "split": ("width",), "quarantine-worker": ("worker",)}
"""What may be said beside the action and its end."""


def override_of(key: bytes, change: OverrideChange, now: float) -> KeyOverride:
    """What an order means at `now` (seconds since 1970); raises `Refused` with one line."""
    for name in ("worker", "width"):
        if getattr(change, name) is not None and name not in _TAKEN.get(change.action, ()):
            raise Refused(f"{change.action} takes no {name}: leave it out")
    if change.action == "pin" and change.worker is None:
        raise Refused("pin needs a worker: give its number")
    if (change.until is None) == (change.seconds is None):
        raise Refused("give its end: either until (a time with a zone) or seconds (from now on)")
    if len(key) > LONGEST_OVERRIDDEN:
        raise Refused(f"the key has {len(key)} bytes; at most {LONGEST_OVERRIDDEN} are allowed here")
    until = now + (change.seconds or 0.0) if change.until is None else change.until
    if not now < until <= now + LONGEST_OVERRIDE:
        days, clock = LONGEST_OVERRIDE // 86_400, datetime.fromtimestamp(now, UTC)
        raise Refused(f"its end must be in the future, and within {days} days: it is {clock} now")
    return KeyOverride(key, change.action, change.worker, change.width, until)


@lru_cache(maxsize=64)
def layout_of(overrides: tuple[KeyOverride, ...], workers: int) -> Layout:
    """What the overrides make of so many workers."""
    return lay_out(orders_of(overrides), workers)


def orders_of(overrides: Sequence[KeyOverride]) -> list[Override]:
    """Those that say which workers a key gets."""
    return [
        Override(entry.key, _ACTIONS[entry.action], entry.worker, entry.width)  # type: ignore[arg-type]
        for entry in overrides
        if entry.action != TO_TOPIC
    ]


def diverted(overrides: Sequence[KeyOverride]) -> dict[bytes, KeyOverride]:
    """The overrides of the keys whose events go to the quarantine topic, by key."""
    return {entry.key: entry for entry in overrides if entry.action == TO_TOPIC}


def show_overrides(overrides: Sequence[KeyOverride], layout: Layout) -> None:
    """Shows how many there are of each action, when the next one of it ends, and how many rest, as metrics."""
    metrics.OVERRIDE_END.clear()
    for action in get_args(Action):
        ends = [entry.until for entry in overrides if entry.action == action]
        metrics.OVERRIDES.labels(action).set(len(ends))
        if ends:
            metrics.OVERRIDE_END.labels(action).set(min(ends))
    metrics.RESTING_OVERRIDES.set(len(layout.resting))


def shown_id(override: KeyOverride) -> str:
    """Under which name the history has it."""
    return id_of(override.key)


def shown(override: KeyOverride) -> Values:
    """As the history has it; its end in seconds since 1970."""
    known = {"worker": override.worker, "width": override.width}
    given: Values = {name: value for name, value in known.items() if value is not None}
    return {"action": override.action, **given, "until": override.until}
