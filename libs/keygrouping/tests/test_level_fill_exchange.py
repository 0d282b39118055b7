"""Level-fill with several sources that tell each other inside of an interval what they have brought."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.grouping import CHECKS, EXCHANGES, Exchanging, create_shared
from keygrouping.grouping.level_fill import LevelFill
from keygrouping.grouping.level_fill.exchange import Swing, light_in_each
from keygrouping.grouping.level_fill.shares import Counts
from keygrouping.hashing import hash_keys
from keygrouping.simulate import exchange
from numpy.typing import NDArray

KEYS = hash_keys([b"key%d" % number for number in range(1_001)])
FEW = 204
PARTITIONS = 20
INTERVAL = 40_000
MARKS = sorted({*CHECKS, *(number / EXCHANGES for number in range(1, EXCHANGES + 1))})


def sources_of(count: int, workers: int = 10, **settings: object) -> list[LevelFill]:
    groupings = [create_shared("level-fill", workers, settings) for _ in range(count)]
    return [grouping for grouping in groupings if isinstance(grouping, LevelFill)]


def skewed(random: np.random.Generator, share: float, events: int = INTERVAL) -> NDArray[np.int64]:
    """One key with this share, all others alike."""
    return np.where(random.random(events) < share, 0, random.integers(1, FEW, events))


def origins(keys: NDArray[np.int64], sources: int, by_key: bool) -> NDArray[np.int64]:
    """The source of each event, by its partition, of which each source has several."""
    return (KEYS[keys, 0] >> 3) % PARTITIONS % sources if by_key else np.arange(len(keys)) % sources


def interval(
    sources: Sequence[LevelFill],
    keys: NDArray[np.int64],
    *,
    by_key: bool = True,
    tell: Callable[[Sequence[LevelFill]], None] = exchange,
) -> tuple[float, float]:
    """λ and pairs per key of an interval, with its plans; `tell`: sources hear of each other."""
    routed, origin, begin = np.empty(len(keys), np.int64), origins(keys, len(sources), by_key), 0
    for mark in MARKS:
        end = round(mark * len(keys))
        for number, source in enumerate(sources):
            mine = begin + np.flatnonzero(origin[begin:end] == number)
            routed[mine] = source.route_batch(KEYS[keys[mine]], None, 0.0)
        begin = end
        tell(sources)
        if mark in CHECKS and any(source.urgent for source in sources):
            share_plan(sources, whole=False)
    share_plan(sources, whole=True)
    loads = np.bincount(routed, minlength=sources[0].workers)
    return float(loads.max() / loads.mean()), len(np.unique(keys * 1000 + routed)) / len(np.unique(keys))


def silence(_: Sequence[LevelFill]) -> None:
    """Nobody hears anything."""


def share_plan(sources: Sequence[LevelFill], whole: bool) -> None:
    statistics = [source.statistics() if whole else source.interim_statistics() for source in sources]
    plan = json.loads(json.dumps(sources[-1].plan(statistics)))
    for source in sources:
        source.apply(plan)


def together(sources: Sequence[LevelFill]) -> bool:
    """Whether the plan in force says that the whole stream is leveled."""
    told = {source._together for source in sources}
    assert len(told) == 1
    return told.pop()


@pytest.mark.parametrize("share", [0.4, 0.8])
@pytest.mark.parametrize("count", [2, 5])
def test_sources_with_other_keys_split_no_more_of_them_than_one_plan_needs(share: float, count: int) -> None:
    random, sources = np.random.default_rng(count), sources_of(count)
    figures = [interval(sources, skewed(random, share)) for _ in range(5)]
    lambdas, costs = np.array(figures[2:]).T
    assert together(sources)
    assert costs.max() <= 1.05 and lambdas.max() <= 1.01


@pytest.mark.parametrize("events", [0, 1, 200])
def test_an_interval_with_hardly_any_events_does_not_tell_that_the_stream_is_another(events: int) -> None:
    random, sources = np.random.default_rng(3), sources_of(5)
    for _ in range(4):
        interval(sources, skewed(random, 0.4))
    for _ in range(2):
        if events:
            interval(sources, skewed(random, 0.4, events))
        else:
            share_plan(sources, whole=True)
        assert together(sources)
        lambda_, cost = interval(sources, skewed(random, 0.4))
        assert together(sources)
        assert cost <= 1.06 and lambda_ <= 1.01


def test_a_stream_that_stays_at_few_events_is_judged_by_them() -> None:
    random, sources = np.random.default_rng(3), sources_of(5)
    for events in (INTERVAL, INTERVAL, INTERVAL, INTERVAL // 10):
        interval(sources, skewed(random, 0.4, events))
    assert together(sources)
    interval(sources, skewed(random, 0.4, INTERVAL // 10), by_key=False)
    assert not together(sources)


def test_keys_that_an_interval_has_split_are_whole_in_the_next_one() -> None:
    """Nor does a hot key, before its source hears of them, fill the gaps that they had left where they were split."""
    random, sources = np.random.default_rng(1), sources_of(20, 50)
    figures = [interval(sources, skewed(random, 0.4, 100_000)) for _ in range(6)]
    lambdas, costs = np.array(figures[1:]).T
    assert together(sources)
    assert costs.mean() <= 1.3 and lambdas.max() <= 1.015


def test_a_new_plan_tells_what_others_bring_before_they_do() -> None:
    """By its columns, key by key: the part of each source that it can level out, less what it brings itself."""
    random, sources = np.random.default_rng(1), sources_of(3, 12)
    for _ in range(2):
        interval(sources, skewed(random, 0.4))
    for keys in np.split(skewed(random, 0.4), 8):
        for number, source in enumerate(sources):
            source.route_batch(KEYS[keys[origins(keys, 3, by_key=True) == number]], None, 0.0)
        exchange(sources)
    whole = [json.loads(json.dumps(source.statistics())) for source in sources]
    plan = sources[0].plan(whole)
    fixed, single, at = np.array(plan["loads"]), {}, 0
    for hashed, share, width, known in zip(plan["hashes"], plan["shares"], plan["width"], plan["known"], strict=True):
        members, taken = (plan[name][at : at + known] for name in ("members", "taken"))
        at += known
        if width == 1 and share <= plan["heaviest_rock"]:
            single[hashed] = members[0]
        else:
            np.subtract.at(fixed, members, taken)
    parts = [source._part for source in sources]
    assert plan["together"] and sum(parts) == pytest.approx(1.0) and max(parts) > 0.9
    for source, part, told in zip(sources, parts, whole, strict=True):
        own = np.zeros(12)
        for bucket, weight in zip(plan["owner"], told["cold"], strict=True):
            own[bucket] += weight
        for hashed, weight, tracked in zip(told["hashes"], told["counts"], told["tracked"], strict=True):
            if tracked and hashed in single:
                own[single[hashed]] += weight
        again = sources_of(1, 12)[0]
        again.restore(json.loads(json.dumps(source.snapshot())))
        assert again._part == part
        source.apply(plan)
        expected = part * np.maximum(fixed, 0.0) / told["part"] - own / told["mass"]
        assert source._arrays.expected == pytest.approx(expected, abs=1e-12)


def test_a_plan_for_another_number_of_workers_is_not_judged_by_what_was_counted_before() -> None:
    """With 80 workers there are twice as many buckets as with 60."""
    random, sources = np.random.default_rng(1), sources_of(3, 60)
    for _ in range(2):
        interval(sources, skewed(random, 0.4))
    keys = skewed(random, 0.4)
    for number, source in enumerate(sources):
        source.route_batch(KEYS[keys[origins(keys, 3, by_key=True) == number]], None, 0.0)
    exchange(sources)
    for source in sources:
        source.interim_statistics()
        source.resize(80)
    assert together(sources)
    plan = sources[1].plan([source.interim_statistics() for source in sources[1:]])
    before = sources[0].epoch
    sources[0].apply(plan)
    assert sources[0].epoch > before


def test_what_has_stopped_or_burst_inside_of_an_interval_is_evened_out_in_it() -> None:
    random, sources = np.random.default_rng(1), sources_of(5)
    for _ in range(3):
        interval(sources, skewed(random, 0.6))
    assert together(sources)
    half, other = INTERVAL // 2, np.where(random.random(INTERVAL) < 0.9, 7, random.integers(0, FEW, INTERVAL))
    assert interval(sources, np.concatenate([skewed(random, 0.6)[:half], other[:half]]))[0] <= 1.02
    assert not together(sources), "a part of the stream has changed its source"


def test_with_the_same_stream_each_source_levels_its_own_part() -> None:
    random, sources, alone = np.random.default_rng(2), sources_of(3), sources_of(3)
    for _ in range(3):
        keys = skewed(random, 0.5)
        assert interval(sources, keys, by_key=False) == interval(alone, keys, by_key=False, tell=silence)
        assert not together(sources)


@pytest.mark.parametrize("count", [2, 5, 10])
def test_equal_keys_that_are_light_in_each_source_stay_whole_as_one_plan_has_them(count: int) -> None:
    """Ten sources have two keys per worker, which at most two workers share: none can level its own part."""
    figures = []
    for seed in range(2, 7):  # One stream alone is by chance up to 0.7 % more even than another.
        random, sources, alone = np.random.default_rng(seed), sources_of(count), sources_of(count)
        for number in range(6):
            keys = skewed(random, 0.0)
            both = (*interval(sources, keys), *interval(alone, keys, tell=silence))
            figures += [both] * (number >= 3)
        assert together(sources) and not together(alone)
    (lambda_, cost, lambda_alone, cost_alone) = np.array(figures).mean(axis=0)
    assert cost <= 1.1 and cost <= cost_alone - 0.1
    assert lambda_ <= 1.02 and lambda_ <= lambda_alone + 0.01


def test_what_a_part_of_an_interval_tells_of_light_keys_changes_no_level() -> None:
    """A hundred events have keys that seem heavy; only a whole interval tells."""
    random, sources = np.random.default_rng(3), sources_of(5)
    for _ in range(4):
        interval(sources, skewed(random, 0.0))
    assert together(sources)
    for source in sources:
        source.route_batch(KEYS[np.repeat(random.integers(0, FEW, 10), 10)], None, 0.0)
    share_plan(sources, whole=False)
    assert together(sources)


@pytest.mark.parametrize(("share", "begins", "goes_on"), [(0.06, True, True), (0.08, False, True), (0.1, False, False)])
def test_sources_go_on_with_the_whole_stream_where_they_would_not_begin(
    share: float, begins: bool, goes_on: bool
) -> None:
    """With one limit for both, chance would change it in every few intervals where keys are near to it."""
    (source,) = sources_of(1)
    source.route_batch(KEYS[np.arange(10_000) % 100], None, 0.0)
    source.route_batch(np.repeat(KEYS[150:151], round(10_000 * share / (1 - share)), axis=0), None, 0.0)
    told = Counts.parsed(source.interim_statistics(), 10, len(source._arrays.owners), source._fingerprint)
    assert light_in_each([told, told], 10, already=False) == begins
    assert light_in_each([told, told], 10, already=True) == goes_on


def test_equal_keys_that_are_not_light_in_each_source_are_leveled_there() -> None:
    """Twenty sources have one key per worker: each of them may have many workers, which are level then."""
    random, sources, alone = np.random.default_rng(2), sources_of(20), sources_of(20)
    for _ in range(4):
        keys = skewed(random, 0.0)
        assert interval(sources, keys) == interval(alone, keys, tell=silence)
        assert not together(sources)


def test_where_each_source_has_heavy_keys_of_its_own_it_levels_its_own_part() -> None:
    random, sources, alone = np.random.default_rng(6), sources_of(3), sources_of(3)
    for _ in range(3):
        keys = random.integers(0, 8, INTERVAL)
        figures = interval(sources, keys)
        assert figures == interval(alone, keys, tell=silence) and figures[0] <= 1.01
        assert not together(sources)


def test_what_others_bring_of_keys_with_one_worker_is_expected_before_they_tell_it() -> None:
    """The first has a hot key, which fills the gap that cold keys of the second leave, between exchanges, too."""
    sources = sources_of(2, 2)
    level_all(sources)
    chosen = sources[1].route_batch(KEYS[1:FEW], None, 0.0)
    cold, loads = KEYS[1:FEW][chosen == 1], np.bincount(chosen, minlength=2)
    for number in range(40):
        for source, keys in zip(sources, (np.repeat(KEYS[:1], 3 * len(cold), axis=0), cold), strict=True):
            loads = loads + np.bincount(source.route_batch(keys, None, 0.0), minlength=2)
        if number % 2:
            exchange(sources)
    assert loads[1] - loads[0] <= 1.5 * len(cold), "twice as much comes from one exchange to the next"


def test_a_stream_that_comes_from_one_source_after_the_other_is_not_leveled_as_a_whole() -> None:
    random, sources = np.random.default_rng(3), sources_of(4)
    for _ in range(3):
        keys = skewed(random, 0.4)
        interval(sources, keys[np.argsort(origins(keys, 4, by_key=True), kind="stable")])
        assert not together(sources)


@pytest.mark.parametrize("in_turn", ["all", "batches"])
def test_where_sources_bring_their_parts_in_turn_plans_leave_it_as_even_as_it_is_without(in_turn: str) -> None:
    """As if each reads what has waited, or some hundreds of events at a time: by fewer workers λ would be 1.05."""
    light, lambdas = 1 / np.arange(1, 1_001) ** 0.8, {}
    light /= light.sum()
    for planned in (True, False):
        random, sources = np.random.default_rng(5), sources_of(5, 50, planned=planned)
        found = []
        for _ in range(7):
            keys = np.where(random.random(INTERVAL) < 0.3, 0, 1 + random.choice(1_000, INTERVAL, p=light))
            turns = origins(keys, 5, by_key=True)
            if in_turn == "batches":
                turns = turns + 5 * (np.arange(len(keys)) // 2_500)
            found.append(interval(sources, keys[np.argsort(turns, kind="stable")])[0])
        lambdas[planned] = float(np.mean(found[2:]))
    assert lambdas[True] <= 1.01 * lambdas[False]


def test_who_hears_nothing_more_goes_on_by_its_own_part() -> None:
    random, sources = np.random.default_rng(4), sources_of(5)
    for _ in range(3):
        interval(sources, skewed(random, 0.8))
    assert together(sources)
    lambda_, _ = interval(sources, skewed(random, 0.8), tell=silence)
    assert lambda_ <= 1.03 and not together(sources)


def mute(sources: Sequence[LevelFill]) -> None:
    """Nobody hears the first one, which hears all."""
    reports = [source.report() for source in sources]
    for number, source in enumerate(sources):
        source.hear([report for other, report in enumerate(reports) if other and other != number])


def ahead(sources: Sequence[LevelFill]) -> None:
    """The clock of the first one is ahead: the others hear all that it brings in this interval at its begin."""
    reports = [source.report() for source in sources]
    reports[0] = {**reports[0], "loads": [INTERVAL / len(sources) / 10] * 10}
    sources[0].hear([])
    for number, source in enumerate(sources[1:], 1):
        source.hear(reports[:number] + reports[number + 1 :])


@pytest.mark.parametrize("tell", [mute, ahead])
def test_a_source_of_which_the_others_do_not_hear_what_it_brings_leaves_each_with_its_own_part(
    tell: Callable[[Sequence[LevelFill]], None],
) -> None:
    random, sources, alone = np.random.default_rng(5), sources_of(5), sources_of(5)
    for _ in range(3):
        keys = skewed(random, 0.4)
        assert interval(sources, keys, tell=tell) == interval(alone, keys, tell=silence)
        assert not together(sources)


events = st.lists(st.integers(0, 40), max_size=300)


@settings(max_examples=25, deadline=None)
@given(rounds=st.lists(st.tuples(events, events), max_size=8), capacities=st.sampled_from([[1.0] * 3, [2.0, 1.0, 0.5]]))
def test_a_source_tells_what_it_has_routed_whatever_it_hears(
    rounds: list[tuple[list[int], list[int]]], capacities: list[float]
) -> None:
    sources = sources_of(2, 3, capacities=capacities)
    level_all(sources)
    loads = np.zeros((2, 3))
    for parts in rounds:
        for number, part in enumerate(parts):
            routed = sources[number].route_batch(KEYS[np.array(part, int)], None, 0.0)
            loads[number] += np.bincount(routed, minlength=3)
        reports = [source.report() for source in sources]
        assert [report["loads"] for report in reports] == [pytest.approx(own.tolist()) for own in loads]
        exchange(sources)
        for source in sources:
            again = sources_of(1, 3, capacities=capacities)[0]
            again.restore(json.loads(json.dumps(source.snapshot())))
            assert again.snapshot() == source.snapshot() and again.report() == source.report()


def level_all(sources: Sequence[LevelFill]) -> None:
    """As after a plan that says so."""
    plan = {**sources[0].plan([source.statistics() for source in sources]), "together": True}
    for source in sources:
        source.apply(plan)


@pytest.mark.parametrize(
    "wrong",
    [
        {"loads": None},
        {"loads": [1.0, 2.0]},
        {"loads": [-1.0] * 10},
        {"loads": [1e300] * 10},
        {"outside": [0.0] * 9},
        {"fixed": [float("inf")] * 10},
        {"fixed": [1e300] * 10},
        {"movable": float("nan")},
    ],
)
def test_a_report_that_is_none_is_left_out_and_named(wrong: dict[str, Any]) -> None:
    sources = sources_of(3)
    level_all(sources)
    for source in sources:
        source.route_batch(KEYS[:FEW], None, 0.0)
    report = sources[2].report()
    assert sources[0].hear([{**report, **wrong}, report]) == [0] and sources[1].hear([report]) == []
    assert sources[0].snapshot() == sources[1].snapshot()
    assert sources[0].hear([{}]) == [0]


def test_a_worker_that_others_have_filled_with_pinned_keys_gets_nothing_from_any_source() -> None:
    sources = sources_of(2, 4)
    level_all(sources)
    sources[1].bear(np.array([900.0, 0.0, 0.0, 0.0]))
    exchange(sources)
    hot = np.repeat(KEYS[:1], 900, axis=0)
    loads = np.bincount(sources[0].route_batch(hot, None, 0.0), minlength=4)
    assert loads[0] <= 40 and loads[1:].max() <= 1.1 * loads[1:].mean()


def test_how_far_a_source_s_part_of_the_stream_swings() -> None:
    steady, bursts = Swing(), Swing()
    assert steady.most is None and steady.saw(1.0, 2.0).most is None
    for number in range(1, 9):
        steady, bursts = steady.saw(number, 4.0 * number), bursts.saw(10.0 * (number // 2), 10.0 * number)
    assert steady.most == pytest.approx(0.0) and bursts.most == pytest.approx(0.25)


def swings(parts: Sequence[Sequence[float]]) -> list[float | None]:
    """What a source tells of each interval that has these parts of the stream one after the other."""
    swing, found = Swing(), []
    for interval_ in parts:
        own = np.cumsum(np.repeat(interval_, 8 // len(interval_)))
        for number, brought in enumerate(own.tolist(), 1):
            swing = swing.saw(brought, number)
        found.append(swing.most)
        swing = swing.ended()
    return found


def test_what_swung_inside_of_an_interval_is_remembered_for_two_more() -> None:
    assert swings([[0.5], [0.25, 0.75], [0.5], [0.5], [0.5]]) == pytest.approx([0.0, 0.125, 0.125, 0.125, 0.0])


def test_what_swung_from_one_interval_to_the_next_is_not_remembered() -> None:
    """It happens once where the sources have shared the partitions again."""
    assert swings([[0.25], [0.5], [0.5]]) == pytest.approx([0.0, 0.25, 0.0])


@pytest.mark.parametrize("change", ["settings", "counters", "workers"])
def test_other_settings_or_workers_don_t_make_a_stream_steady(change: str) -> None:
    (source,), nothing = sources_of(1, 4), {"outside": [0.0] * 4, "movable": 0.0}
    other: dict[str, Any] = {"loads": [9.0] * 4, "fixed": [9.0] * 4, **nothing}

    def an_interval_of(bursts: int) -> Any:
        for number in range(1, 9):
            if number % bursts == 0:
                source.route_batch(KEYS[: 9 * bursts], None, 0.0)
            source.hear([{name: np.multiply(part, number).tolist() for name, part in other.items()}])
        return source.statistics()["swing"]

    assert an_interval_of(1) < 0.01 and (swinging := an_interval_of(4)) > 0.05
    if change == "workers":
        source.resize(5)
        other |= {name: [9.0] * 4 + [0.0] for name in ("loads", "fixed")} | {"outside": [0.0] * 5}
    else:
        settings = {"eps": 0.03} if change == "settings" else {"counters": 64}
        (after,) = sources_of(1, 4, **settings)
        assert after.adopt(source)
        source = after
    assert an_interval_of(1) == an_interval_of(1) == swinging
    assert an_interval_of(1) < 0.01


@pytest.mark.parametrize(("pinned", "known"), [(0.0, False), (900.0, True)])
def test_where_keys_that_none_can_move_fill_a_worker_each_source_levels_its_own_part(
    pinned: float, known: bool
) -> None:
    sources = sources_of(2, 4)
    for number in range(1, 4):
        sources[0].route_batch(KEYS[:100], None, 0.0)
        loads = [number * load for load in (1000.0, 100.0, 100.0, 100.0)]
        outside = [number * pinned, 0.0, 0.0, 0.0]
        sources[0].hear([{"loads": loads, "outside": outside, "fixed": loads, "movable": 0.0}])
    assert (sources[0].statistics()["swing"] is not None) == known


def test_only_level_fill_asks_for_reports() -> None:
    assert isinstance(create_shared("level-fill", 2), Exchanging)
    assert not isinstance(create_shared("w-choices", 2), Exchanging)


def one_lane(events: int, weight: float, worker: int, workers: int) -> list[NDArray[np.float64]]:
    """Loads of so many events that others have routed to one worker, one by one."""
    loads = np.zeros(workers)
    loads[worker] = weight
    return [loads] * events


def test_sources_whose_keys_are_all_pinned_route_and_plan() -> None:
    """By rounding each worker may have more than its part of all weight, and the last one, too."""
    for events in range(1, 20):
        sources = sources_of(2, 2)
        level_all(sources)
        for loads in [*one_lane(events, 1e9 + 0.1, 0, 2), *one_lane(3, 0.1, 1, 2)]:
            sources[0].bear(loads)
        assert np.isfinite(sources[0]._arrays.average) and not sources[0]._arrays.state["aside_workers"] > 1
        exchange(sources)
        assert len(sources[0].route_batch(KEYS[:9], np.zeros(9), 0.0)) == 9
        assert len(sources[1].route_batch(KEYS[:9], np.zeros(9), 0.0)) == 9
        share_plan(sources, whole=True)


def test_reports_that_contradict_themselves_stop_nothing() -> None:
    sources = sources_of(1, 3)
    level_all(sources)
    nothing = {"loads": [0.0] * 3, "outside": [0.0] * 3, "fixed": [0.0] * 3, "movable": 0.0}
    for wrong in (
        nothing,
        {"outside": [9.0] * 3},
        {"fixed": [9.0] * 3},
        {"movable": 5.0},
        {"outside": [0.0, 0.0, 1e9]},
    ):
        assert sources[0].hear([{**nothing, **wrong}]) == []
        sources[0].route_batch(KEYS[:50], None, 0.0)
        assert sources[0]._arrays.average >= 0 and sources[0]._arrays.state["until"] >= 0


@pytest.mark.parametrize("pinned", [[500.0] * 4, [900.0, 0.0, 0.0, 0.0]])
def test_keys_that_are_pinned_after_nothing_more_was_heard_leave_each_worker_its_part(pinned: list[float]) -> None:
    sources = sources_of(2, 4)
    for _ in range(2):
        for source in sources:
            source.route_batch(np.repeat(KEYS[:20], 100, axis=0), None, 0.0)
        level_all(sources)
    for source in sources:
        source.bear(np.array(pinned))
        source.route_batch(np.repeat(KEYS[:1], 100, axis=0), None, 0.0)
    exchange(sources)
    loads = np.zeros(4)
    for _ in range(40):
        sources[0].bear(np.full(4, 1.0))
        loads += np.bincount(sources[0].route_batch(np.repeat(KEYS[:1], 50, axis=0), None, 0.0), minlength=4)
        assert 0 <= sources[0]._arrays.average <= sources[0]._arrays.mass
    free = loads[np.array(pinned) < 900]
    assert free.max() <= 1.3 * free.mean()


def test_who_has_brought_nothing_forgets_what_others_have_where_each_levels_its_own_part() -> None:
    sources = sources_of(2, 4)
    level_all(sources)
    sources[1].route_batch(np.repeat(KEYS[:1], 900, axis=0), None, 0.0)
    exchange(sources)
    assert sources[0]._arrays.brought.any()
    plan = {**sources[0].plan([source.interim_statistics() for source in sources]), "together": False}
    for source in sources:
        source.apply(plan)
    assert not together(sources) and not sources[0]._arrays.loads.any() and sources[0]._arrays.average == 0


def test_nobody_is_deaf_before_an_interval_has_told_how_long_that_takes() -> None:
    sources = sources_of(2, 4)
    level_all(sources)
    for source in sources:
        source.route_batch(np.repeat(KEYS[:30], 9, axis=0), None, 0.0)
    exchange(sources)
    for _ in range(3):
        sources[0].route_batch(KEYS[:30], None, 0.0)
        assert sources[0]._arrays.state["others"] > 0, "it still knows what the other one has brought"


def test_what_others_have_brought_is_as_long_as_the_workers_are_many() -> None:
    sources = sources_of(2, 4)
    level_all(sources)
    for workers in (2, 5, 1):
        sources[0].bear(np.ones(sources[0].workers))
        before = sources[0].report()
        for wrong in (1, 3, sources[0].workers + 1):
            if wrong != sources[0].workers:
                with pytest.raises(ValueError, match="loads must have shape"):
                    sources[0].bear(np.ones(wrong))
        assert sources[0].report() == before
        for source in sources:
            source.resize(workers)
        assert sources[1].hear([before]) == [0], "it is of another number of workers"
        exchange(sources)
        assert sources[0].report()["outside"] == [0.0] * workers
