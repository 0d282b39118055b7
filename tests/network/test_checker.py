"""What the checker finds: it names each event that is lost, doubled, changed or in a wrong place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from .checker import IDLE, Checker, PartitionTime, milliseconds
from .entry import Entry
from .load import CONFIRMATIONS, LATENESS_MS, START_MS, STEP_MS, WINDOW_MS, Load
from .schedule import Possible, draw

COUNT = 1000


@dataclass
class Topics:
    """What stands in all topics after an undisturbed run, to be disturbed."""

    events: list[Entry] = field(default_factory=list)
    routed: list[Entry] = field(default_factory=list)
    late: list[Entry] = field(default_factory=list)
    dead: list[Entry] = field(default_factory=list)
    results: list[Entry] = field(default_factory=list)

    def checker(self, routed: bool = True) -> Checker:
        """One that has read all but results. `routed`: whether there is such a topic."""
        checker = Checker()
        checker.sent(range(COUNT))
        checker.take_events(self.events)
        if routed:
            checker.take_routed(self.routed)
        checker.take_late(self.late)
        checker.take_dead_letters(self.dead)
        return checker

    def judge(self) -> list[str]:
        """What a checker says of them."""
        checker = self.checker()
        checker.take_results(self.results)
        wrong, missing = checker.judge(ended=True)
        checker.write_off(missing)
        more, still_missing = checker.judge(ended=True)
        # Each thing is told once; what was lost before the results is then missed there, too.
        assert not [finding for finding in still_missing if finding.topic != "results"]
        return [str(finding) for finding in (*wrong, *missing, *more)]

    def number(self, entry: Entry) -> int:
        """The id of an event."""
        return int(json.loads(entry.value or b"")["id"])

    def change_result(self, place: int, **values: int) -> None:
        """Adds to the values of a result."""
        data = json.loads(self.results[place].value or b"")
        for name, more in values.items():
            data["aggregates"][name] += more
        data["events"] = data["aggregates"]["events"]
        self.results[place] = replace(self.results[place], value=json.dumps(data).encode())

    def ids(self, place: int) -> list[int]:
        """The events that a result counts."""
        data = json.loads(self.results[place].value or b"")
        return [
            self.number(entry)
            for entry in self.routed
            if (entry.key or b"").decode() == data["key"] and entry.timestamp // WINDOW_MS * WINDOW_MS == data["start"]
        ]

    def busiest(self) -> int:
        """The result that counts most events."""
        return max(range(len(self.results)), key=lambda place: len(self.ids(place)))


def reached(times: list[int]) -> int:
    """The latest time that enough of these events have reached."""
    return max((time for time in times if sum(other >= time for other in times) >= CONFIRMATIONS), default=-1)


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    """All topics as one process without any fault would leave them."""
    Load(1).write(tmp_path / "events.jsonl", COUNT)
    made, windows = Topics(), dict[tuple[str, int], list[Any]]()
    confirmed, times = -1, list[int]()
    for offset, line in enumerate((tmp_path / "events.jsonl").read_text().splitlines()):
        data = json.loads(line)
        time_ms = milliseconds(data["at"])
        entry = Entry(0, offset, time_ms, data["key"].encode() if data["key"] else None, line.encode())
        made.events.append(entry)
        if entry.key is None:
            made.dead.append(entry)
            continue
        late = time_ms < confirmed - LATENESS_MS
        times = [*times, time_ms][-2 * CONFIRMATIONS :]
        confirmed = max(confirmed, reached(times))
        if late:
            made.late.append(entry)
        else:
            made.routed.append(replace(entry, partition=offset % 10))
            windows.setdefault((data["key"], time_ms // WINDOW_MS * WINDOW_MS), []).append(data)
    for (key, start), rows in windows.items():
        numbers, ids = [row["n"] for row in rows], [row["id"] for row in rows]
        values = {"events": len(rows), "n": sum(numbers), "least": min(numbers), "most": max(numbers)}
        values |= {"ids": sum(ids), "squares": sum(number * number for number in ids)}
        result = {"key": key, "start": start, "end": start + WINDOW_MS, "events": len(rows), "final": True}
        text = json.dumps(result | {"aggregates": values}).encode()
        made.results.append(Entry(0, len(made.results), start, key.encode(), text))
    return made


def test_one_early_event_makes_nobody_late_and_many_do() -> None:
    time = PartitionTime()
    time.saw(10**12)
    assert not time.is_late(0)
    for early in range(1, CONFIRMATIONS):
        time.saw(10**12 + early)
    assert time.confirmed == 10**12
    assert time.is_late(10**12 - LATENESS_MS - 1)
    assert not time.is_late(10**12 - LATENESS_MS)


def test_an_undisturbed_run_is_right(topics: Topics) -> None:
    assert topics.late and topics.dead
    assert topics.judge() == []


def test_nothing_is_told_of_windows_that_are_still_open(topics: Topics) -> None:
    checker = topics.checker()
    newest = START_MS + COUNT * STEP_MS - LATENESS_MS
    checker.take_results(entry for entry in topics.results if entry.timestamp + WINDOW_MS < newest - WINDOW_MS)
    wrong, missing = checker.judge()
    assert not wrong
    assert all(finding.window and finding.window.start + WINDOW_MS < newest for finding in missing)


def judged_without_routed(topics: Topics, passed: int) -> list[str]:
    """What a checker says of a pipeline whose workers have read `events` up to this offset."""
    checker = topics.checker(routed=False)
    checker.take_results(topics.results)
    checker.take_passed({0: passed})
    wrong, missing = checker.judge(ended=True)
    return [str(finding) for finding in (*wrong, *missing)]


def test_without_routed_it_is_known_by_the_commits_what_was_read(topics: Topics) -> None:
    assert judged_without_routed(topics, COUNT) == []
    assert sum("lost" in finding for finding in judged_without_routed(topics, 900)) > 90
    late, dead = topics.number(topics.late.pop()), topics.number(topics.dead.pop())
    found = judged_without_routed(topics, COUNT)
    assert [finding for finding in found if finding.startswith("routed")] == [
        f"routed: belongs in {topic}: event {number}: events-0@{number}, routed-0@{number}"
        for number, topic in sorted([(late, "late"), (dead, "dead-letters")])
    ]


def lose_an_event(topics: Topics) -> str:
    lost = topics.events.pop(7)
    topics.routed = [entry for entry in topics.routed if entry.value != lost.value]
    return f"events: lost: event {topics.number(lost)}"


def double_an_event(topics: Topics) -> str:
    topics.events.append(replace(topics.events[7], offset=COUNT))
    return f"events: out of order: event {topics.number(topics.events[7])}"


def change_an_event(topics: Topics) -> str:
    topics.events[7] = replace(topics.events[7], timestamp=1)
    return f"events: changed: event {topics.number(topics.events[7])}"


def lose_on_the_way(topics: Topics) -> str:
    return f"routed: lost: event {topics.number(topics.routed.pop(9))}"


def route_twice(topics: Topics) -> str:
    topics.routed.append(replace(topics.routed[9], partition=3, offset=5000))
    return f"routed: doubled: event {topics.number(topics.routed[9])}: routed-9@9, routed-3@5000"


def route_and_call_late(topics: Topics) -> str:
    topics.late.append(topics.routed[9])
    return f"late: doubled: event {topics.number(topics.routed[9])}"


def call_late_without_being_so(topics: Topics) -> str:
    topics.late.append(topics.routed.pop(9))
    return f"late: belongs in routed: event {topics.number(topics.late[-1])}"


def route_what_is_late(topics: Topics) -> str:
    topics.routed.append(topics.late.pop())
    return f"routed: belongs in late: event {topics.number(topics.routed[-1])}"


def route_what_has_no_key(topics: Topics) -> str:
    topics.routed.append(topics.dead.pop())
    return f"routed: belongs in dead-letters: event {topics.number(topics.routed[-1])}"


def change_on_the_way(topics: Topics) -> str:
    topics.routed[9] = replace(topics.routed[9], timestamp=topics.routed[9].timestamp + 1)
    return f"routed: changed: event {topics.number(topics.routed[9])}"


def lose_a_result(topics: Topics) -> str:
    place = topics.busiest()
    lost = json.loads(topics.results.pop(place).value or b"")
    return f"key {lost['key']}, window at {lost['start']}"


def double_a_result(topics: Topics) -> str:
    topics.results.append(replace(topics.results[3], offset=9000))
    return "results: doubled: key"


def invent_a_result(topics: Topics) -> str:
    data = json.loads(topics.results[3].value or b"") | {"key": "nobody"}
    topics.results.append(replace(topics.results[3], value=json.dumps(data).encode()))
    return "results: unexpected: key nobody"


def miss_one_event(topics: Topics) -> str:
    place = topics.busiest()
    missed = topics.ids(place)[4]
    topics.change_result(place, events=-1, ids=-missed, squares=-missed * missed)
    return f"event {missed} is missing"


def count_one_twice(topics: Topics) -> str:
    place = topics.busiest()
    twice = topics.ids(place)[4]
    topics.change_result(place, events=1, ids=twice, squares=twice * twice)
    return f"event {twice} is too many"


def count_two_twice(topics: Topics) -> str:
    place = topics.busiest()
    one, other = topics.ids(place)[4:6]
    topics.change_result(place, events=2, ids=one + other, squares=one * one + other * other)
    return f"events {one} and {other} are too many"


def count_one_of_another_window(topics: Topics) -> str:
    place = topics.busiest()
    foreign = next(n for n in range(COUNT) if n not in topics.ids(place))
    topics.change_result(place, events=1, ids=foreign, squares=foreign * foreign)
    return f"event {foreign} is too many, and belongs elsewhere"


def exchange_events(topics: Topics) -> str:
    place = topics.busiest()
    right = topics.ids(place)[4]
    wrong = next(n for n in range(COUNT) if n not in topics.ids(place))
    topics.change_result(place, ids=wrong - right, squares=wrong * wrong - right * right)
    return f"event {right} is lost, event {wrong} is one too many"


def add_up_wrongly(topics: Topics) -> str:
    topics.change_result(topics.busiest(), n=1)
    return "results: wrong: key"


FAULTS: list[Callable[[Topics], str]] = [
    lose_an_event,
    double_an_event,
    change_an_event,
    lose_on_the_way,
    route_twice,
    route_and_call_late,
    call_late_without_being_so,
    route_what_is_late,
    route_what_has_no_key,
    change_on_the_way,
    lose_a_result,
    double_a_result,
    invent_a_result,
    miss_one_event,
    count_one_twice,
    count_two_twice,
    count_one_of_another_window,
    exchange_events,
    add_up_wrongly,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_the_event_named(topics: Topics, fault: Callable[[Topics], str]) -> None:
    told = fault(topics)
    found = topics.judge()
    assert any(told in line for line in found), (told, found)


def test_what_comes_again_after_it_was_judged_is_found(topics: Topics) -> None:
    checker = Checker()
    checker.sent(range(COUNT))
    checker.take_events(topics.events)
    checker.take_routed(topics.routed)
    checker.take_late(topics.late)
    checker.take_dead_letters(topics.dead)
    checker.take_results(topics.results)
    assert checker.judge(ended=True) == ([], [])
    checker.take_routed([topics.routed[9]])
    checker.take_results([topics.results[3]])
    wrong, missing = checker.judge(ended=True)
    assert [(finding.topic, finding.fault) for finding in wrong] == [("routed", "doubled"), ("results", "doubled")]
    assert not missing


def test_an_event_of_a_partition_that_was_idle_may_be_late(topics: Topics) -> None:
    place = topics.busiest()
    number = topics.ids(place)[-1]
    entry = next(entry for entry in topics.routed if topics.number(entry) == number)
    data = json.loads(entry.value or b"")
    topics.routed.remove(entry)
    topics.late.append(replace(entry, headers=[("keygrouping-reason", IDLE.encode())]))
    topics.change_result(place, events=-1, ids=-number, squares=-number * number, n=-data["n"])
    assert [line for line in topics.judge() if "least" not in line and "most" not in line] == []


def test_a_seed_is_a_schedule() -> None:
    possible = Possible(["router-0", "worker-0"], ["router-0"], 2)
    assert str(draw(7, possible)) == str(draw(7, possible)) != str(draw(8, possible))
    drawn = [fault for seed in range(300) for fault in draw(seed, possible).faults]
    assert len({fault.kind for fault in drawn}) == 17
    assert all(fault.at + fault.lasts <= 30.05 for fault in drawn)


def test_what_is_not_there_is_not_struck() -> None:
    drawn = {fault.kind for seed in range(300) for fault in draw(seed, Possible(["router-0"])).faults}
    assert not drawn & {"clock", "disk full"}
