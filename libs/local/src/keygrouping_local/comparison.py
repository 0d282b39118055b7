"""Compares the results of a run with the oracle's, window by window and value by value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keygrouping.aggregate import Answer
from keygrouping.job import JobSpec
from keygrouping.partial import Result
from keygrouping_service.settings import ServiceSettings

from keygrouping_local.oracle import WAS_IDLE, Expected, Place, expect
from keygrouping_local.records import dead_letters, read_results, reasons

_EXAMPLES = 5
_LONGEST = 300


@dataclass
class Row:
    """One line of the comparison: what was compared, how many were expected, found, and differ."""

    name: str
    expected: int
    found: int
    different: int
    deviation: float = 0.0
    """Greatest relative difference of floats, those within the tolerance too."""


@dataclass(frozen=True)
class Skipped:
    """A field that was skipped in so many events, as of the wrong type: what it must be, and the first of them."""

    field: str
    wanted: str
    count: int
    first: Place


@dataclass
class Comparison:
    """The outcome: a row per aggregate and per kind of event left out, and examples of differences."""

    rows: list[Row] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    events: int = 0
    """Records of `events` that were compared."""
    late: int = 0
    """Those of them that are in `late`."""
    used: int = 0
    """Events of all final results."""
    skipped: list[Skipped] = field(default_factory=list)
    """Fields with values of the wrong type in events that were used."""

    @property
    def equal(self) -> bool:
        """Whether everything is as expected."""
        return not any(row.different for row in self.rows)


def compare(expected: Expected, actual: Mapping[tuple[bytes, int], Result]) -> Comparison:
    """Compares counts, integers, minima and maxima exactly, floats up to a relative 1e-9, and what comes of bounded
    memory by the bounds that it states.

    Where a float's terms cancel out (a mean near zero, a variance of equal values), 1e-12 of their size is allowed.
    """
    comparison = Comparison()
    places = expected.windows.keys() | actual.keys()
    strange = sorted(place for place in places if (place in expected.windows) != (place in actual))
    comparison.rows.append(Row("windows", len(expected.windows), len(actual), len(strange)))
    for place in strange[:_EXAMPLES]:
        comparison.examples.append(f"{_named(place)}: {'unexpected' if place in actual else 'missing'}")
    common = [place for place in expected.windows if place in actual]
    events = {place: Answer(expected.events[place]) for place in common}
    comparison.rows.append(
        _compare("events per window", events, {place: actual[place].events for place in common}, comparison)
    )
    for name in next(iter(expected.windows.values()), {}):
        wanted = {place: expected.windows[place][name] for place in common}
        found = {place: actual[place].aggregates.get(name) for place in common}
        comparison.rows.append(_compare(name, wanted, found, comparison))
    return comparison


def compare_left_out(
    expected: Expected, late: Mapping[Place, str], dead: Mapping[Place, str], comparison: Comparison
) -> None:
    """Adds what is in `late` and in `dead-letters`: just the events that belong there."""
    on_time_but_idle = {place for place, reason in late.items() if reason == WAS_IDLE}
    pairs: list[tuple[str, Mapping[Place, str], Mapping[Place, str]]] = [
        ("late", dict.fromkeys(expected.late, ""), {p: "" for p in late if p not in on_time_but_idle}),
        ("dead-letters", expected.dead, dead),
    ]
    for name, wanted, found in pairs:
        different = sorted(p for p in wanted.keys() | found.keys() if wanted.get(p) != found.get(p))
        comparison.rows.append(Row(name, len(wanted), len(found), len(different)))
        comparison.examples += [
            f"{name}: event {p[1]} of partition {p[0]} expected {wanted.get(p)!r}, found {found.get(p)!r}"
            for p in different[:_EXAMPLES]
        ]
    if on_time_but_idle:
        comparison.rows.append(Row(f"late: {WAS_IDLE}", len(on_time_but_idle), len(on_time_but_idle), 0))


async def check_run(settings: ServiceSettings, job: JobSpec) -> Comparison:
    """Compares everything that a finished run left in Kafka with the oracle over its `events`."""
    expected = await expect(settings, job)
    results = await read_results(settings)
    comparison = compare(expected, results)
    late = await reasons(settings, settings.late_topic)
    comparison.events, comparison.late = expected.read, len(late)
    comparison.skipped = [
        Skipped(job.fields[position].pointer, job.fields[position].wanted, len(places), places[0])
        for position, places in sorted(expected.skipped.items())
    ]
    comparison.used = sum(result.events for result in results.values())
    compare_left_out(expected, late, await dead_letters(settings), comparison)
    return comparison


def _compare(
    name: str, wanted: Mapping[tuple[bytes, int], Answer], found: Mapping[tuple[bytes, int], Any], into: Comparison
) -> Row:
    row = Row(name, len(wanted), sum(value is not None for value in found.values()), 0)
    row.expected = sum(value.value is not None for value in wanted.values())
    for place, value in wanted.items():
        if not value.accept(found[place]):
            row.different += 1
            if row.different <= _EXAMPLES:
                wanted_text, found_text = _short(value.value), _short(found[place])
                into.examples.append(f"{_named(place)}: {name} expected {wanted_text}, found {found_text}")
        else:
            row.deviation = max(row.deviation, value.deviation(found[place]))
    return row


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _named(place: tuple[bytes, int]) -> str:
    return f"key {place[0].decode(errors='replace')!r}, window at {place[1]} ms"
