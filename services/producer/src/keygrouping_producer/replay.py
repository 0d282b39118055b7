"""Replays a plan into the events topic, exactly once: events and the position behind them in one transaction.

After any error nothing is repaired: the producer goes, and a new one (which fences the old) begins at the position
that the broker has. The same happens after a crash of the process, or when the workload is switched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.topic_ids import UNKNOWN
from keygrouping_service.records.batches import Outbox
from keygrouping_service.settings import PREFIX
from pydantic import BaseModel

from keygrouping_producer import metrics
from keygrouping_producer.filling import Filler, Target
from keygrouping_producer.ledger import copy_of, fence_predecessors, read_places
from keygrouping_producer.opening import open_source
from keygrouping_producer.plan import Pace, Plan
from keygrouping_producer.position import Place, Run, begin, places_in, resume
from keygrouping_producer.rate import Clock, TokenBucket
from keygrouping_producer.settings import ProducerSettings
from keygrouping_producer.sources.base import Rounds, SourceError

log = logging.getLogger(__name__)

_KEEP_ALIVE = 6 * 3600.0
"""Seconds between commits while nothing is left to do: brokers forget a group's offsets after days of silence."""

_FENCED_LIMIT = 3
_FENCED_WITHIN = 60.0


class Status(BaseModel):
    """Where a replay stands.

    sent: events acknowledged since the run began; bad_lines: those in dead-letters; total: items of one round, None
    while not known; rate: events per second, 0 without limit; done: everything is acknowledged and there is no more.
    """

    run: int
    workload: str
    skew: int | None
    key: str | None
    rate: float
    loop: bool
    sent: int
    bad_lines: int
    total: int | None
    done: bool


class Replayer(Protocol):
    """A running replay, in this process or in several."""

    async def run(self) -> None:
        """Works until `stop`; raises `Fatal` if it can't go on."""

    async def switch(self, plan: Plan) -> None:
        """Begins a new run of `plan`; returns when the broker has recorded it."""

    async def set_pace(self, pace: Pace) -> None:
        """Changes rate and loop of the current run."""

    def plan(self) -> Plan:
        """The plan in force."""

    def status(self) -> Status:
        """Where it stands now."""

    async def done(self) -> None:
        """Returns when everything is acknowledged and there is no more."""

    def stop(self) -> None:
        """Asks `run` to finish what is under way and return."""


class Replay:
    """One slot of `slots`: writes the partitions p with p % slots == slot. See `Replayer`.

    led: whether who started it is still there. If not, another start may have begun and given its partitions to others.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        slot: int = 0,
        slots: int = 1,
        *,
        led: Callable[[], bool] = lambda: True,
        clock: Clock = time.monotonic,
    ) -> None:
        self._settings = settings
        self._slot = slot
        self._slots = slots
        self._led = led
        self._clock = clock
        self._bucket = TokenBucket(settings.rate, clock)
        self._run: Run | None = None
        self._places: Mapping[int, Place] = {}
        self._positions = Positions(settings, settings.positions_group)
        self._topic_id = UNKNOWN
        self._total: int | None = None
        self._stopping = False
        self._deadline: asyncio.Timeout | None = None
        self._switched = asyncio.Event()
        self._wake = asyncio.Event()
        self._recorded = asyncio.Condition()
        self._done = asyncio.Event()
        self._fenced: deque[float] = deque(maxlen=_FENCED_LIMIT)

    async def run(self) -> None:
        """Runs sessions until stopped, a new one after every error that may pass."""
        try:
            async with asyncio.timeout(None) as self._deadline:
                await self._run_sessions()
        except TimeoutError:
            log.warning("stopped while the broker was unavailable; the next start continues from what the broker has")
        finally:
            self._deadline = None

    async def _run_sessions(self) -> None:
        delays = backoff()
        while not self._stopping:
            started = self._clock()
            try:
                with given_up_calls():
                    await self._session()
            except SourceError as error:
                raise Fatal(str(error)) from error
            except Exception as error:
                if not can_be_retried(error):
                    raise
                self._note_fencing(error)
                if self._clock() - started > _FENCED_WITHIN:
                    delays = backoff()
                delay = next(delays)
                log.warning("the replay is interrupted, going on in %.1f s: %s", delay, error or type(error).__name__)
                if not self._stopping:
                    self._wake.clear()
                    await self._pause(delay)

    async def switch(self, plan: Plan) -> None:
        """Ends the current run after what is under way, and begins a new one."""
        async with self._recorded:
            await self._recorded.wait_for(lambda: self._run is not None)
            run = self._run
            assert run is not None
            self._run = begin(run, plan, run.configured, run.partitions, self._slots)
            number = self._run.number
            self._done.clear()
            self._switched.set()
            self._wake.set()
            await self._recorded.wait_for(lambda: self._recorded_run() >= number)

    async def set_pace(self, pace: Pace) -> None:
        """In force at once, recorded with the next transaction."""
        async with self._recorded:
            await self._recorded.wait_for(lambda: self._run is not None)
        assert self._run is not None
        plan = self._run.plan.model_copy(update={"pace": pace})
        self._run = self._run.model_copy(update={"plan": plan})
        self._bucket.set_rate(pace.rate)
        self._done.clear()
        self._wake.set()

    def plan(self) -> Plan:
        """The plan in force, that of the settings before the broker was asked."""
        return self._run.plan if self._run else self._settings.plan()

    def status(self) -> Status:
        """Counts of this slot's partitions, as acknowledged."""
        plan = self.plan()
        counted = [place.counters for place in self._places.values()]
        return Status(
            run=self._recorded_run(),
            workload=plan.workload.workload,
            skew=plan.workload.skew,
            key=plan.workload.key,
            rate=plan.pace.rate,
            loop=plan.pace.loop,
            sent=sum(counters.sent for counters in counted),
            bad_lines=sum(counters.bad for counters in counted),
            total=self._total,
            done=self._done.is_set(),
        )

    async def done(self) -> None:
        """Returns when the end of the source is acknowledged."""
        await self._done.wait()

    def stop(self) -> None:
        """Lets `run` return after the transaction that is under way."""
        if not self._stopping:
            self._stopping = True
            self._wake.set()
            if self._deadline is not None:
                self._deadline.reschedule(asyncio.get_running_loop().time() + self._settings.shutdown_timeout)

    def _recorded_run(self) -> int:
        return max((place.run.number for place in self._places.values()), default=0)

    async def _session(self) -> None:
        """The life of one producer: from the fencing of its predecessor to the first error, switch or stop."""
        settings = self._settings
        producer = clients.producer(
            settings,
            transactional_id=settings.transactional_id("producer", self._slot),
            transaction_timeout_ms=round(settings.transaction_timeout * 1000),
            compression=settings.compression,
            batch_bytes=settings.batch_bytes,
        )
        async with clients.started(producer):
            if not self._led():  # A later start fences this producer, or has before it was here to be fenced.
                self.stop()
                return
            run, places = await self._find_places()
            await self._commit(producer, None, places)
            source = await asyncio.to_thread(open_source, run.plan.workload, settings.max_event_bytes)
            target = Target(producer, settings.events_topic, settings.dead_letters_topic, settings.max_event_bytes)
            await self._pump(target, run, places, Rounds(source))

    async def _find_places(self) -> tuple[Run, dict[int, Place]]:
        if self._slots == 1:
            await fence_predecessors(self._settings, first=1)
        stored, partitions, self._topic_id = await read_places(self._settings, (self._slot, self._slots))
        run = self._run or resume(stored.values(), self._settings.plan(), partitions, self._slots)
        if run.partitions > partitions:
            raise Fatal(
                f"the replay began on {run.partitions} partitions, but topic {self._settings.events_topic!r} has "
                f"{partitions} now, so it was created again: to begin again, set {PREFIX}PRODUCER_APPLICATION to a "
                f"name other than {self._settings.application!r}"
            )
        own = range(self._slot, run.partitions, self._slots)
        if not own:
            raise Fatal(f"{self._slots} processes are too many for {run.partitions} partitions")
        self._run = run
        self._switched.clear()
        return run, places_in(run, stored, own)

    async def _pump(self, target: Target, run: Run, places: dict[int, Place], rounds: Rounds) -> None:
        """Fills the next transaction while the one before is being committed."""
        filler = Filler(target, rounds, run, places)
        log.info("replaying %s from position %d on", run.plan.workload.workload, filler.position)
        self._bucket = TokenBucket((self._run or run).plan.pace.rate, self._clock)
        async with _UnderWay() as under_way:
            while not (self._stopping or self._switched.is_set()):
                self._wake.clear()
                run = self._run or run
                granted = self._bucket.take(self._settings.transaction_events)
                if not granted:
                    await self._pause(self._bucket.wait())
                    continue
                chunk = await asyncio.to_thread(filler.fill, granted, run)
                self._bucket.give_back(granted - chunk.items)
                self._total = rounds.length
                await under_way.follow(self._commit(target.producer, chunk.outbox, chunk.places))
                if chunk.items:
                    await self._pause(self._settings.linger if self._bucket.rate else 0)
                else:
                    await under_way.finish()
                    await self._rest(run)

    async def _rest(self, run: Run) -> None:
        """Waits at the end of the source for a change, or until the broker is to be reminded of the position."""
        if self._run is run and not self._done.is_set():
            status = self.status()
            log.info("done: %d events and %d bad lines were acknowledged", status.sent, status.bad_lines)
            self._done.set()
        await self._pause(_KEEP_ALIVE)

    async def _commit(self, producer: AIOKafkaProducer, outbox: Outbox | None, places: Mapping[int, Place]) -> None:
        """One transaction: records, and where the partitions stand after them."""
        topic = self._settings.events_topic
        offsets = {TopicPartition(topic, partition): place.encode() for partition, place in places.items()}
        outbox = Outbox(producer) if outbox is None else outbox
        for partition, place in places.items():
            self._positions.append(outbox, copy_of(self._settings, self._topic_id, partition), place.encode())
        await producer.begin_transaction()
        await outbox.send()
        await producer.send_offsets_to_transaction(offsets, self._settings.positions_group)
        await producer.commit_transaction()
        async with self._recorded:
            self._count(places)
            self._places = places
            self._recorded.notify_all()

    def _count(self, places: Mapping[int, Place]) -> None:
        for partition, place in places.items():
            before = self._places.get(partition)
            if before is not None and before.run.number == place.run.number:
                metrics.SENT.inc(place.counters.sent - before.counters.sent)
                metrics.BAD_LINES.inc(place.counters.bad - before.counters.bad)

    async def _pause(self, seconds: float) -> None:
        """Waits, but not over a stop, a switch or a change of pace."""
        if seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _note_fencing(self, error: Exception) -> None:
        """Two producers of one name would fence each other for ever: gives up instead."""
        if not isinstance(error, ProducerFenced):
            return
        self._fenced.append(self._clock())
        if len(self._fenced) == _FENCED_LIMIT and self._fenced[-1] - self._fenced[0] < _FENCED_WITHIN:
            raise Fatal(
                f"another producer of the application {self._settings.application!r} is running: "
                "stop it, or set another KEYGROUPING_APPLICATION"
            )


class _UnderWay:
    """At most one transaction in the background; leaving the block waits for it, an error drops it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _UnderWay:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.finish()
        elif self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def follow(self, transaction: Coroutine[Any, Any, None]) -> None:
        """Starts a transaction when the one before is through; raises the error of the one before."""
        try:
            await self.finish()
        except BaseException:
            transaction.close()
            raise
        self._task = asyncio.create_task(transaction)

    async def finish(self) -> None:
        """Waits for the transaction under way; raises its error."""
        if self._task is not None:
            await self._task
