"""One process of a run: `python -m keygrouping_load.sender SLOT`, started by `leader`.

It says that it is ready, gets the time of the start (of the machine's steady clock) on its standard input, and tells
its report at the end. If its input ends, its leader is gone, and it stops.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from keygrouping.version import add_version
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service import children
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_load.report import Report
from keygrouping_load.schedule import Schedule
from keygrouping_load.settings import EventLoadSettings
from keygrouping_load.stream import ScheduledEvent, events_of, value_of

READY = "ready"
_TICK_SECONDS = 0.002
_STRETCH = 2000
"""Events that are handed over before acknowledgements get their turn."""


class Lane:
    """One partition: events wait here while the batch before them is under way."""

    def __init__(self, sender: Sender, partition: int) -> None:
        self._sender = sender
        self._partition = partition
        self._waiting: deque[ScheduledEvent] = deque()
        self._draining: asyncio.Task[None] | None = None

    def add(self, event: ScheduledEvent) -> None:
        """Takes one more."""
        self._waiting.append(event)

    def go(self) -> None:
        """Sends what waits, unless that is going on; raises what stopped it before."""
        if self._draining is not None and self._draining.done():
            self._draining.result()
            self._draining = None
        if self._waiting and self._draining is None:
            self._draining = asyncio.create_task(self._drain())

    async def empty(self) -> None:
        """Returns when nothing waits or is under way any more."""
        self.go()
        if self._draining is not None:
            await self._draining

    def give_up(self) -> None:
        """Forgets what waits and is under way."""
        if self._draining is not None:
            self._draining.cancel()

    async def _drain(self) -> None:
        while self._waiting:
            await self._sender.send(self._partition, self._waiting)


class Sender:
    """The events of one slot, on their way at their times. clock: steady, in seconds; wall: since 1970."""

    def __init__(
        self,
        settings: EventLoadSettings,
        schedule: Schedule,
        producer: AIOKafkaProducer,
        partitions: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.report = Report()
        self._settings = settings
        self._schedule = schedule
        self._producer = producer
        self._clock = clock
        self._wall = wall
        self._lanes = [Lane(self, partition) for partition in range(partitions)]
        self._start = self._wall_start = 0.0
        self._handed_over = 0

    async def run(self, events: Iterator[ScheduledEvent], start: float) -> None:
        """Sends all events, event by event at its time after `start`, and waits until they are acknowledged.

        `Fatal` if acknowledgements stay behind by more than the delivery timeout.
        """
        self._start, self._wall_start = start, self._wall() - self._clock() + start
        try:
            while self._handed_over < self._schedule.size:
                self._hand_over(events)
                self._check_backlog()
                await self._pause()
            async with asyncio.timeout(self._settings.delivery_timeout):
                for lane in self._lanes:
                    await lane.empty()
        except TimeoutError:
            raise Fatal(
                f"events are not acknowledged {self._settings.delivery_timeout:g} s after the last was sent"
            ) from None
        finally:
            for lane in self._lanes:
                lane.give_up()

    async def send(self, partition: int, waiting: deque[ScheduledEvent]) -> None:
        """Sends the first of those that wait, as many as go into a batch."""
        schedule, least = self._schedule, self._settings.value_bytes
        batch = self._producer.create_batch()
        places: list[int] = []
        while waiting:
            event = waiting[0]
            value = value_of(schedule.number(event.place), event.weight, least)
            at = int((self._wall_start + schedule.intended(event.place)) * 1000)
            if batch.append(key=event.key, value=value, timestamp=at) is None:
                break
            waiting.popleft()
            places.append(event.place)
        if not places:
            raise Fatal(f"an event of {least} bytes does not fit into a batch: raise the batch's bytes")
        await self._deliver(batch, partition, places)

    async def _deliver(self, batch: object, partition: int, places: list[int]) -> None:
        try:
            await (await self._producer.send_batch(batch, self._settings.events_topic, partition=partition))
        except KafkaError as error:
            if not can_be_retried(error):
                raise
            self.report.failed += len(places)
            return
        passed = self._clock() - self._start
        self.report.acknowledged += len(places)
        self.report.last = max(self.report.last, passed)
        self.report.latencies.add(passed - self._schedule.intended_all(np.array(places, np.int64)))

    def _hand_over(self, events: Iterator[ScheduledEvent]) -> None:
        passed = self._clock() - self._start
        due = min(self._schedule.due(passed) - self._handed_over, _STRETCH)
        if due > 0:
            self.report.late = max(self.report.late, passed - self._schedule.intended(self._handed_over))
            for event in islice(events, due):
                self._lanes[event.partition].add(event)
            self._handed_over += due
        for lane in self._lanes:
            lane.go()

    def _check_backlog(self) -> None:
        behind = self._handed_over - self.report.acknowledged - self.report.failed
        seconds = behind * self._schedule.slots / self._schedule.rate
        if seconds > self._settings.delivery_timeout:
            raise Fatal(f"acknowledgements are {seconds:.1f} s behind: the broker can't take {self._settings.rate:g}/s")

    async def _pause(self) -> None:
        """Until the next event is due, a moment at least unless there are some already."""
        until = self._start + self._schedule.intended(self._handed_over) - self._clock()
        await asyncio.sleep(0 if until <= 0 else max(_TICK_SECONDS, until))


async def send_slot(settings: EventLoadSettings, slot: int) -> Report:
    """Sends the events of this slot when the leader says so, and gives the report."""
    schedule = Schedule(settings.rate, settings.events, slot, settings.processes)
    # Not idempotent: a batch that was given up would leave a gap after which the broker takes no other.
    producer = clients.producer(
        settings, idempotent=False, compression=settings.compression, batch_bytes=settings.batch_bytes
    )
    async with clients.started(clients.admin(settings)) as admin, clients.started(producer):
        partitions = len(await partitions_of(admin, settings.events_topic))
        if not partitions:
            raise Fatal(f"topic {settings.events_topic} does not exist: create it first")
        events = events_of(settings.open_workload(settings.events), partitions, slot, settings.processes)
        first = list(islice(events, 1))  # What has to be read or compiled for the workload is done before the start.
        orders = await children.orders()
        children.report(READY)
        start = await orders.readline()
        if not start:
            raise Fatal("the leader is gone")
        sender = Sender(settings, schedule, producer, partitions)
        sending = asyncio.create_task(sender.run(_chained(first, events), float(start)))
        ending = asyncio.create_task(orders.read())
        await asyncio.wait([sending, ending], return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
        ending.cancel()
        for outcome in await asyncio.gather(sending, ending, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        return sender.report


def _chained(first: list[ScheduledEvent], rest: Iterator[ScheduledEvent]) -> Iterator[ScheduledEvent]:
    yield from first
    yield from rest


def main() -> None:
    """Sends the events of the slot that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m keygrouping_load.sender", description=__doc__)
    add_version(parser)
    parser.add_argument("slot", type=int, help="number of the sender among those of one load, from 0")
    slot = parser.parse_args().slot
    settings = load(EventLoadSettings)

    async def work(stop: asyncio.Event) -> None:
        sending = asyncio.create_task(send_slot(settings, slot))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([sending, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not sending.done():
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            return
        children.report((await sending).model_dump_json())

    sys.exit(run(work, settings))


if __name__ == "__main__":
    main()
