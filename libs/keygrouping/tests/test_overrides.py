"""Laws of overrides: keys go where people say, around any grouping, which learns of their loads only."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keygrouping.grouping import Grouping, Override, Overrides, Planned, create, live_names, names
from keygrouping.grouping.level_fill import LevelFill, LevelFillSettings
from keygrouping.grouping.overrides import lay_out
from keygrouping.hashing import hash_key, hash_keys, worker_of
from numpy.typing import NDArray

KEYS = [b"%d" % number for number in range(12)]
ACTIONS = ("pin", "split", "whole", "isolate")
numbers = st.none() | st.integers(0, 11)
single = st.builds(Override, st.sampled_from(KEYS), st.sampled_from(ACTIONS), numbers, st.none() | st.integers(2, 12))
overrides_of_keys = st.lists(single, max_size=8, unique_by=lambda override: override.key)


@settings(max_examples=300, deadline=None)
@given(overrides_of_keys, st.integers(1, 10))
def test_every_override_is_in_force_as_it_says_or_rests_and_says_why(overrides: list[Override], workers: int) -> None:
    layout = lay_out(overrides, workers)
    assert layout.shared and set(layout.shared) <= set(range(workers)), "somebody is left for all other keys"
    own = set(range(workers)) - set(layout.shared)
    isolated = [layout.places[o.key] for o in overrides if o.action == "isolate" and o.key in layout.places]
    assert sorted(place for (place,) in isolated) == sorted(own), "a worker each"
    for override in overrides:
        if override.action == "pin" and override.worker is None:
            continue
        assert (override.key in layout.places) != (override.key in layout.resting)
        places = layout.places.get(override.key)
        if places is None:
            assert "\n" not in layout.resting[override.key]
            continue
        assert len(set(places)) == len(places) and set(places) <= set(range(workers))
        if override.action in ("pin", "isolate") and override.worker is not None:
            assert places == (override.worker,)
        if override.action != "isolate":
            assert set(places) <= set(layout.shared)
        if override.action == "split":
            assert len(places) == min(override.width or len(layout.shared), len(layout.shared))
        if override.action == "whole":
            assert places == (layout.shared[worker_of(hash_key(override.key), len(layout.shared))],)
    assert lay_out(overrides, workers) == layout, "the same for every router"


@pytest.mark.parametrize("name", live_names())
def test_around_every_grouping_keys_go_where_they_are_told_to_and_all_others_by_the_loads_besides(name: str) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        overrides_of_keys,
        st.integers(1, 10),
        st.lists(st.lists(st.sampled_from(KEYS), max_size=60), max_size=4),
        st.booleans(),
    )
    def holds(overrides: list[Override], workers: int, batches: list[list[bytes]], weighted: bool) -> None:
        layer = Overrides(overrides, workers)
        layout = layer.layout
        around, alone = (create(name, len(layout.shared)) for _ in range(2))
        counts: dict[bytes, Counter[int]] = {key: Counter() for key in layout.places}
        for now, keys in enumerate(batches):
            weights = np.arange(1.0, len(keys) + 1) if weighted else None
            routed = layer.route_batch(around, keys, hash_keys(keys, around.seeds), weights, float(now))
            assert routed.shape == (len(keys),) and (not keys or 0 <= routed.min() <= routed.max() < workers)
            others = [position for position, key in enumerate(keys) if key not in layout.places]
            if len(others) < len(keys):
                placed = [position for position, key in enumerate(keys) if key in layout.places]
                heavy = np.bincount(routed[placed], None if weights is None else weights[placed], workers)
                alone.bear(heavy[list(layout.shared)].astype(float))
            if others:
                hashes = hash_keys([keys[position] for position in others], alone.seeds)
                given_ = None if weights is None else weights[others]
                expected = [layout.shared[w] for w in alone.route_batch(hashes, given_, float(now)).tolist()]
                assert routed[others].tolist() == expected
            for key, worker in zip(keys, routed.tolist(), strict=True):
                if key in counts:
                    counts[key][worker] += 1
        for key, count in counts.items():
            assert count.keys() <= set(layout.places[key])
            turns = [count[worker] for worker in layout.places[key]]
            assert max(turns) - min(turns) <= 1, "evenly"

    holds()


def test_a_worker_that_no_other_asks_for_is_found_for_a_key_that_is_to_be_alone() -> None:
    pinned, alone, named = Override(b"p", "pin", 7), Override(b"a", "isolate"), Override(b"n", "isolate", 6)
    layout = lay_out([pinned, alone, named], 8)
    assert (layout.places, layout.shared) == ({b"p": (7,), b"a": (5,), b"n": (6,)}, (0, 1, 2, 3, 4, 7))
    layout = lay_out([pinned, alone, named], 7)
    assert layout.resting == {b"p": "worker 7 is not in use: there are 7, numbered from 0"}
    assert layout.places == {b"a": (5,), b"n": (6,)}
    assert lay_out([alone], 1).resting == {b"a": "of 1 workers none is left for it alone"}


def test_groupings_that_must_know_the_stream_beforehand_are_not_among_the_live_ones() -> None:
    assert set(names()) - set(live_names()) == {"off-greedy"}


def loads_with_a_pinned_key(
    sources: Sequence[Grouping], worker: int, share: float, skew: float, *, weighted: bool = False
) -> NDArray[np.float64]:
    """Loads of the last of six intervals (10 s, 20 batches) with a key pinned to a worker, and 3000 other keys."""
    workers, random = sources[0].workers, np.random.default_rng(7)
    layers = [Overrides([Override(b"pinned", "pin", worker)], workers) for _ in sources]
    popularity = np.arange(1, 3001) ** -skew
    popularity *= (1 - share) / popularity.sum()
    names = [b"pinned", *(b"key-%d" % rank for rank in range(3000))]
    loads = np.zeros(workers)
    for batch in range(120):
        shared = [source for source in sources if isinstance(source, Planned) and source.shared]
        if shared and batch % 20 == 0:
            plan = shared[0].plan([planned.statistics() for planned in shared])
            for planned in shared:
                planned.apply(plan)
        for layer, source in zip(layers, sources, strict=True):
            keys = [names[rank] for rank in random.choice(3001, 2000, p=[share, *popularity])]
            weights = random.integers(1, 4, 2000).astype(float) if weighted else None
            routed = layer.route_batch(source, keys, hash_keys(keys, source.seeds), weights, batch / 2)
            if batch >= 100:
                loads += np.bincount(routed, weights, workers)
    return loads


heavy = (st.integers(3, 12), st.integers(0, 2), st.floats(0.02, 0.6), st.floats(0.6, 1.3), st.booleans())


@pytest.mark.parametrize("name", ["level-fill", "w-choices"])
def test_a_pinned_key_is_filled_around_so_that_lambda_is_as_low_as_it_can_be(name: str) -> None:
    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(*heavy)
    def holds(workers: int, worker: int, share: float, skew: float, weighted: bool) -> None:
        loads = loads_with_a_pinned_key([create(name, workers)], worker, share, skew, weighted=weighted)
        least = max(1.0, workers * share)
        assert workers * loads.max() / loads.sum() < 1.06 * least
        others = np.delete(loads, worker)
        assert others.max() / others.mean() < 1.2, "and the others are even among themselves"

    holds()


@pytest.mark.parametrize("name", ["consistent", "d-choices", "dkg", "mixed"])
def test_others_that_go_by_loads_of_late_give_the_worker_of_a_pinned_key_less_too(name: str) -> None:
    loads = loads_with_a_pinned_key([create(name, 6)], 5, 0.3, 0.7)
    assert 6 * loads.max() / loads.sum() < 1.02 * 1.8, "without regard to the pinned key it is 2.5"


def test_routers_that_plan_together_fill_around_a_pinned_key_and_do_not_call_for_plans_for_ever() -> None:
    sources = [LevelFill(6, LevelFillSettings(interval=None)) for _ in range(3)]
    loads = loads_with_a_pinned_key(sources, 2, 0.4, 0.9)
    assert 6 * loads.max() / loads.sum() < 1.03 * 2.4
    assert not any(source.urgent for source in sources)
    filling = sources[0].filling(5)
    assert filling is not None
    assert filling.light[2] == pytest.approx(0.4, abs=0.02) and filling.room[2] == 0
    assert np.delete(filling.filled, 2) == pytest.approx(np.ones(5), abs=0.15), "the level goes by the others"


def test_what_others_have_routed_goes_on_in_a_snapshot_and_in_other_settings() -> None:
    one, keys = LevelFill(4), [b"%d" % number for number in range(400)]
    one.bear(np.array([300.0, 0, 0, 0]))
    one.route_batch(hash_keys(keys, one.seeds), None, 1.0)
    restored, adopted = LevelFill(4), LevelFill(4, LevelFillSettings(eps=0.1))
    restored.restore(one.snapshot())
    assert adopted.adopt(one)
    seen = [source.interim_statistics()["outside"] for source in (one, restored, adopted)]
    assert seen[0] == seen[1] == seen[2] == [300.0, 0, 0, 0]
    hashes = hash_keys(keys[::-1], one.seeds)
    assert restored.route_batch(hashes, None, 2.0).tolist() == one.route_batch(hashes, None, 2.0).tolist()
    one.statistics()
    assert one.interim_statistics()["outside"] == [0.0] * 4


def test_a_weight_that_is_none_is_refused_before_anything_has_gone_its_way() -> None:
    pin, grouping = Overrides([Override(b"pinned", "pin", worker=1)], 2), create("level-fill", 2)
    before = grouping.snapshot()
    keys = [b"other", b"pinned"]
    with pytest.raises(ValueError, match="weights must be finite and not negative; event 1 of the batch has nan"):
        pin.route_batch(grouping, keys, hash_keys(keys), np.array([1.0, np.nan]), 0.0)
    assert grouping.snapshot() == before and not pin.carried.any()
