"""Level-fill: levels, plans shared by sources, re-plans inside intervals, resizing, weights and capacities."""

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.grouping import Planned, create, shared_settings
from keygrouping.grouping.level_fill import VARIANTS, LevelFill
from keygrouping.grouping.level_fill.buckets import owners_for, resized
from keygrouping.grouping.level_fill.keys import Keys
from keygrouping.grouping.level_fill.plan import Shares, place
from keygrouping.grouping.level_fill.route_kernel import choice
from keygrouping.grouping.protocol import Hashes
from keygrouping.hashing import hash_keys

INTERVAL = 20_000
KEYS = [f"key{number}".encode() for number in range(400)]
HASHES = hash_keys(KEYS)


def built(workers: int = 10, /, **given: object) -> LevelFill:
    grouping = create("level-fill", workers, given)
    assert isinstance(grouping, LevelFill)
    return grouping


def events(seed: int, size: int = INTERVAL, hot: float = 0.5) -> Hashes:
    """Events of keys, the first of which has this share, the others by Zipf."""
    random = np.random.default_rng(seed)
    share = 1 / (1.0 + np.arange(len(KEYS)))
    others = random.choice(len(KEYS), size, p=share / share.sum())
    return HASHES[np.where(random.random(size) < hot, 0, others)]


def imbalance(routed: Any, workers: int) -> float:
    loads = np.bincount(routed, minlength=workers)
    return float(loads.max() / loads.mean())


def keys_of(plan: dict[str, Any]) -> dict[int, tuple[int, list[int], list[float]]]:
    """Width, members and planned shares of each key of a plan."""
    ends = np.cumsum([0, *plan["known"]])
    parts = itertools.pairwise(ends.tolist())
    columns = zip(plan["hashes"], plan["width"], parts, strict=True)
    return {key: (width, plan["members"][a:b], plan["taken"][a:b]) for key, width, (a, b) in columns}


def random_shares(seed: int, workers: int, total: float) -> Shares:
    """Shares of random keys and of 64 buckets, which sum up to this total."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 40))
    known = random.integers(1, min(workers, 3) + 1, count)
    members = np.concatenate([random.permutation(workers)[:number] for number in known]).astype(np.int32)
    shares, cold = 0.2 + random.pareto(1.2, count), total * random.choice([0, 0.1, 0.5])
    shares *= (total - cold) / shares.sum()
    hashes = np.sort(random.integers(-(2**63), 2**63, count))
    keys = Keys(hashes, shares, random.integers(1, known + 1), known, members, np.zeros(len(members)))
    events, interval = 10.0 ** random.integers(3, 8), 10.0 ** random.integers(3, 7)
    bursts, keep = float(random.choice([0.0, 1.0])), bool(random.choice([False, True]))
    return Shares(keys, np.full(64, cold / 64), events, interval, np.zeros(workers), bursts, keep)


class TestRouting:
    def test_a_cold_key_has_one_owner(self) -> None:
        grouping = built()
        rare = np.random.default_rng(1).integers(-(2**63), 2**63, (20_000, 1))
        assert grouping.route_batch(rare, None, 0.0).tolist() == grouping.route_batch(rare, None, 0.0).tolist()
        assert not grouping.hot(10)

    def test_a_hot_key_fills_all_workers_to_one_level_in_its_first_interval(self) -> None:
        grouping = built()
        assert imbalance(grouping.route_batch(events(1, hot=0.8), None, 0.0), 10) < 1.01
        assert grouping.hot(1)[0].width == 10

    @settings(max_examples=15, deadline=None)
    @given(seed=st.integers(0, 99), hot=st.floats(0, 1), workers=st.integers(1, 40), most=st.integers(1, 6))
    def test_a_tracked_key_never_exceeds_its_cap(self, seed: int, hot: float, workers: int, most: int) -> None:
        grouping = built(workers, planned=False, evidence=64.0, eps=0.0, slack=0.0, widths=[most, 7, 7])
        grouping.route_batch(events(seed, hot=hot), None, 0.0)
        for key in grouping.hot(len(KEYS)):
            assert key.width <= (most if key.share < 0.4 / workers else workers)
        for slot in np.flatnonzero(grouping._arrays.tracked).tolist():
            members = grouping._members(slot)
            assert len(set(members)) == len(members) and set(members) <= set(range(workers))

    @settings(max_examples=10, deadline=None)
    @given(cuts=st.lists(st.integers(0, 6_000), max_size=6), weighted=st.booleans())
    def test_batches_can_be_cut_anywhere(self, cuts: list[int], weighted: bool) -> None:
        whole, cut = built(evidence=4.0), built(evidence=4.0)
        stream = events(3, 6_000)
        weights = np.random.default_rng(1).uniform(0, 9, len(stream)) if weighted else None
        expected = whole.route_batch(stream, weights, 0.0).tolist()
        bounds = [0, *sorted(cuts), len(stream)]
        parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        routed = [cut.route_batch(stream[p], None if weights is None else weights[p], 0.0).tolist() for p in parts]
        assert list(itertools.chain(*routed)) == expected and cut.snapshot() == whole.snapshot()

    def test_hot_only_never_splits_a_key_that_fits_on_one_worker(self) -> None:
        grouping = built(4, **VARIANTS["hot-only"])
        for second in range(5):
            grouping.route_batch(events(second, hot=0.0), None, 10.0 * second)
        assert all(key.width == 1 for key in grouping.hot(400))

    @pytest.mark.parametrize(("share", "width"), [(0.02, 1), (0.1, 1), (0.18, 10)])
    def test_hot_only_splits_a_key_beside_cold_hashes_only_if_it_fits_on_no_worker(
        self, share: float, width: int
    ) -> None:
        grouping, random = built(10, **VARIANTS["hot-only"]), np.random.default_rng(1)
        for second in range(4):
            cold = random.integers(-(2**63), 2**63, (40_000, 1))
            stream = np.where(random.random((40_000, 1)) < share, HASHES[0], cold)
            grouping.route_batch(stream, None, 10.0 * second)
        (key,) = grouping.hot(9)
        assert key.hash == HASHES[0, 0] and key.width == width

    def test_weights_are_balanced(self) -> None:
        grouping = built()
        stream = events(1, 60_000)
        weights = np.random.default_rng(2).pareto(3, len(stream)) * 1000
        routed = grouping.route_batch(stream, weights, 0.0)
        loads = np.bincount(routed, weights, 10)
        assert loads.max() / loads.mean() < 1.05

    def test_loads_follow_capacities(self) -> None:
        grouping = built(4, capacities=[2.0, 1.0, 0.5, 0.5])
        for second in range(3):
            routed = grouping.route_batch(events(second, 40_000), None, 10.0 * second)
        assert np.bincount(routed) / len(routed) == pytest.approx([0.5, 0.25, 0.125, 0.125], rel=0.02)

    def test_independent_sources_make_no_plan_but_balance(self) -> None:
        grouping = built(**VARIANTS["independent"])
        loads = [imbalance(grouping.route_batch(events(second), None, 10.0 * second), 10) for second in range(5)]
        assert max(loads) < 1.05


class TestPlans:
    def shared(self, sources: int = 3, **given: object) -> list[LevelFill]:
        return [built(**{"interval": None, **given}) for _ in range(sources)]

    def test_it_is_planned_and_can_be_shared(self) -> None:
        assert isinstance(built(), Planned) and not built().shared
        assert shared_settings("level-fill") == {"interval": None} and built(interval=None).shared

    @settings(max_examples=15, deadline=None)
    @given(order=st.permutations(range(3)), seed=st.integers(0, 99))
    def test_whoever_makes_it_a_plan_is_the_same(self, order: list[int], seed: int) -> None:
        sources = self.shared()
        for number, source in enumerate(sources):
            weights = np.random.default_rng(number).uniform(0, 9, 4_000)
            source.route_batch(events(seed + number, 4_000), weights, 0.0)
        seen = [json.loads(json.dumps(source.statistics())) for source in sources]
        plan = sources[0].plan(seen)
        assert sources[2].plan([seen[i] for i in order]) == plan
        for source in sources:
            source.apply(json.loads(json.dumps(plan)))
        assert {source.epoch for source in sources} == {1}
        assert len({json.dumps(source.explain(KEYS[0]).candidates) for source in sources}) == 1

    def test_a_foreign_plan_is_refused(self) -> None:
        (source,) = self.shared(1)
        source.route_batch(events(1), None, 0.0)
        plan = source.plan([source.statistics()])
        source.apply(json.loads(json.dumps(plan)))
        before = source.snapshot()
        assert before["state"]["plan"] == plan
        damaged: list[dict[str, Any]] = [{}, {**plan, "workers": 4}, {**plan, "owner": [99]}]
        damaged += [{**plan, "home": home} for home in ([99], plan["home"][1:], [10] * len(plan["home"]))]
        for other in damaged:
            with pytest.raises(ValueError):
                source.apply(other)
        assert source.snapshot() == before
        with pytest.raises(ValueError, match="statistics"):
            source.plan([{"workers": 3}])

    @settings(max_examples=15, deadline=None)
    @given(seed=st.integers(0, 99), hot=st.floats(0.0, 0.95), workers=st.integers(2, 60))
    def test_planned_shares_of_a_plan_sum_up(self, seed: int, hot: float, workers: int) -> None:
        source = built(workers, interval=None)
        source.route_batch(events(seed, hot=hot), None, 0.0)
        plan = source.plan([source.statistics()])
        cold, loads = np.array(plan["estimates"]["cold"]), np.zeros(workers)
        np.add.at(loads, plan["owner"], cold)
        for share, (width, members, taken) in zip(plan["shares"], keys_of(plan).values(), strict=True):
            assert sum(taken) == pytest.approx(share) and len(set(members)) == len(members)
            assert 1 <= width <= len(members) and not any(taken[width:])
            np.add.at(loads, members, taken)
        assert loads.sum() == pytest.approx(1, abs=0.05)

    @pytest.mark.parametrize("sources", [1, 3])
    def test_a_key_that_is_tracked_but_not_planned_counts_as_cold(self, sources: int) -> None:
        groupings, random = self.shared(sources), np.random.default_rng(1)
        keys = random.integers(-(2**63), 2**63, (40, 1)) & ~(15 << 32)
        for number, grouping in enumerate(groupings):
            grouping.route_batch(keys[random.integers(5 * number, 5 * number + 20, 60_000)], None, 0.0)
        plan = groupings[0].plan([grouping.statistics() for grouping in groupings])
        assert sum(plan["shares"]) + sum(plan["estimates"]["cold"]) == pytest.approx(1, abs=0.01)

    def test_an_urgent_plan_is_asked_for_until_the_first_and_on_evidence(self) -> None:
        (source,) = self.shared(1)
        assert not source.urgent
        source.route_batch(events(1), None, 0.0)
        assert source.urgent
        interim = source.interim_statistics()
        source.apply(source.plan([interim]))
        assert source.interim_statistics()["mass"] == interim["mass"] and source.urgent
        source.apply(source.plan([source.statistics()]))
        source.route_batch(events(2), None, 0.0)
        assert not source.urgent
        source.statistics()
        assert not source.urgent
        owner = source.explain(b"x").home
        untracked = np.random.default_rng(1).integers(-(2**63), 2**63, (40_000, 1))
        source.route_batch(untracked[source._arrays.owners[untracked[:, 0] & 1023] == owner], None, 0.0)
        assert source.urgent

    def test_an_interval_with_no_or_few_events_does_not_count_as_the_first(self) -> None:
        (source,) = self.shared(1)
        for few in (0, 0, 500):
            source.route_batch(events(1, few), None, 0.0)
            source.apply(source.plan([source.statistics()]))
        source.route_batch(events(2, 400), None, 0.0)
        assert not source.urgent
        source.route_batch(events(3, 200), None, 0.0)
        assert source.urgent

    def test_it_plans_by_itself_when_the_interval_has_passed(self) -> None:
        grouping = built(interval=10.0)
        grouping.route_batch(events(1), None, 0.0)
        epoch = grouping.epoch
        grouping.route_batch(events(2, 10), None, 0.4)
        assert grouping.epoch > epoch and grouping._plan
        grouping.route_batch(events(2), None, 11.0)
        assert grouping._estimates.intervals == 1

    def test_equal_rocks_need_no_more_pairs_than_the_bound(self) -> None:
        shares = np.concatenate([[0.4, 0.2], np.full(40, 0.01)])
        hashes = np.sort(HASHES[: len(shares), 0])
        members = (np.arange(len(shares)) % 10).astype(np.int32)
        ones = np.ones(len(shares), np.int64)
        keys = Keys(hashes, shares, ones, ones, members, np.zeros(len(shares)))
        placement = place(
            Shares(keys, np.zeros(1024), 1e7, 1e6, np.zeros(10), 1.0, False),
            owners_for(np.ones(10), 1024),
            owners_for(np.ones(10), 1024),
            np.full(10, 0.1),
            0.02,
            split_light=True,
            widths=(2, 3, 6),
        )
        assert placement.keys.width.sum() <= len(shares) + 10 - 1
        assert placement.loads == pytest.approx(np.full(10, 0.1), rel=0.01)

    @settings(max_examples=200, deadline=None)
    @given(
        st.integers(0, 2**32 - 1), st.integers(1, 12), st.floats(0.9, 1.5), st.booleans(), st.sampled_from([0, 0.02])
    )
    def test_a_plan_is_valid_whatever_the_shares(
        self, seed: int, workers: int, total: float, split: bool, eps: float
    ) -> None:
        shares, owners = random_shares(seed, workers, total), owners_for(np.ones(workers), 64)
        fair = np.full(workers, 1 / workers)
        placement = place(shares, owners, owners, fair, eps, split_light=split, widths=(2, 3, 6))
        keys = placement.keys
        assert np.all((keys.width >= 1) & (keys.width <= keys.known))
        hot = keys.shares > placement.heaviest_rock
        free = hot | (shares.keep & ((keys.width <= shares.keys.width) | ((shares.keys.width > 1) & ~hot.any())))
        assert np.all((keys.width <= 2) | (keys.shares >= 1 / 1.5 / workers) | free)
        assert np.all((keys.width <= 3) | (keys.shares >= 1 / 1.05 / workers) | free)
        key_of = np.repeat(np.arange(len(keys.known)), keys.known)
        assert len(np.unique(key_of * workers + keys.members)) == len(keys.members)
        assert np.bincount(key_of, keys.taken) == pytest.approx(keys.shares)
        used = np.isin(key_of * workers + keys.members, keys.used(workers))
        assert np.all(keys.taken >= 0) and not keys.taken[~used].any()
        loads = np.bincount(placement.owners, shares.cold, workers) + np.bincount(keys.members, keys.taken, workers)
        assert placement.loads == pytest.approx(loads)

    def test_a_new_hot_key_is_found_in_a_set_of_counters_that_is_full_of_tracked_keys(self) -> None:
        sources, random = self.shared(2), np.random.default_rng(1)
        same_set = random.integers(-(2**63), 2**63, (13, 1)) & ~(63 << 32)
        for interval in range(4):
            for number, source in enumerate(sources):
                light = same_set[random.integers(3 * number, 3 * number + 9, 40_000)]
                cold = random.integers(-(2**63), 2**63, (40_000, 1))
                stream = np.where(random.random((40_000, 1)) < 0.4, light, cold)
                stream[random.random(40_000) < 0.5 * (interval > 1)] = same_set[12]
                lambda_ = imbalance(source.route_batch(stream, None, 0.0), 10)
                assert interval < 2 or lambda_ < 1.05
                tracked = source._arrays.tracked.reshape(-1, 8).sum(axis=1)
                assert tracked.sum() == tracked[0] == 7
            plan = sources[0].plan([source.statistics() for source in sources])
            for source in sources:
                source.apply(plan)
                assert source._arrays.tracked.sum() == len(plan["hashes"]) == 7
        hottest = sources[0].hot(1)[0]
        assert hottest.hash == same_set[12, 0] and hottest.width == 10

    def test_heavy_keys_find_a_counter_where_lighter_ones_have_taken_all(self) -> None:
        """Each is nearly all of the stream for a while, and more are in one set than that has counters."""
        source = built(interval=None)
        same_set = np.random.default_rng(1).integers(-(2**63), 2**63, (12, 1)) & ~(63 << 32)
        arrays = source._arrays
        for number, key in enumerate(same_set):
            source.route_batch(np.repeat(key[None], 400 if number < 7 else 1_000, axis=0), None, 0.0)
            known = arrays.hashes[arrays.tracked]
            assert key[0] in known and len(known) == min(number + 1, 7)
            tracked = (arrays.counts - arrays.errors)[arrays.tracked]
            assert arrays.cold.sum() + tracked.sum() == pytest.approx(arrays.mass), "each event is told once"
        assert set(same_set[7:, 0].tolist()) <= set(known.tolist())

    def test_in_a_full_set_of_counters_equal_keys_do_not_take_turns(self) -> None:
        source, random = built(interval=None), np.random.default_rng(1)
        same_set = random.integers(-(2**63), 2**63, (8, 1)) & ~(63 << 32)
        seen = set()
        for _ in range(100):
            stream = np.where(random.random((400, 1)) < 0.5, same_set[random.integers(0, 8, 400)], HASHES[:1])
            source.route_batch(stream, None, 0.0)
            seen.add(tuple(source._arrays.hashes[source._arrays.tracked].tolist()))
        assert len(seen) == 1 and len(seen.pop()) == 8, "seven of them, and the hot key of another set"

    def test_a_light_key_is_split_even_if_its_next_hash_is_that_of_its_own_worker(self) -> None:
        """Its run fills that worker, as the last one of an interval."""
        source, random = built(interval=None), np.random.default_rng(1)
        candidates = random.integers(-(2**63), 2**63, (2_000, 1))
        for key in candidates:
            home = source._arrays.owners[key[0] & (len(source._arrays.owners) - 1)]
            if choice(key[0], 1, 10) == home:
                break
        stream = HASHES[random.integers(0, 40, 20_000)]
        stream[::50] = key
        for _ in range(2):
            source.route_batch(stream, None, 0.0)
            source.apply(source.plan([source.statistics()]))
        source.route_batch(stream, None, 0.0)
        chosen = source.route_batch(np.repeat(key[None], 400, axis=0), None, 0.0)
        assert np.bincount(chosen, minlength=10).max() <= 250

    @pytest.mark.parametrize(("workers", "size"), [(200, 4_687), (50, 300), (10, 100)])
    def test_a_plan_from_few_events_is_level_too(self, workers: int, size: int) -> None:
        source = built(workers, interval=None)
        cold = np.random.default_rng(1).integers(-(2**63), 2**63, (size, 1))
        cold[::2] = HASHES[0]
        source.route_batch(cold, None, 0.0)
        plan = source.plan([source.interim_statistics()])
        assert plan["lambda"] < 1.5 * plan["level"]

    def test_few_light_keys_fill_many_workers_evenly_beside_cold_hashes(self) -> None:
        shares = np.array([0.07, 0.045, 0.035, 0.03])
        cold = np.random.default_rng(1).multinomial(20_000, np.full(1024, 1 / 1024)) / 20_000 * (1 - shares.sum())
        ones, members = np.ones(4, np.int64), np.arange(4, dtype=np.int32)
        keys = Keys(np.sort(HASHES[:4, 0]), shares, ones, ones, members, np.zeros(4))
        owners, fair = owners_for(np.ones(10), 1024), np.full(10, 0.1)
        placed = Shares(keys, cold, 1e9, 1e6, np.zeros(10), 1.0, False)
        placement = place(placed, owners, owners, fair, 0.0, split_light=True, widths=(2, 2, 2))
        assert placement.heaviest_rock < shares.min() and placement.keys.width.sum() <= 4 + 10 - 1
        assert placement.loads == pytest.approx(fair, rel=1e-3)

    @pytest.mark.parametrize(("longest", "bursts"), [(1, 1.0), (5, 11 / 3)])
    def test_buckets_stay_at_home_when_only_chance_and_runs_of_keys_fill_them(
        self, longest: int, bursts: float
    ) -> None:
        source, random = built(50, interval=None), np.random.default_rng(longest)
        for interval in range(6):
            keys = random.integers(-(2**63), 2**63, (2 * INTERVAL, 1))
            stream = np.repeat(keys, random.integers(1, longest + 1, len(keys)), axis=0)[: 2 * INTERVAL]
            plan = self.planned(source, stream)
            assert plan["owner"] == plan["home"] and not plan["moved_buckets"]
            # Of runs of n events the variance is E(n^2) / E(n) times that of single ones.
            assert plan["estimates"]["bursts"] == (pytest.approx(bursts, rel=0.1) if interval else 0.0)

    def test_how_bursty_a_stream_is_weighs_as_many_intervals_as_have_told_it(self) -> None:
        source, random = built(interval=None), np.random.default_rng(1)
        for _ in range(6):  # Of one key, which is tracked: its buckets tell nothing.
            plan = self.planned(source, np.repeat(HASHES[:1], INTERVAL, axis=0))
            assert plan["estimates"]["bursts"] == 0.0
        told = []
        for _ in range(3):
            plan = self.planned(source, random.integers(-(2**63), 2**63, (15 * INTERVAL, 1)))
            told.append(plan["estimates"]["bursts"])
        assert told[0] > 10  # The cold hashes have come all at once: from then on they are as even as chance has it.
        assert told[1] == pytest.approx((told[0] + 1) / 2, rel=0.05)
        assert told[2] == pytest.approx((told[0] + 2) / 3, rel=0.05)

    @pytest.mark.parametrize("bursts", [0.0, 1.0, 100.0])
    def test_a_worker_that_others_have_filled_too_far_keeps_no_cold_keys_however_bursty_these_are(
        self, bursts: float
    ) -> None:
        none, outside = np.empty(0, np.int64), np.where(np.arange(10) == 3, 0.5, 0.0)
        keys = Keys(none, np.empty(0), none, none, np.empty(0, np.int32), np.empty(0))
        owners, fair = owners_for(np.ones(10), 1024), np.full(10, 0.1)
        shares = Shares(keys, np.full(1024, 0.5 / 1024), 10_000, 10_000, outside, bursts, False)
        placement = place(shares, owners, owners, fair, 0.02, split_light=True, widths=(2, 3, 6))
        assert placement.loads[3] == pytest.approx(0.5) and placement.loads.sum() == pytest.approx(1)

    def test_buckets_move_when_two_intervals_agree_that_one_worker_has_more_and_go_home_when_that_ends(self) -> None:
        source, random = built(interval=None), np.random.default_rng(1)
        home, pool, share = source._arrays.owners.tolist(), *self.twice_as_much_for_worker_0(source)
        size = 50 * INTERVAL  # So many that every bucket tells for certain when its share has changed.
        skewed = [self.planned(source, pool[random.choice(len(pool), size, p=share)]) for _ in range(4)]
        assert [plan["owner"] == home for plan in skewed] == [True, False, False, False]
        assert skewed[1]["moved_buckets"] and max(skewed[3]["loads"]) < 0.105
        for _ in range(3):
            even = self.planned(source, pool[random.choice(len(pool), size)])
        assert even["owner"] == even["home"] == home

    @pytest.mark.parametrize("workers", [12, 7])
    def test_another_number_of_workers_has_another_home_that_snapshots_keep(self, workers: int) -> None:
        source, random = built(interval=None), np.random.default_rng(1)
        pool, share = self.twice_as_much_for_worker_0(source)
        for _ in range(2):
            plan = self.planned(source, pool[random.choice(len(pool), 5 * INTERVAL, p=share)])
        source.resize(workers)
        assert plan["owner"] != plan["home"]
        expected = resized(np.array(plan["home"], np.int32), 10, len(plan["home"]), workers).tolist()
        again = built(workers, interval=None)
        again.restore(json.loads(json.dumps(source.snapshot())))
        assert [each._home.tolist() for each in (source, again)] == [expected, expected]

    @staticmethod
    def twice_as_much_for_worker_0(source: LevelFill) -> tuple[Hashes, Any]:
        """Light keys, as many at home on each of ten workers, and shares by which worker 0 has twice as much."""
        pool, owners = np.random.default_rng(1).integers(-(2**63), 2**63, (20_000, 1)), source._arrays.owners
        at = owners[pool[:, 0] & (len(owners) - 1)]
        chosen = np.concatenate([np.flatnonzero(at == worker)[:800] for worker in range(10)])
        share = np.where(at[chosen] == 0, 2.0, 1.0)
        return pool[chosen], share / share.sum()

    @staticmethod
    def planned(source: LevelFill, stream: Hashes) -> dict[str, Any]:
        """The plan that is in force after an interval with these events."""
        source.route_batch(stream, None, 0.0)
        plan = source.plan([source.statistics()])
        source.apply(plan)
        return plan

    def test_another_slack_takes_effect_at_once(self) -> None:
        before, after, back = built(), built(slack=0.0), built()
        before.route_batch(events(1), None, 0.0)
        assert after.adopt(before) and back.adopt(after)
        slacks = [each._arrays.keys["slack"][each._arrays.tracked] for each in (before, after, back)]
        assert slacks[0].all() and not slacks[1].any() and np.allclose(slacks[0], slacks[2])

    @pytest.mark.parametrize("interval", [10.0, None])
    def test_another_number_of_counters_keeps_the_keys_of_the_plan(self, interval: float | None) -> None:
        before, after = built(interval=interval), built(interval=interval, counters=16)
        for second in range(2):
            before.route_batch(events(second), None, 6.0 * second)
            if interval is None:
                before.apply(before.plan([before.statistics()]))
        hot, *light = before.hot(8)
        assert hot.width > 1 and after.adopt(before)
        was, now = (grouping._arrays for grouping in (before, after))
        counted = {int(was.hashes[slot]): was.counts[slot] for slot in np.flatnonzero(was.tracked)}
        assert {int(now.hashes[slot]): now.counts[slot] for slot in np.flatnonzero(now.tracked)} == counted
        assert after.hot(8) == [hot, *light] and after.spaces()[0].capacity == 256
        assert sorted(after.explain(KEYS[0]).candidates) == sorted(before.explain(KEYS[0]).candidates)
        restored = built(interval=interval, counters=16)
        restored.restore(after.snapshot())
        stream = events(9)
        assert after.route_batch(stream, None, 7.0).tolist() == restored.route_batch(stream, None, 7.0).tolist()

    @pytest.mark.parametrize("given", [{"widths": [1, 1, 1]}, {"split": "hot-only"}])
    def test_other_widths_take_effect_at_once(self, given: dict[str, object]) -> None:
        common: dict[str, object] = {"eps": 0.0, "noise": 0.0, "slack": 0.0}
        before, stream = built(**common), HASHES[np.random.default_rng(1).integers(0, 25, 60_000)]
        stream[::2] = HASHES[0]
        before.route_batch(stream, None, 0.0)
        assert before.hot(1)[0].width == 10 and any(key.width > 1 for key in before.hot(25)[1:])
        after = built(**common, **given)
        assert after.adopt(before)
        for second in range(2):
            hot, *light = after.hot(25)
            assert hot.width == 10 and {key.width for key in light} == {1}
            after.route_batch(stream[: 60_000 * (1 - second)], None, 1.0)
        back = built(**common)
        assert back.adopt(after)
        back.route_batch(HASHES[np.random.default_rng(2).integers(0, 25, 60_000)], None, 2.0)
        assert any(key.width > 1 for key in back.hot(25)[1:])

    def test_a_filling_says_why_loads_are_equal(self) -> None:
        (source,) = self.shared(1)
        assert source.filling(5) is None
        source.route_batch(events(1, 60_000, hot=0.5), None, 0.0)
        source.apply(source.plan([source.statistics()]))
        filling = source.filling(5)
        assert filling is not None and filling.level == pytest.approx(1, abs=0.05)
        planned = (filling.light + filling.hot) / filling.fair
        assert planned == pytest.approx(np.full(10, filling.level), abs=0.03)
        assert filling.hot.sum() > 0.45 and np.all(filling.room[filling.hot > 0.001] > 0)
        hottest = filling.keys[0]
        assert hottest.hash == HASHES[0, 0] and hottest.share == pytest.approx(0.5, abs=0.1)
        assert sum(share for _, share in hottest.members) == pytest.approx(hottest.share)
        assert len(filling.keys) <= 5 and filling.hot_keys >= 1
        assert not filling.filled.any()
        source.route_batch(events(2, 60_000, hot=0.5), None, 1.0)
        filling = source.filling(0)
        assert filling is not None and not filling.keys and filling.filled == pytest.approx(np.ones(10), abs=0.01)

    def test_explains_why_and_when_a_key_was_widened(self) -> None:
        grouping = built()
        grouping.route_batch(events(1), None, 0.0)
        grouping.route_batch(events(2), None, 12.0)
        hot, cold = grouping.explain(KEYS[0]), grouping.explain("never seen")
        assert hot.width == 10 and hot.share == pytest.approx(0.58, abs=0.02) and hot.space == "hot"
        assert hot.hot_since is not None and "widened" in hot.why
        assert len(re.findall(r"\d+ \(planned \d+\.\d\d %, room \d+\.\d\d %\)", hot.why)) == 10
        assert cold.width == 1 and cold.space is None and "owns" in cold.why

    def test_explains_a_hot_key_before_any_plan_and_goes_on_to_know_since_when(self) -> None:
        grouping = built(interval=None)
        grouping.route_batch(events(1), None, 0.0)
        grouping.route_batch(events(2), None, 60.0)
        assert "by no plan yet" in grouping.explain(KEYS[0]).why and "planned" not in grouping.explain(KEYS[0]).why
        grouping.apply(grouping.plan([grouping.interim_statistics()]))
        before = grouping.explain(KEYS[0])
        other = built(interval=None, counters=16)
        assert other.adopt(grouping) and before.hot_since == before.age == 60
        grouping.resize(12)
        for after in (grouping.explain(KEYS[0]), other.explain(KEYS[0])):
            assert after.width > 1 and (after.age, after.hot_since) == (before.age, before.hot_since)

    def test_explains_the_least_share_of_a_counted_key_and_no_widening_that_is_over(self) -> None:
        grouping = built(5, evidence=1e6)
        stream = np.concatenate([HASHES[:1]] * 30 + [HASHES[1:71]])
        grouping.route_batch(stream, None, 0.0)
        assert grouping.explain(KEYS[0]).share == pytest.approx(0.3) and grouping.explain("never seen").share is None
        grouping = built()
        grouping.route_batch(events(1), None, 0.0)
        for interval in range(
            1, 8
        ):  # The first of them is a change, so early that on average of few it counts for five.
            equal = HASHES[np.random.default_rng(interval).integers(0, 100, INTERVAL)]
            grouping.route_batch(equal, None, 12.0 * interval)
        light = grouping.explain(KEYS[0])
        assert light.space == "tracked" and light.width == 1 and "widened" not in light.why


class TestResize:
    @settings(max_examples=30, deadline=None)
    @given(before=st.integers(1, 60), more=st.integers(1, 60))
    def test_new_workers_take_their_part_of_every_old_one(self, before: int, more: int) -> None:
        after = before + more
        old = owners_for(np.ones(before), 1 << (64 * before - 1).bit_length())
        new = resized(old, before, 1 << (64 * after - 1).bit_length(), after)
        same = np.tile(old, len(new) // len(old))
        assert np.count_nonzero(new != same) == round(len(new) * more / after)
        assert np.all(new[new != same] >= before)
        counts = np.bincount(new, minlength=after)
        assert counts.max() - counts.min() <= 0.1 * counts.mean() + 2
        gone = resized(new, after, len(old), before)
        assert set(gone.tolist()) <= set(range(before))

    @pytest.mark.parametrize(("before", "after"), [(64, 63), (50, 30), (17, 16), (10, 8), (2, 1)])
    def test_with_fewer_workers_only_keys_of_those_that_are_gone_move(self, before: int, after: int) -> None:
        grouping, each = built(before), np.arange(4096).reshape(-1, 1)
        first = grouping.route_batch(each, None, 0.0)
        grouping.resize(after)
        second = grouping.route_batch(each, None, 0.0)
        assert np.array_equal(second != first, first >= after)
