"""Level-fill's drift: keys of a stream whose shares change keep their workers; those of a steady one do not."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from keygrouping.grouping import create
from keygrouping.grouping.level_fill import LevelFill
from keygrouping.grouping.level_fill.shares import Counts, Seen
from keygrouping.grouping.level_fill.state import LIGHT
from keygrouping.grouping.protocol import Hashes
from keygrouping.hashing import hash_keys

INTERVAL = 40_000
DRIFTING = 1.4
HASHES = hash_keys([b"key%d" % number for number in range(5_000)])


def sources(count: int, workers: int = 10, **given: object) -> list[LevelFill]:
    made = [create("level-fill", workers, {"interval": None, **given}) for _ in range(count)]
    assert all(isinstance(each, LevelFill) for each in made)
    return made  # type: ignore[return-value]


def drawn(seed: int, z: float, first: int = 0, keys: int = 1_000, size: int = INTERVAL) -> Hashes:
    """Events of an interval by Zipf's law; the heaviest key is number `first`."""
    weights = 1 / np.arange(1, keys + 1) ** z
    chosen = np.random.default_rng(seed).choice(keys, size, p=weights / weights.sum())
    found: Hashes = HASHES[(first + chosen) % len(HASHES)]
    return found


def route(all_: Sequence[LevelFill], events: Hashes) -> None:
    """Dealt by key, as Kafka does."""
    owner = (events[:, 0] >> 7) % len(all_)
    for number, source in enumerate(all_):
        source.route_batch(events[owner == number], None, 0.0)


def next_plan(all_: Sequence[LevelFill]) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(json.dumps(all_[0].plan([each.statistics() for each in all_])))
    for each in all_:
        each.apply(plan)
    return plan


def drift_of(plan: dict[str, Any]) -> float:
    return float(plan["estimates"]["drift"])


def widths_of(told: dict[str, Any]) -> dict[int, int]:
    """Of the keys in a plan, or in what a source has counted."""
    return dict(zip(told["hashes"], told["width"], strict=True))


def usual_drift_of(plan: dict[str, Any]) -> float:
    return float(plan["estimates"]["usual_drift"])


@pytest.mark.parametrize("workers", [10, 50])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("z", [0.5, 1.0, 2.0])
def test_a_steady_stream_drifts_by_chance_only(z: float, count: int, workers: int) -> None:
    """Also in the first intervals, in which sources have counted some keys for a part of the time."""
    made = sources(count, workers)
    for seed in range(8):
        route(made, drawn(seed, z))
        assert 0.6 < drift_of(next_plan(made)) < DRIFTING


def test_a_stream_that_changes_once_is_steady_again_two_intervals_later() -> None:
    made, seen = sources(1), []
    for interval in range(10):
        route(made, drawn(interval, 1.0, first=0 if interval < 5 else 100))
        plan = next_plan(made)
        seen.append(max(drift_of(plan), usual_drift_of(plan)) >= DRIFTING)
    assert seen[:6] == [False] * 5 + [True] and not any(seen[7:])


def test_a_stream_that_often_changes_is_not_steady_between_two_changes() -> None:
    """Every third interval has other keys: the last one alone tells of none, but no key loses a worker for it."""
    (source,), seen, compared = sources(1), [], 0
    for interval in range(18):
        route([source], drawn(interval, 1.0, first=100 * (interval // 3)))
        before = widths_of(source.interim_statistics())
        plan = next_plan([source])
        seen.append((drift_of(plan) >= DRIFTING, usual_drift_of(plan) >= DRIFTING))
        if interval < 6 or seen[-1][0]:
            continue
        after = widths_of(plan)
        kept = [key for key, width in before.items() if width > 1 and key in after]
        assert all(after[key] >= before[key] for key in kept)
        compared += len(kept)
    assert not all(lately for lately, _ in seen[6:])
    assert all(usually for _, usually in seen[6:])
    assert compared > 20


@pytest.mark.parametrize(("deviations", "drifts"), [(3.0, True), (6.0, True), (0.0, False)])
def test_many_keys_tell_more_than_one(deviations: float, drifts: bool) -> None:
    """One share that changes by six deviations may be chance among all keys that there are; 30 that do so aren't."""
    found = []
    for keys in (1, 30):
        (source,) = sources(1)
        for number in range(2):
            part = INTERVAL // 60  # Half of the events are of cold keys.
            change = round(number * deviations * np.sqrt(2 * part))
            hot = [part + change * (1 if key % 2 else -1) for key in range(keys)]
            events = np.random.default_rng(number).integers(-(2**63), 2**63, (INTERVAL, 1))
            events[: sum(hot)] = HASHES[np.repeat(np.arange(keys), hot)]
            source.route_batch(np.random.default_rng(number).permutation(events), None, 0.0)
            plan = next_plan([source])
        found.append(drift_of(plan))
    assert (found[1] >= DRIFTING) == drifts
    assert deviations > 3 or found[0] < DRIFTING


@pytest.mark.parametrize("sizes", [[1, 40, 40, 40], [10, 20, 40, 80, 160, 160, 80, 40], [40, 40, 40, 0.1, 40, 40]])
def test_more_or_fewer_events_of_the_same_stream_are_no_drift(sizes: list[float]) -> None:
    made = sources(1)
    for seed, thousands in enumerate(sizes):
        route(made, drawn(seed, 1.0, size=round(1000 * thousands)))
        assert drift_of(next_plan(made)) < DRIFTING


def test_where_keys_drift_none_loses_a_worker() -> None:
    made, compared = sources(1), 0
    for interval in range(6):
        for part in range(4):
            route(made, drawn(interval, 1.0, first=300 * (4 * interval + part), size=INTERVAL // 4))
        before = widths_of(made[0].interim_statistics())
        plan = next_plan(made)
        if interval < 2:
            continue
        assert drift_of(plan) >= DRIFTING
        after = widths_of(plan)
        kept = [key for key, width in before.items() if width > 1 and key in after]
        assert all(after[key] >= before[key] for key in kept)
        compared += len(kept)
    assert compared > 20


def test_where_keys_drift_no_plan_is_urgent() -> None:
    """What a part of the interval tells is past by then; of a steady stream with the same loads it is not."""
    made = sources(1)
    for interval in range(4):
        route(made, drawn(interval, 1.0, first=300 * interval))
        plan = next_plan(made)
    flood = HASHES[np.concatenate([np.zeros(3_000, int), np.arange(3_000)])]
    steady = {**plan, "estimates": {**plan["estimates"], "drift": 1.0, "usual_drift": 1.0}}
    asked = []
    for each in (plan, steady):
        (source,) = sources(1)
        source.apply(each)
        source.bear(np.array([3_000.0, *[0.0] * 9]))
        source.route_batch(flood, None, 0.0)
        asked.append(source.urgent)
    assert drift_of(plan) >= DRIFTING
    assert asked == [False, True]


@pytest.mark.parametrize(("count", "workers"), [(1, 10), (5, 10), (5, 50)])
def test_the_first_interval_tells_whether_keys_come_all_at_once(count: int, workers: int) -> None:
    """Sorted by key they do: they keep the workers that they have got. In any other order they have those planned."""
    for in_order in (True, False):
        made, events = sources(count, workers), drawn(1, 1.0)
        if in_order:
            events = np.sort(events, axis=0)
        route(made, events)
        before = sum(each._arrays.keys["width"][each._arrays.tracked].sum() for each in made)
        plan = next_plan(made)
        assert (drift_of(plan) >= DRIFTING) == in_order
        after = sum(each._arrays.keys["width"][each._arrays.tracked].sum() for each in made)
        assert not in_order or after >= before


@pytest.mark.parametrize("z", [0.5, 1.0])
def test_where_an_interval_has_few_events_no_key_loses_a_worker(z: float) -> None:
    """499 per worker are few, 2,000 are not: keys of the same stream then have as many workers as planned."""
    lost = []
    for each in (499, 2_000):
        made, narrowed = sources(2), 0
        for interval in range(6):
            route(made, drawn(interval, z, size=10 * each))
            counts = [source.interim_statistics() for source in made]
            before: dict[int, int] = {}
            for source in counts:
                for key, width in zip(source["hashes"], source["width"], strict=True):
                    before[key] = max(before.get(key, 0), width)
            plan = next_plan(made)
            after = dict(zip(plan["hashes"], plan["width"], strict=True))
            narrowed += sum(before[key] > after[key] for key in before if key in after)
        lost.append(narrowed)
    assert lost[0] == 0 < lost[1]


def counted(source: LevelFill, **columns: object) -> Counts:
    counts = Counts.parsed(source.statistics(), 10, len(source._arrays.owners), source._fingerprint)
    return replace(counts, **columns)  # type: ignore[arg-type]


def test_a_key_that_one_source_has_counted_late_is_as_frequent_as_there() -> None:
    """Its source has 100 of the last 500 events of 1,000, so a fifth of a source that has a quarter of the stream."""
    (source,) = sources(1)
    late = {
        "mass": 1_000.0,
        "hashes": HASHES[0],
        "counts": np.array([100.0]),
        "counted": np.array([500.0]),
        "tracked": np.array([True]),
        "known": np.array([1]),
        "width": np.array([1]),
        "members": np.array([3], np.int32),
    }
    seen = Seen.merged([counted(source, **late), counted(source, mass=3_000.0)], source._arrays.owners, 10)
    assert seen.keys.shares == pytest.approx([0.05])
    seen = Seen.merged([counted(source, **late), counted(source)], source._arrays.owners, 10)
    assert seen.keys.shares == pytest.approx([0.2])


def test_a_hot_key_may_have_all_workers_though_it_has_less_than_a_fair_share() -> None:
    (source,) = sources(1, 50)
    for seed in range(2):
        source.route_batch(drawn(seed, 1.0, keys=5_000), None, 0.0)
        next_plan([source])
    keys = source._arrays.keys[source._arrays.tracked]
    light = keys["hot"] & (50 * keys["share"] < 1 / LIGHT[1])
    assert np.any(light)
    assert np.all(keys["cap"][keys["hot"]] == 50)
    assert np.all(keys["cap"][~keys["hot"]] <= 6)


@pytest.mark.parametrize("events", [20, 160, 800, 20_000])
def test_what_is_allowed_for_chance_is_little_of_what_an_interval_brings(events: int) -> None:
    """Of the first one nobody knows that; and early in an interval there is more chance than in the end."""
    (source,) = sources(1, eps=0.02)
    for part in (1.0, 0.25, 1.0):
        source.route_batch(drawn(1, 0.5, size=round(10 * events * part)), None, 0.0)
        state = source._arrays.state[0]
        level, noise = state["level"], 0.5 * np.sqrt(state["level"])
        allowed = min(noise, source._arrays.most_noise)
        assert state["light_limit"] == pytest.approx(1.02 * level + allowed)
        assert state["hot_limit"] == pytest.approx(level + allowed)
        if part == 1.0:
            next_plan([source])
    assert source._arrays.most_noise == pytest.approx(0.02 * 1.25 * events)


def test_as_many_keys_as_workers_may_all_have_all_of_them() -> None:
    """One after the other becomes hot; the last one, too, finds places for so many workers."""
    workers = 50
    (source,) = sources(1, workers, planned=False)
    for key in range(workers):
        chosen = source.route_batch(np.repeat(HASHES[key : key + 1], 4_000, axis=0), None, 0.0)
        assert len(np.unique(chosen)) >= 0.75 * workers


def test_places_of_thousands_of_workers_are_not_one_for_each_pair() -> None:
    (source,) = sources(1, 3_000)
    assert len(source._arrays.pool) < 3_000**2


@pytest.mark.parametrize(("before", "after"), [(0.02, 0.5), (0.5, 0.02)])
def test_other_settings_change_how_many_workers_a_key_may_have(before: float, after: float) -> None:
    (source,) = sources(1, 20, eps=before)
    for seed in range(2):
        route([source], drawn(seed, 1.0))
        next_plan([source])
    (other,) = sources(1, 20, eps=after)
    assert other.adopt(source)
    keys = other._arrays.keys[other._arrays.tracked]
    assert np.all(keys["cap"][keys["hot"]] == 20)
    light = ~keys["hot"] & (20 * keys["share"] < 1 / LIGHT[0])
    assert np.any(light) and np.all(keys["cap"][light] == 2)
