"""Overrides of keys as the control document has them, and what they mean for the routing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, get_args

from keygrouping.grouping import Override
from keygrouping.grouping.overrides import Layout, lay_out
from keygrouping_service import metrics

from keygrouping_router.errors import Refused
from keygrouping_router.models import (
    LONGEST_OVERRIDDEN,
    LONGEST_OVERRIDE,
    Action,
    KeyOverride,
    OverrideChange,
    OverrideReport,
)
from keygrouping_router.naming import base64_of, id_of, named

TO_TOPIC = "quarantine-topic"
_ACTIONS = {"pin": "pin", "split": "split", "whole": "whole", "quarantine-worker": "isolate"}
_TAKEN = {"pin": ("worker",), "split": ("width",), "quarantine-worker": ("worker",)}
"""What may be said beside the action and its end."""


def override_of(key: bytes, change: OverrideChange, now: datetime) -> KeyOverride:
    """What an order means; raises `Refused` with one line."""
    for name in ("worker", "width"):
        if getattr(change, name) is not None and name not in _TAKEN.get(change.action, ()):
            raise Refused(f"{change.action} takes no {name}: leave it out")
    if change.action == "pin" and change.worker is None:
        raise Refused("pin needs a worker: give its number")
    if (change.until is None) == (change.seconds is None):
        raise Refused("give its end: either until (a time with a zone) or seconds (from now on)")
    if len(key) > LONGEST_OVERRIDDEN:
        raise Refused(f"the key has {len(key)} bytes; at most {LONGEST_OVERRIDDEN} are allowed here")
    until = change.until or now + timedelta(seconds=change.seconds or 0.0)
    if not now < until <= now + timedelta(seconds=LONGEST_OVERRIDE):
        raise Refused(f"its end must be in the future, and within {LONGEST_OVERRIDE // 86_400} days: it is {now} now")
    return KeyOverride(
        key_base64=base64_of(key), action=change.action, worker=change.worker, width=change.width, until=until
    )


def key_of_override(override: KeyOverride) -> bytes:
    """The key that it is about."""
    digits = override.key_base64
    return base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))


@lru_cache(maxsize=64)
def layout_of(overrides: tuple[KeyOverride, ...], workers: int) -> Layout:
    """What the overrides make of so many workers."""
    return lay_out(orders_of(overrides), workers)


def orders_of(overrides: Sequence[KeyOverride]) -> list[Override]:
    """Those that say which workers a key gets."""
    return [
        Override(key_of_override(entry), _ACTIONS[entry.action], entry.worker, entry.width)  # type: ignore[arg-type]
        for entry in overrides
        if entry.action != TO_TOPIC
    ]


def diverted(overrides: Sequence[KeyOverride]) -> dict[bytes, KeyOverride]:
    """The overrides of the keys whose events go to the quarantine topic, by key."""
    return {key_of_override(entry): entry for entry in overrides if entry.action == TO_TOPIC}


def show_overrides(overrides: Sequence[KeyOverride], layout: Layout) -> None:
    """Shows how many there are of each action, when the next one of it ends, and how many rest, as metrics."""
    metrics.OVERRIDE_END.clear()
    for action in get_args(Action):
        ends = [entry.until.timestamp() for entry in overrides if entry.action == action]
        metrics.OVERRIDES.labels(action).set(len(ends))
        if ends:
            metrics.OVERRIDE_END.labels(action).set(min(ends))
    metrics.RESTING_OVERRIDES.set(len(layout.resting))


def shown_id(override: KeyOverride) -> str:
    """Under which name the history has it."""
    return id_of(key_of_override(override))


def shown(override: KeyOverride) -> dict[str, Any]:
    """As the history has it."""
    return override.model_dump(mode="json", exclude={"key_base64"}, exclude_none=True)


def report_of(override: KeyOverride, layout: Layout) -> OverrideReport:
    """As the API shows it."""
    key = key_of_override(override)
    return OverrideReport(
        **named(key),
        action=override.action,
        worker=override.worker,
        width=override.width,
        until=override.until,
        workers=list(layout.places.get(key, ())),
        resting=layout.resting.get(key),
    )
