"""What is asked of an aggregate from elsewhere before a job begins that has it: that it keeps the laws, on samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from keygrouping.aggregate.base import Aggregate
from keygrouping.aggregate.laws import LAWS, broken_laws, hostile_input

_LAWS = [law for law in LAWS if law is not hostile_input]
"""The aggregator takes errors at states that nobody should have written for what they are."""
_ROUNDS = 30
_ENOUGH = 2.0
_LONGEST = 30.0
"""Seconds, after which it is taken for an endless loop."""


def faults_of_code(aggregate: Aggregate) -> list[str]:
    """A line for each law that it breaks, with an example, or one that says why it can't be tried; in half a minute."""
    found: list[str] = []
    # Nothing else ends a loop in somebody else's code; as a daemon it does not keep the process from ending.
    thread = threading.Thread(target=lambda: found.extend(_tried(aggregate)), daemon=True)
    thread.start()
    thread.join(_LONGEST)
    if thread.is_alive():
        return [f"{aggregate.op} has not ended within {_LONGEST:.0f} s on a few samples: has it an endless loop?"]
    return found


def _tried(aggregate: Aggregate) -> list[str]:
    deadline = time.monotonic() + _ENOUGH
    if "check" in type(aggregate).model_fields:
        return [f"{aggregate.op}: check is a method of aggregates, so give the setting another name"]
    try:
        added = [(value, _raised(aggregate.add, aggregate.initial(), value)) for value in aggregate.samples()]
    except Exception as error:
        return [f"{aggregate.op}: samples() or initial() raises {_told(error)}"]
    values = [value for value, error in added if not error]
    refused = next((f"{value!r} raises {error}" for value, error in added if error), "")
    if refused and not any(value is not None for value in values):
        return [f"{aggregate.op} can use none of its samples: {refused}; give it some that it can, by samples()"]
    if disagreed := _disagreement(aggregate, added):
        return [disagreed]
    lines = broken_laws(aggregate, values, _LAWS, rounds=_ROUNDS, enough=lambda: time.monotonic() > deadline)
    return [f"{aggregate.op} breaks a law: {line}" for line in lines]


def _disagreement(aggregate: Aggregate, added: Iterable[tuple[Any, str]]) -> str:
    """In what a `check` of its own says something else of a sample than `add` has ("": nothing)."""
    if type(aggregate).check is Aggregate.check:
        return ""
    for value, error in added:
        checked = _raised(aggregate.check, value)
        if error and not checked:
            return f"{aggregate.op}: check() takes {value!r}, of which add() raises {error}"
        if checked and not error:
            return f"{aggregate.op}: check() raises {checked} of {value!r}, which add() takes"
    return ""


def microseconds_of_check(aggregate: Aggregate) -> float:
    """Processor time that `check` takes of an event: the average over its samples, one round of them."""
    values = list(aggregate.samples())
    begun = time.thread_time()
    for value in values:
        _raised(aggregate.check, value)
    return (time.thread_time() - begun) / max(1, len(values)) * 1e6


def _raised(action: Callable[..., object], *arguments: Any) -> str:
    """The error that it raises, as text ("": none)."""
    try:
        action(*arguments)
    except Exception as error:
        return _told(error)
    return ""


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
