import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.partial import Partial
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import write_unreadable
from keygrouping_local.topics import settings_for
from keygrouping_observer.latency import Sample, Samples, counts_of, look_up, quantile
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.topics import create_topics, topics_of
from keygrouping_service.observability.metrics import LATENCY_BUCKETS
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.v2.batch import BufferBatch

NOW = 1_700_000_000_000


def partial(worker: int, first: int, events: int) -> Partial:
    return Partial(worker, 0, 1000, events, events, first, first + events - 1, 0, {})


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=40), st.randoms(), st.integers(0, 4))
def test_the_choice_depends_on_the_partials_and_not_on_their_order(
    rows: list[tuple[int, int]], chance: random.Random, most: int
) -> None:
    partials = [partial(worker, 10 * n, events) for n, (worker, events) in enumerate(rows)]
    choices = []
    for _ in range(2):
        samples = Samples(most)
        for one in partials:
            samples.add(b"k", one, NOW)
        choices.append(samples.by_worker)
        chance.shuffle(partials)
    assert choices[0] == choices[1]
    counts = {worker: sum(p.worker == worker for p in partials) for worker in range(3)}
    assert {w: len(c) for w, c in choices[0].items()} == {w: min(most, n) for w, n in counts.items() if n and most}
    ends = {(p.worker, offset) for p in partials for offset in (p.first, p.last)}
    assert {(w, s.offset) for w, chosen in choices[0].items() for s in chosen} <= ends


def test_partials_are_chosen_in_proportion_to_their_events() -> None:
    heavy = 0
    for n in range(2000):
        samples = Samples(1)
        samples.add(b"a", partial(0, 100 * n, 3), NOW)
        samples.add(b"b", partial(0, 100 * n + 50, 1), NOW)
        heavy += samples.by_worker[0][0].offset < 100 * n + 50
    assert 1400 < heavy < 1600


@given(st.lists(st.floats(0, 1e4), min_size=1))
def test_histogram_and_quantiles_by_their_definition(latencies: list[float]) -> None:
    counts = counts_of(latencies)
    below = [sum(latency <= bound for latency in latencies) for bound in LATENCY_BUCKETS]
    assert [sum(counts[: n + 1]) for n in range(len(below))] == below
    assert sum(counts) == len(latencies)
    median = quantile(latencies, 0.5)
    assert median is not None
    assert sum(latency <= median for latency in latencies) >= len(latencies) / 2
    assert sum(latency < median for latency in latencies) < len(latencies) / 2
    assert quantile([], 0.5) is None


@pytest.mark.kafka
async def test_events_are_found_however_large_the_batches_and_others_are_left_out(
    broker: EmbeddedBroker, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keygrouping_observer.latency._TIMEOUT_SECONDS", 60.0)  # A busy machine takes longer.
    settings = settings_for(broker.bootstrap_servers, application)
    async with clients.started(clients.admin(settings)) as admin:
        await create_topics(admin, topics_of(settings, 1, 3))
    async with clients.started(clients.producer(settings, linger_ms=50)) as producer:
        for worker in range(2):
            for offset in range(1000):
                time = NOW + offset if offset != 500 else NOW - 10 * 86_400_000
                await producer.send(settings.routed_topic, b"x" * 200, b"k", worker, time)
        await producer.send(settings.events_topic, b"", b"k", 0, NOW + 1500)
        await producer.flush()
    ids = {"r" * 22: settings.routed_topic, "e" * 22: settings.events_topic}
    wanted = {w: [Sample(0.0, offset, NOW + 2000, "r" * 22) for offset in (0, 500, 999, 5000)] for w in range(3)}
    # Workers have read another topic before, and one that was deleted.
    wanted[0] += [Sample(0.0, 0, NOW + 2000, "e" * 22), Sample(0.0, 1, NOW + 2000, "d" * 22)]
    source = clients.source(settings, committed=False, wait_ms=1, max_partition_fetch_bytes=1000)
    async with clients.started(source.consumer):
        for _ in range(2):
            assert sorted(await look_up(source, ids, wanted)) == [0.5, 1.001, 1.001, 2.0, 2.0]
        assert await look_up(source, ids, {}) == []


@pytest.mark.kafka
async def test_an_event_that_can_not_be_read_keeps_no_other_waiting(
    broker: EmbeddedBroker, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of one that is too large is known all the same."""
    monkeypatch.setattr("keygrouping_observer.latency._TIMEOUT_SECONDS", 60.0)
    settings = settings_for(broker.bootstrap_servers, application)
    async with clients.started(clients.admin(settings)) as admin:
        await create_topics(admin, topics_of(settings, 1, 2))
    await write_unreadable(broker, settings, settings.routed_topic, NOW + 700)
    async with clients.started(clients.producer(settings)) as producer:
        outbox = Outbox(producer)
        for worker in range(2):
            row = (0, NOW + 1500, b"k", b"", (("caf\udce9", b"1"),))
            outbox.pass_on(settings.routed_topic, worker, BufferBatch.of("", 0, [row]))
        await outbox.send()
    wanted = {w: [Sample(0.0, offset, NOW + 2000, "r" * 22) for offset in range(4)] for w in range(2)}
    source = clients.source(settings, committed=False, wait_ms=1, max_partition_fetch_bytes=64 << 10)
    async with clients.started(source.consumer):
        for _ in range(2):
            assert await look_up(source, {"r" * 22: settings.routed_topic}, wanted) in (
                [0.5, 1.3, 0.5],
                [1.3, 0.5, 0.5],
            )
