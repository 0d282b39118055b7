"""What one process sends, without a broker: its events, and that it does not wait for acknowledgements."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.workload import workload
from keygrouping_load.schedule import Schedule
from keygrouping_load.sender import Sender
from keygrouping_load.settings import EventLoadSettings
from keygrouping_load.stream import events_of, value_of
from keygrouping_service.errors import Fatal
from keygrouping_service.records.batches import partition_of
from keygrouping_service.testing import until

PARTITIONS = 3


def keys_of(name: str, events: int) -> list[bytes]:
    stream = workload(name, events, 1)
    return [stream.table.name(key) for chunk in stream.chunks() for key in chunk.keys.tolist()]


@settings(max_examples=10)
@given(st.sampled_from(["country-skew-80", "country-half-skew", "zipf"]), st.integers(1, 30_000), st.integers(1, 5))
def test_the_processes_share_the_workload(name: str, events: int, slots: int) -> None:
    found: dict[int, bytes] = {}
    for slot in range(slots):
        for event in events_of(workload(name, events, 1), PARTITIONS, slot, slots):
            assert event.partition == partition_of(event.key, PARTITIONS)
            found[event.place * slots + slot] = event.key
    assert [found[number] for number in range(events)] == keys_of(name, events)


@given(st.integers(0, 10**12), st.floats(0, 1e6), st.integers(0, 300))
def test_values_are_json_of_a_least_length(number: int, weight: float, least: int) -> None:
    value = value_of(number, weight, least)
    assert len(value) >= least
    told = json.loads(value)
    assert (told["number"], told["weight"]) == (number, weight)
    assert set(told.get("padding", "")) <= {"x"}


def test_a_value_is_as_long_as_asked_if_padding_fits() -> None:
    assert [len(value_of(7, 1, least)) for least in (0, 10, 40, 100)] == [23, 23, 40, 100]


class Batch:
    """As many records as fit."""

    def __init__(self, room: int) -> None:
        self.rows: list[dict[str, Any]] = []
        self._room = room

    def append(self, **row: Any) -> object | None:
        if len(self.rows) == self._room:
            return None
        self.rows.append(row)
        return object()


class Broker:
    """Takes batches, and acknowledges none before it is told to."""

    def __init__(self, room: int = 10) -> None:
        self.taken: list[tuple[int, Batch]] = []
        self.answers = asyncio.Event()
        self._room = room

    def create_batch(self) -> Batch:
        return Batch(self._room)

    async def send_batch(self, batch: Batch, topic: str, partition: int) -> asyncio.Future[bool]:
        assert topic == "events"
        self.taken.append((partition, batch))
        return asyncio.ensure_future(self.answers.wait())

    @property
    def records(self) -> int:
        return sum(len(batch.rows) for _, batch in self.taken)


def asked(**changes: Any) -> EventLoadSettings:
    return EventLoadSettings(bootstrap_servers="unused:1", **{"rate": 2000, "seconds": 0.1, **changes})


def sender(broker: Any, settings: EventLoadSettings, clock: Any) -> Sender:
    return Sender(settings, Schedule(settings.rate, settings.events), broker, PARTITIONS, clock, lambda: 1000 + clock())


async def test_events_fall_due_while_nothing_is_acknowledged_and_their_wait_counts() -> None:
    broker, wanted, now = Broker(), asked(), 5.0
    sending = sender(broker, wanted, lambda: now)
    events = events_of(wanted.open_workload(wanted.events), PARTITIONS, 0, 1)
    running = asyncio.create_task(sending.run(events, start=5.0))
    await until(lambda: broker.taken)
    now = 5.5
    await until(lambda: len(broker.taken) == PARTITIONS)
    assert sending.report.acknowledged == 0
    now = 7.0
    broker.answers.set()
    await running
    assert sending.report.acknowledged == broker.records == 200
    assert sending.report.latencies.longest == pytest.approx(2.0), "the first event waited from its time on"
    assert sending.report.latencies.quantile(0.01) >= 1.9, "and all others from theirs"
    stamps = [row["timestamp"] for _, batch in broker.taken for row in batch.rows]
    assert sorted(stamps) == [1005_000 + n // 2 for n in range(200)], "events carry the time they were intended for"


async def test_a_broker_that_stays_behind_ends_the_run() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.01
        return now

    wanted = asked(seconds=100, delivery_timeout=2)
    events = events_of(wanted.open_workload(wanted.events), PARTITIONS, 0, 1)
    with pytest.raises(Fatal, match="the broker can't take 2000/s"):
        await sender(Broker(), wanted, clock).run(events, start=0.0)


async def test_an_event_that_fits_into_no_batch_is_told() -> None:
    wanted = asked(delivery_timeout=5)
    events = events_of(wanted.open_workload(wanted.events), PARTITIONS, 0, 1)
    with pytest.raises(Fatal, match="does not fit"):
        await sender(Broker(room=0), wanted, lambda: 50.0).run(events, start=0.0)
