"""What is kept of the partials counted so far, so that each counts once."""

from keygrouping.partial import NO_TOPIC, Partial
from keygrouping_observer.identities import Identities

BEFORE, NOW = "b" * 22, "n" * 22


def partial(topic: str, worker: int, first: int) -> Partial:
    return Partial(worker, 0, 1000, 1, 1, first, first, 0, {}, topic)


def test_partials_of_a_routed_topic_that_was_created_again_hold_back_neither_purging_nor_restarts() -> None:
    kept = Identities()
    kept.raise_floors({(BEFORE, 0): 0, (BEFORE, 1): 5}, {BEFORE})
    for worker, place in ((0, 70), (1, 71)):
        assert kept.is_new(b"k", partial(BEFORE, worker, 9), 3, place)
    kept.raise_floors({(NOW, 0): 1, (BEFORE, 1): 5}, {NOW, BEFORE})
    assert kept.is_new(b"k", partial(NOW, 0, 4), 3, 80)
    assert kept.oldest() == {3: 70}
    kept.raise_floors({(NOW, 0): 1}, {NOW})
    assert kept.oldest() == {3: 80}
    assert not kept.is_new(b"k", partial(BEFORE, 0, 9), 3, 90)


def test_partials_of_the_topic_that_workers_read_before_and_may_read_again_still_count() -> None:
    """Workers read `routed` behind routers, `events` without them, and may change from one to the other and back."""
    routed, events = "r" * 22, "e" * 22
    kept = Identities()
    assert kept.is_new(b"k", partial(routed, 0, 9), 3, 70)
    kept.raise_floors({(events, 0): 5}, {routed, events})
    assert kept.oldest() == {3: 70}
    kept.raise_floors({(events, 0): 50, (routed, 0): 10}, {routed, events})
    assert kept.oldest() == {}
    assert not kept.is_new(b"k", partial(routed, 0, 9), 3, 80)
    assert kept.is_new(b"k", partial(routed, 0, 10), 3, 81)


def test_a_topic_id_that_is_not_known_may_be_any() -> None:
    kept = Identities()
    assert kept.is_new(b"k", partial(NOW, 0, 9), 3, 70)
    for committed in ({}, {(NO_TOPIC, 0): 20}):
        kept.raise_floors(committed, {topic for topic, _ in committed})
        assert kept.oldest() == {3: 70}
