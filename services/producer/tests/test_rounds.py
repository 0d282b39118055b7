"""Laws of generated workloads and of rounds: repeatable, readable from anywhere, later in every round."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.workload import workload
from keygrouping_producer.opening import open_source
from keygrouping_producer.plan import Workload
from keygrouping_producer.sources.base import DAY_MS, Rounds
from keygrouping_producer.sources.countries import FIRST_MS, STEP_MS, Countries
from keygrouping_producer.sources.files import File
from keygrouping_producer.sources.nothing import Nothing

EVENTS = 25_000
COUNTRIES = Countries("country-skew-80", EVENTS, 1)


def read_all(rounds: Rounds, loop: bool, most: int = 1_000_000) -> list[tuple[bytes | None, int | None]]:
    events: list[tuple[bytes | None, int | None]] = []
    while len(events) < most and len(block := rounds.read(len(events), 7_001, loop)):
        events += zip(block.keys, block.times, strict=True)
    return events[:most]


def test_a_generated_workload_is_that_of_the_library_with_a_steady_event_time() -> None:
    skewed = workload("country-skew-80", EVENTS, 1)
    expected = [skewed.table.name(index) for chunk in skewed.chunks() for index in chunk.keys.tolist()]
    assert read_all(Rounds(COUNTRIES), loop=False) == [(key, FIRST_MS + i * STEP_MS) for i, key in enumerate(expected)]


def test_values_name_the_country_of_the_key() -> None:
    block = COUNTRIES.read(0, 100)
    for i, key in enumerate(block.keys):
        assert key is not None
        assert orjson.loads(block.value(i)) == {"country": key.decode()}


@given(start=st.integers(0, EVENTS + 10), count=st.integers(1, 12_000))
def test_a_generated_workload_can_be_read_from_anywhere(start: int, count: int) -> None:
    whole = Countries("country-skew-80", EVENTS, 1)
    block = COUNTRIES.read(start, count)
    assert len(block) > 0 or start >= EVENTS
    expected = [whole.read(i, 1).keys[0] for i in range(start, start + min(len(block), 3))]
    assert list(block.keys)[:3] == expected


def test_skew_is_what_the_name_says() -> None:
    source = open_source(Workload(workload="country-half-skew", events=20_000))
    halves = [Counter(source.read(start, 10_000).keys) for start in (0, 10_000)]
    assert halves[0].most_common(1)[0][1] > 7_500
    assert halves[1].most_common(1)[0][1] < 500


def test_without_loop_a_source_is_read_once() -> None:
    assert len(read_all(Rounds(COUNTRIES), loop=False)) == EVENTS


def test_rounds_repeat_the_keys_and_move_event_times_on_by_whole_days() -> None:
    events = read_all(Rounds(COUNTRIES), loop=True, most=3 * EVENTS)
    for number in (1, 2):
        for (key, time), (key_later, later) in zip(events[:EVENTS], events[number * EVENTS :], strict=False):
            assert time is not None
            assert (key_later, later) == (key, time + number * DAY_MS)
    times = [time for _, time in events if time is not None]
    assert times == sorted(times)


def test_a_round_that_was_begun_is_finished_when_looping_ends() -> None:
    rounds = Rounds(COUNTRIES)
    assert len(rounds.read(EVENTS, 10, loop=True)) == 10
    assert len(rounds.read(EVENTS, 10, loop=False)) == 0
    assert len(rounds.read(EVENTS + 1, 10, loop=False)) == 10
    assert len(rounds.read(2 * EVENTS, 10, loop=False)) == 0


def test_a_file_of_unknown_length_goes_on_in_a_later_round_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps({"id": str(i), "at": i}) for i in range(10)))
    once_through = Rounds(File(path, "id", "at", "epoch_ms"))
    expected = read_all(once_through, loop=True, most=35)
    for start in range(0, 35, 6):
        block = Rounds(File(path, "id", "at", "epoch_ms")).read(start, 1, loop=True)
        assert (block.keys[0], block.times[0]) == expected[start]


def test_events_without_time_stay_so_in_every_round(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":"x"}')
    assert read_all(Rounds(File(path, "id")), loop=True, most=3) == [(b"x", None)] * 3


def test_an_empty_source_has_no_rounds(tmp_path: Path) -> None:
    empty = tmp_path / "a.jsonl"
    empty.touch()
    for source in (Nothing(), File(empty, "id")):
        assert len(Rounds(source).read(0, 10, loop=True)) == 0
