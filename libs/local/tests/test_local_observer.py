"""What the view of a run is told by its observer."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from fastapi import APIRouter
from keygrouping.job import JobSpec
from keygrouping.partial import Partial
from keygrouping.receipt import NOTHING, Receipt, Tally
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.consumed import Consumed
from keygrouping_local.damage import write_unreadable
from keygrouping_local.observer import Observer
from keygrouping_local.pace import SECONDS, Pace
from keygrouping_local.topics import settings_for
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import Committed, commit_progress
from keygrouping_service.kafka.topics import create_topics, topics_of
from keygrouping_service.settings import ServiceSettings
from keygrouping_service.testing import until

TOPIC = "AAAAAAAAAAAAAAAAAAAAAA"
JOB = JobSpec.from_json('{"window": 1000, "aggregates": [{"name": "events", "op": "count"}]}')


def receipt(first: int, after: int, events: int, partition: int = 0) -> Receipt:
    consumed = Tally(events, 1)
    return Receipt(TOPIC, partition, first, after, consumed, consumed, NOTHING, NOTHING)


def test_what_the_offsets_at_the_beginning_have_is_not_counted_again() -> None:
    consumed = Consumed({0: 100, 1: 0})
    for one in (receipt(90, 100, 9), receipt(100, 110, 9), receipt(110, 110, 0), receipt(0, 11, 10, partition=1)):
        consumed.add(one)
    assert consumed.events == 100 + 9 + 10


def test_events_per_second_are_steady_where_many_are_committed_at_once() -> None:
    pace, count, told = Pace(), 0, []
    for look in range(200):
        now = 0.5 * look
        if look % 4 == 0:
            count += 4000
        told.append((now, pace.at(now, count)))
    assert told[0][1] == 0.0
    assert all(1600 <= rate <= 2400 for now, rate in told if now >= SECONDS)
    assert pace.at(now + SECONDS, count) < 400
    assert pace.at(now + 2 * SECONDS, count) == 0.0, "nothing has come for so long"


@pytest.mark.kafka
async def test_late_events_that_can_not_be_read_are_counted(broker: EmbeddedBroker, application: str) -> None:
    settings = settings_for(broker.bootstrap_servers, application)
    async with clients.started(clients.admin(settings)) as admin:
        await create_topics(admin, topics_of(settings, partitions=1, max_workers=1))
    await write_unreadable(broker, settings, settings.late_topic, 1)

    async def late() -> bool:
        return (await observer.look()).late == 2

    async with Observer(settings, JOB, 1) as observer:
        await until(late)


@pytest.mark.kafka
async def test_balance_is_that_of_the_workers_in_use_by_what_they_can_do(
    broker: EmbeddedBroker, application: str
) -> None:
    settings = settings_for(broker.bootstrap_servers, application)
    capacities, routes = [1.0, 1.0], APIRouter()

    @routes.get("/workers")
    async def workers() -> dict[str, Any]:
        own = [{"worker": number, "capacity": capacity} for number, capacity in enumerate(capacities)]
        return {"workers": len(own), "items": [*own, {"worker": len(own), "capacity": 1.0}]}

    async with clients.started(clients.admin(settings)) as admin:
        await create_topics(admin, topics_of(settings, partitions=1, max_workers=3))
    async with (
        serving(create_app("test", None, routes), "127.0.0.1", 0) as port,
        clients.started(clients.producer(settings)) as producer,
        Observer(settings, JOB, 2) as observer,
    ):
        router = f"http://127.0.0.1:{port}"

        async def lambda_of(first: int, *loads: int) -> float:
            """λ once each worker has this load, of events from this offset on."""
            for worker, load in enumerate(loads):
                counted = Partial(worker, 0, 1000, load, load, first, first + load, 1, {"events": load})
                await producer.send_and_wait(settings.partials_topic, counted.encode(), b"key", partition=0)
            seen = []

            async def all_read() -> bool:
                seen.append(await observer.look(router))
                return seen[-1].loads == loads[: len(capacities)]

            await until(all_read)
            return seen[-1].lambda_

        assert await lambda_of(0, 2, 6) == 1.5
        capacities[:] = [1.0, 3.0]
        await observer.look(router)
        assert await lambda_of(10, 2, 6) == 1.0
        capacities[:] = [1.0]
        await observer.look(router)
        assert await lambda_of(20, 5, 1) == 1.0, "the second worker is not in use any more"


@pytest.mark.kafka
async def test_what_workers_repeat_counts_once_and_what_is_none_ends_nothing(
    broker: EmbeddedBroker, application: str
) -> None:
    settings = settings_for(broker.bootstrap_servers, application)
    once = Partial(1, 0, 1000, 3, 3, 5, 7, 1, {"events": 3}).encode()
    other_job = Partial(0, 0, 60_000, 9, 9, 0, 8, 1, {"events": 9}).encode()
    async with clients.started(clients.admin(settings)) as admin:
        await create_topics(admin, topics_of(settings, partitions=1, max_workers=2))
    async with clients.started(clients.producer(settings)) as producer, Observer(settings, JOB, 2) as observer:
        for value in (once, other_job, b"{", once):
            await producer.send_and_wait(settings.partials_topic, value, b"key", partition=0)
        await producer.send_and_wait(settings.results_topic, b"no result", b"key", partition=0)
        await producer.send_and_wait(settings.partials_topic, once.replace(b'"first":5', b'"first":4'), b"key", 0)
        loads: list[tuple[float, ...]] = []

        async def all_read() -> bool:
            loads.append((await observer.look()).run.loads)
            return loads[-1][1] > 3

        await until(all_read)
        assert loads[-1] == (0.0, 6.0)


@pytest.mark.kafka
async def test_markers_of_transactions_are_no_events(broker: EmbeddedBroker, application: str) -> None:
    settings = settings_for(broker.bootstrap_servers, application)
    group, events = settings.group("router"), settings.events_topic
    async with clients.started(clients.admin(settings)) as admin:
        await create_topics(admin, topics_of(settings, partitions=1, max_workers=2))
    async with (
        clients.started(clients.producer(settings)) as producer,
        clients.started(clients.reader(settings, group_id=group)) as committer,
    ):
        committer.assign([TopicPartition(events, 0)])

        async def committed() -> bool:
            await commit_progress(committer, events, {0: Committed(0)})
            return True

        await until(committed)  # The first group that a broker knows has no coordinator for a moment.
        async with Observer(settings, JOB, 2) as observer:
            await _counts_events_alone(observer, settings, producer, committer)


async def _counts_events_alone(
    observer: Observer, settings: ServiceSettings, producer: AIOKafkaProducer, committer: AIOKafkaConsumer
) -> None:
    events, receipts = settings.events_topic, settings.receipts_topic
    assert (await observer.look()).events == 0
    for number in range(5):
        value = receipt(3 * number, 3 * number + 3, 2).encode()  # Two events and a marker.
        await producer.send_and_wait(receipts, value, partition=0)
        await commit_progress(committer, events, {0: Committed(3 * number + 3)})
    seen = []

    async def all_counted() -> bool:
        seen.append(await observer.look())
        return seen[-1].events >= 10

    await until(all_counted)
    assert seen[-1].events == 10
    assert max(snapshot.events_per_second for snapshot in seen) > 0
