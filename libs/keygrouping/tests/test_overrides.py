"""Laws of overrides: keys go where people say, around any grouping, which sees nothing of them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keygrouping.grouping import Override, Overrides, create, live_names, names
from keygrouping.grouping.overrides import lay_out
from keygrouping.hashing import hash_key, hash_keys, worker_of

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
def test_around_every_grouping_keys_go_where_they_are_told_to_and_all_others_as_if_they_were_alone(name: str) -> None:
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
