"""What every reader of `partials` asks of a partial before it believes it, whichever runner it is of."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from keygrouping.aggregate.base import MOST_EVENTS, Aggregate
from keygrouping.job import MAX_KEY_BYTES, MAX_WEIGHT, JobSpec
from keygrouping.partial import Partial, RecordError
from keygrouping.partial_columns import PartialColumns
from keygrouping.slices import Slices
from numpy.typing import NDArray

from keygrouping_service.kafka.progress import END

OFFSET_BITS = 47
MOST_WORKERS = 1 << 16
MOST_EPOCH = 1 << 53
CLOCKS_DIFFER_MS = 86_400_000

NO_KEY = "the record has no key"
LONG_KEY = f"the key has more than {MAX_KEY_BYTES} bytes"
OTHER_JOB = "its aggregates are not the job's: written for another job"


class Rule(NamedTuple):
    """What is true of the partials that workers write.

    `holds` judges a partial, or many as columns; the rules before it hold for it already.
    """

    members: tuple[str, ...]
    says: str
    holds: Callable[[Any], Any]


RULES = (
    Rule(("worker",), f"must be in [0, {MOST_WORKERS})", lambda p: (p.worker >= 0) & (p.worker < MOST_WORKERS)),
    Rule(("epoch",), f"must be in [0, {MOST_EPOCH})", lambda p: (p.epoch >= 0) & (p.epoch < MOST_EPOCH)),
    Rule(
        ("first", "last"),
        "must be offsets of a partition",
        lambda p: (p.first >= 0) & (p.first <= p.last) & (p.last < 1 << OFFSET_BITS),
    ),
    Rule(
        ("events", "first", "last"),
        f"must be as many events as there are offsets, or less, from 1 to {MOST_EVENTS}",
        lambda p: (p.events >= 1) & (p.events <= MOST_EVENTS) & (p.events <= p.last - p.first + 1),
    ),
    Rule(
        ("weight", "events"),
        f"must be a weight from 0 to {MAX_WEIGHT:g} for each event",
        lambda p: (p.weight >= 0) & (p.weight <= p.events * MAX_WEIGHT) & (p.weight <= sys.float_info.max),
    ),
)
"""Those that ask nothing of the job."""


def rules_of(job: JobSpec) -> tuple[Rule, ...]:
    """Those that ask for the windows of a job."""
    return _rules_of_windows(job.window_ms, job.window_offset_ms)


@functools.cache
def _rules_of_windows(length: int, offset: int) -> tuple[Rule, ...]:
    return (
        Rule(
            ("start", "end"),
            "must be a window of event times that there are",
            lambda p: (p.end >= 1) & (p.end <= END) & (p.start >= -length) & (p.start <= END),
        ),
        Rule(
            ("start", "end"),
            f"must be a window of this job, whose windows have {length} ms",
            lambda p: (p.end - p.start == length) & ((p.start - offset) % length == 0),
        ),
    )


def rule_of_clock(job: JobSpec, now_ms: int) -> Rule:
    """The one that asks for the clock (ms).

    A forged partial of a far future would hold its window open, and purging up, for ever. The day is for clocks that
    differ.
    """
    most = job.max_future_ms + CLOCKS_DIFFER_MS
    return Rule(
        ("start",),
        f"must not lie more than {most} ms ahead of the clock (max_future and a day)",
        lambda p: p.start <= now_ms + most,
    )


def told(rule: Rule) -> str:
    """What is asked, in words."""
    return f"{' and '.join(rule.members)} {rule.says}"


def check(key: bytes | None, partial: Partial, job: JobSpec, now_ms: int) -> None:
    """Raises `RecordError` for members that no worker of this job writes: they could hold a window open for ever,
    or spoil what they are merged with.
    """
    if key is None:
        raise RecordError(NO_KEY)
    if len(key) > MAX_KEY_BYTES:
        raise RecordError(f"{LONG_KEY}: {len(key)}")
    _require(partial, RULES)
    _require(partial, rules_of(job))
    _require(partial, (rule_of_clock(job, now_ms),))
    names = {aggregate.name for aggregate in job.aggregates}
    if partial.aggregates.keys() != names:
        wrong = ", ".join(sorted(partial.aggregates.keys() ^ names))[:200]
        raise RecordError(f"{OTHER_JOB} ({wrong} missing or too many)")


def checked(keys: Slices, partials: PartialColumns, job: JobSpec, now_ms: int) -> NDArray[np.bool_]:
    """The rows that were read and that `check` would not refuse."""
    good: NDArray[np.bool_] = partials.good & (keys.sizes >= 0) & (keys.sizes <= MAX_KEY_BYTES)
    for rule in (*RULES, *rules_of(job), rule_of_clock(job, now_ms)):
        good &= rule.holds(partials)
    return good


def states_of(partial: Partial, aggregates: Sequence[Aggregate]) -> list[Any]:
    """The decoded states of a partial that was checked; `RecordError` for one that no worker writes."""
    states = []
    for aggregate in aggregates:
        try:
            state = aggregate.decode(partial.aggregates[aggregate.name])
            seen = aggregate.seen(state)
        except (ValueError, OverflowError) as error:
            raise RecordError(str(error)) from None
        except Exception as error:
            raise RecordError(aggregate.failed(error)) from error
        if seen > partial.events:
            raise RecordError(f"aggregate {aggregate.name!r} has seen {seen} events, the partial {partial.events}")
        states.append(state)
    return states


def _require(partial: Partial, rules: tuple[Rule, ...]) -> None:
    for rule in rules:
        if not rule.holds(partial):
            found = " and ".join(str(getattr(partial, name)) for name in rule.members)
            raise RecordError(f"{told(rule)}, not {found}")
