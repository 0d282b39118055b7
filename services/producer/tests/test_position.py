"""Laws of positions: they survive their encoding, and a start goes on where the last one stood."""

from __future__ import annotations

from pathlib import Path

from aiokafka.structs import OffsetAndMetadata
from keygrouping_producer.plan import Pace, Plan, Workload
from keygrouping_producer.position import Counters, Place, Run, begin, places_in, resume

FLIGHTS = Plan(workload=Workload(workload="flights", key="dest"), pace=Pace(rate=5))
FASTER = Plan(workload=FLIGHTS.workload, pace=Pace(rate=50))
SKEWED = Plan(workload=Workload(workload="country-skew-80", seed=3), pace=Pace(loop=True))
PARTITIONS = 4


def run_of(plan: Plan, configured: Plan, number: int = 1) -> Run:
    return Run(number=number, plan=plan, configured=configured, partitions=PARTITIONS, slots=1)


def place_of(run: Run, position: int = 7) -> Place:
    return Place(run, position, Counters(sent=position - 1, bad=1, unkeyed=2))


def test_a_place_survives_its_encoding() -> None:
    for plan in (FLIGHTS, SKEWED, Plan(workload=Workload(workload="file", file=Path("/a/b"), key="k"))):
        place = place_of(run_of(plan, FLIGHTS))
        assert Place.decode(place.encode()) == place


def test_metadata_stay_well_below_what_a_broker_takes() -> None:
    plan = Plan(workload=Workload(workload="file", file=Path("/" + "x" * 500), key="k" * 100, time_format="y" * 100))
    assert len(place_of(run_of(plan, plan)).encode().metadata) < 2048


def test_what_is_not_ours_counts_as_nothing() -> None:
    for stored in (
        OffsetAndMetadata(-1, ""),
        OffsetAndMetadata(5, ""),
        OffsetAndMetadata(5, None),
        OffsetAndMetadata(5, "v1 3 4 idle"),
        OffsetAndMetadata(5, '{"run":{}}'),
    ):
        assert Place.decode(stored) is None


def test_the_first_start_begins_the_configured_plan() -> None:
    assert resume([None] * PARTITIONS, FLIGHTS, PARTITIONS, 1) == run_of(FLIGHTS, FLIGHTS)


def test_a_restart_with_the_same_settings_goes_on_with_what_was_set_live() -> None:
    live = run_of(SKEWED, FLIGHTS, 5)
    assert resume([place_of(live)] * PARTITIONS, FLIGHTS, PARTITIONS, 1) == live


def test_another_pace_in_the_settings_keeps_the_run() -> None:
    assert resume([place_of(run_of(FLIGHTS, FLIGHTS, 3))], FASTER, PARTITIONS, 1) == run_of(FASTER, FASTER, 3)


def test_another_workload_in_the_settings_begins_a_new_run() -> None:
    assert resume([place_of(run_of(FLIGHTS, FLIGHTS, 3))], SKEWED, PARTITIONS, 1) == run_of(SKEWED, SKEWED, 4)


def test_a_switch_that_was_cut_short_is_completed() -> None:
    old = run_of(FLIGHTS, FLIGHTS, 3)
    new = begin(old, SKEWED, FLIGHTS, PARTITIONS, 1)
    stored: dict[int, Place | None] = {0: place_of(new, 9), 1: place_of(old, 100), 2: None, 3: place_of(new, 4)}
    run = resume(stored.values(), FLIGHTS, PARTITIONS, 1)
    assert run == new
    places = places_in(run, stored, range(PARTITIONS))
    assert [places[p].position for p in range(PARTITIONS)] == [9, 0, 0, 4]
    assert [places[p].counters.sent for p in range(PARTITIONS)] == [8, 0, 0, 3]


def test_a_topic_that_grew_keeps_the_partitions_of_the_run() -> None:
    run = resume([place_of(run_of(FLIGHTS, FLIGHTS))], FLIGHTS, PARTITIONS * 2, 3)
    assert (run.partitions, run.slots) == (PARTITIONS, 3)
