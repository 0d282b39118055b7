"""Exactly-once consume-transform-produce over the partitions of a topic, shared by replicas as a consumer group.

aiokafka leaves traps on this road; the shape of this module is what avoids them:

- It commits offsets in a transaction without the member's generation, so a member that has lost a partition could
  still commit. Here each input partition has one transactional id, whoever owns it: starting the producer fences the
  owner before, and the committed offset is read only after that.
- A rebalance resets positions and drops fetched records under the feet of whoever reads, and a listener that waits
  for a reader deadlocks. Here the consumer that is the group's member never reads; each owned partition has a reader
  outside of the group, made and closed with its producer.
- A commit may succeed although a batch of its transaction was refused. Here every batch is awaited first.
- After an error nothing is repaired: reader, producer and the work's state go, and all restarts at the committed
  offset.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError, KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, cancel, given_up_calls
from keygrouping_kafka.errors import can_be_retried
from prometheus_client import Counter

from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.hanging import warn_of_open_transactions
from keygrouping_service.kafka.owned import Clients, OwnedPartition
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import OffsetsHeldError, read_starts
from keygrouping_service.kafka.ranges import Ends, is_over
from keygrouping_service.kafka.retention import Retention
from keygrouping_service.kafka.starts import Start, created_again, find_starts
from keygrouping_service.kafka.topic_ids import read_topic_ids, same_topic, topic_id_text
from keygrouping_service.observability import metrics
from keygrouping_service.records.aiokafka_adapter import PartitionSource
from keygrouping_service.records.bisection import Bisection, DefectError
from keygrouping_service.records.bounded import Bounded
from keygrouping_service.records.dead_letters import DeadLetters
from keygrouping_service.records.protocols import Source
from keygrouping_service.records.unpacking import DEFAULT_LARGEST, Unpacking
from keygrouping_service.settings import StageSettings

log = logging.getLogger(__name__)

Delivery = Literal["exactly_once", "at_least_once"]
Work = Callable[[OwnedPartition], Awaitable[None]]

_NEVER_MS = 2**31 - 1
_METADATA_MS = 30_000
_CLOSING_SECONDS = 2.0
_PAUSE_OF_BISECTION = 0.1
_WATCH_SECONDS = 2.0
"""Partitions that are added to the topic are noticed after this time at the latest."""

_RETENTION_SECONDS = 20.0
"""Between two looks at what retention is about to delete."""


class PartitionRunner:
    """Runs `work` on every partition of `topic` that the group `{application}-{stage}` gives to this process.

    `work` is a coroutine function; one call is one session on one partition, with no state but its own:

        async def work(owned: OwnedPartition) -> None:
            state = State.restored_from(owned.progress)         # reading begins at owned.offset
            while not owned.stopping:
                records = await owned.poll(max_records=10_000, timeout=0.2)
                outbox = owned.outbox()
                state.apply(records, outbox)                     # CPU in slices below 100 ms: heartbeats share the loop
                await owned.submit(outbox, owned.position, state.progress)   # or commit(); at whatever moments suit
            await owned.flush()

    - It returns only when `owned.stopping` (service shutdown); commit what is worth it, within `grace` seconds.
    - It is cancelled at any await when the group takes the partition away: everything uncommitted is aborted. Don't
      commit in a `finally`.
    - Any error that it lets through ends the session; after a pause the next one begins at the committed offset.
      One that comes again there is narrowed down to a record, which `poll` then leaves out: see `Bisection`. While that
      goes on, `owned.careful` asks it to submit all that it took before it polls again.
    - `Fatal`, and errors that are no Kafka errors before anything was taken, stop the service.
    - The offset that is committed may lie behind what was read (open windows): the next session reads it again.
    - Commit as seldom as latency allows: a transaction costs about 10 round trips and one marker per partition.

    `largest`: records of more bytes (key, value and headers, unpacked) are not read; what is left of them goes to
    `dead-letters`, counted in `dead` by reason.

    `ends`: the offset at which each partition ends, for an input of which a range is read. Work then commits the
    progress END at `owned.at_end`, and when all partitions are committed so `run` returns.

    `own_state`: the topic is not input but state that the work itself writes. It is read at the begin only, so there is
    no lag to show, and it may be deleted to begin again.

    `assignor` decides who gets which partition (default: round robin); it is an instance of aiokafka's
    AbstractPartitionAssignor, whose `metadata` may send user data such as the replica's ordinal. All members must
    offer the same one.
    """

    def __init__(  # noqa: PLR0913 -- independent settings, most with a default
        self,
        settings: StageSettings,
        stage: str,
        topic: str,
        work: Work,
        *,
        delivery: Delivery = "exactly_once",
        ends: Ends | None = None,
        own_state: bool = False,
        assignor: type[AbstractPartitionAssignor] | AbstractPartitionAssignor = RoundRobinPartitionAssignor,
        grace: float = 20.0,
        largest: int = DEFAULT_LARGEST,
        dead: Counter | None = None,
    ) -> None:
        self.owned: dict[int, OwnedPartition] = {}
        self.group = settings.group(stage)
        self._settings = settings
        self._stage = stage
        self._topic = topic
        self._work = work
        self._delivery = delivery
        self._ends = ends
        self._over = asyncio.Event()
        self._assignor = assignor
        self._grace = grace
        self._largest = largest
        self._dead = dead
        self._bisections: defaultdict[int, Bisection] = defaultdict(Bisection)
        self._stop = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._member: AIOKafkaConsumer | None = None
        self._positions = None if own_state else Positions(settings, self.group)
        self._assigned: set[int] | None = None
        self._moved: set[int] = set()
        self._seen: dict[int, tuple[int, int]] = {}
        """Of each partition: the offset where work would begin now, and the end, both as they were seen last."""
        self._retention_due = 0.0
        metrics.show_group(self.group)
        metrics.INPUT_SEEN.labels(self.group).set_to_current_time()
        metrics.ASSIGNED.labels(self.group).set_function(lambda: len(self._assigned or ()))
        if not own_state:
            metrics.LAG.labels(self.group).set_function(self._lag)

    @property
    def ready(self) -> bool:
        """Whether the group has spoken and work has begun on all partitions it gave."""
        return self._assigned is not None and self._assigned == set(self.owned)

    def _lag(self) -> int:
        return sum(self._lag_of(partition) for partition in self._assigned or ())

    def _lag_of(self, partition: int) -> int:
        owned = self.owned.get(partition)
        if owned is not None:
            return owned.lag or 0
        start, end = self._seen.get(partition, (0, 0))
        return max(0, end - start)

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set or a range is over, then lets the work finish and leaves the group.

        Raises what can't be retried.
        """
        # Kernels hold the interpreter while they are compiled or loaded: a member would lose its session meanwhile.
        await asyncio.to_thread(_warm_up)
        async with AsyncExitStack() as stack:
            shared = await clients.retry(lambda: self._start_shared(stack), "connecting to Kafka")
            membership = asyncio.create_task(self._keep_membership(shared))
            watching = asyncio.create_task(self._watch_ends(*shared))
            stopping = asyncio.create_task(stop.wait())
            over = asyncio.create_task(self._over.wait())
            try:
                ends: list[asyncio.Future[Any]] = [stopping, over, membership, watching, self._failure]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                self._stop.set()
                await self._finish()
            finally:
                self._stop.set()
                await cancel([stopping, over, membership, watching])
                await self._drop_all()
            for outcome in (membership, watching, self._failure):
                if outcome.done() and not outcome.cancelled():
                    outcome.result()

    async def _start_shared(self, stack: AsyncExitStack) -> tuple[AIOKafkaAdminClient, AIOKafkaConsumer]:
        admin = await stack.enter_async_context(clients.started(clients.admin(self._settings)))
        probe = await stack.enter_async_context(clients.started(clients.reader(self._settings, committed=False)))
        if self._positions is not None:
            await self._positions.require(admin)
        return admin, probe

    async def _watch_ends(self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer) -> None:
        """Keeps the lags true where work takes long or can't begin, and shows that Kafka answers."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                with given_up_calls():
                    await self._see_ends(admin, probe)
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("cannot read the end offsets of %s: %r", self._topic, error)

    async def _see_ends(self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer) -> None:
        # Who was given nothing asks for a partition all the same: whether Kafka answers is to be known of all.
        partitions = [TopicPartition(self._topic, partition) for partition in self._assigned or (0,)]
        found = await probe.end_offsets(partitions)
        ends = {tp.partition: min(end, self._end_of(tp.partition, end)) for tp, end in found.items()}
        for partition in ends.keys() & self.owned.keys():
            self.owned[partition].seen_end = ends[partition]
        await self._check_id(admin)
        starts = await read_starts(admin, probe, self.group, partitions)
        self._seen = {partition: (start.offset or 0, ends[partition]) for partition, start in starts.items()}
        metrics.INPUT_SEEN.labels(self.group).set_to_current_time()
        if self._ends is not None and await is_over(admin, self.group, self._topic):
            log.info("group %s has read %s up to the end of its range", self.group, self._topic)
            self._over.set()
        if self._positions is not None and time.monotonic() >= self._retention_due:
            self._retention_due = time.monotonic() + _RETENTION_SECONDS
            await self._see_retention(Retention(admin, probe, self._topic))

    def _end_of(self, partition: int, otherwise: int) -> int:
        """Where the range ends in a partition; one that was added later has no part in it."""
        return otherwise if self._ends is None else self._ends.get(partition, 0)

    async def _see_retention(self, retention: Retention) -> None:
        unread = {partition: seen for partition, seen in self._seen.items() if partition in (self._assigned or ())}
        try:
            expiring = await retention.expiring(unread, int(time.time() * 1000))
        except KafkaError as error:
            # Whatever is wrong with it, the stage can work.
            log.warning("cannot read which offsets of %s retention deletes next: %r", self._topic, error)
            return
        if expiring is not None:
            metrics.EXPIRING.labels(self.group).set(expiring)

    async def _check_id(self, admin: AIOKafkaAdminClient) -> None:
        """`Fatal` if the topic is another one than that which is being read."""
        ids = await read_topic_ids(admin, [self._topic])
        for owned in self.owned.values() if self._topic in ids and self._positions else ():
            if not same_topic(owned.topic_id, now := topic_id_text(ids[self._topic])):
                raise Fatal(created_again(self._topic, self.group, owned.topic_id, now))

    async def _finish(self) -> None:
        """Lets work end in order; a session that has not begun it, or has ended it, gets a moment only."""
        if not self._tasks or self._failure.done():
            return
        await asyncio.wait(self._tasks.values(), timeout=_CLOSING_SECONDS)
        if working := [task for partition, task in self._tasks.items() if partition in self.owned]:
            await asyncio.wait(working, timeout=self._grace)

    async def _drop_all(self) -> None:
        self._assigned = None
        self._seen = {}
        tasks, self._tasks = list(self._tasks.values()), {}
        await cancel(tasks)

    # membership: who owns what

    async def _keep_membership(self, shared: tuple[AIOKafkaAdminClient, AIOKafkaConsumer]) -> None:
        pauses = backoff()
        while True:
            member = self._new_member(shared)
            try:
                with given_up_calls():
                    async with clients.started(member):
                        self._member = member
                        while True:
                            await member.getmany(timeout_ms=1000)
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("membership of group %s is lost, joining again: %s", self.group, error)
            await self._revoked()
            await asyncio.sleep(next(pauses))

    def _new_member(self, shared: tuple[AIOKafkaAdminClient, AIOKafkaConsumer]) -> AIOKafkaConsumer:
        session_ms = int(self._settings.session_timeout * 1000)
        rebalance_ms = max(session_ms, 30_000)
        # Who joins is answered when all have joined.
        options = self._settings.kafka_options() | {"request_timeout_ms": rebalance_ms + 5000}
        member = AIOKafkaConsumer(
            **options,
            group_id=self.group,
            group_instance_id=self._settings.instance_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=min(3000, session_ms // 3),
            rebalance_timeout_ms=rebalance_ms,
            max_poll_interval_ms=_NEVER_MS,
            metadata_max_age_ms=_METADATA_MS,
            max_partition_fetch_bytes=1,
            consumer_timeout_ms=5000,
            partition_assignment_strategy=(self._assignor,),
        )
        member.subscribe(topics=[self._topic], listener=_Listener(self, member, shared))
        return member

    async def _revoked(self) -> None:
        metrics.REBALANCES.labels(self.group).inc()
        await self._drop_all()

    def _begin(self, partitions: Iterable[int], shared: tuple[AIOKafkaAdminClient, AIOKafkaConsumer]) -> None:
        self._assigned = set(partitions)
        if self._stop.is_set():
            return
        for partition in self._assigned:
            task = asyncio.create_task(self._keep(partition, shared), name=f"{self.group}-{partition}")
            task.add_done_callback(self._notice_failure)
            self._tasks[partition] = task

    def _notice_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self._failure.done():
            self._failure.set_exception(error)

    # work: one session after another

    async def _keep(self, partition: int, shared: tuple[AIOKafkaAdminClient, AIOKafkaConsumer]) -> None:
        pauses = backoff()
        while not self._stop.is_set():
            self._moved.discard(partition)
            try:
                with given_up_calls():
                    return await self._incarnate(TopicPartition(self._topic, partition), *shared)
            except _PoisonError as error:
                pause = _PAUSE_OF_BISECTION
                log.warning("%s[%d] restarts at its committed offset: %s", self._topic, partition, error)
            except (ProducerFenced, CommitFailedError) as error:
                # Either the partition has gone to another member, of which our next heartbeat will tell, or the
                # broker gave up a transaction of ours that took too long.
                pause = min(3.0, self._settings.session_timeout / 3) + 1.0
                log.warning("%s[%d] was fenced: %s", self._topic, partition, error)
            except Exception as error:
                if not can_be_retried(error):
                    raise
                if isinstance(error, OffsetsHeldError):
                    # Its copies are written in the same transaction, to a topic that may be described.
                    await warn_of_open_transactions(shared[0], TopicPartition(self._settings.positions_topic, 0))
                if partition in self._moved:
                    pauses = backoff()
                pause = next(pauses)
                log.warning(
                    "%s[%d]: a new session begins at the committed offset in %.1f s, as the last one ended with: %r",
                    self._topic,
                    partition,
                    pause,
                    error,
                )
            metrics.RESTARTS.labels(self.group).inc()
            await _sleep(pause, self._stop)

    async def _incarnate(self, tp: TopicPartition, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer) -> None:
        async with AsyncExitStack() as stack:
            producer = await stack.enter_async_context(clients.started(self._new_producer(tp.partition)))
            start = await self._find_start(tp, admin, probe)
            unpacking = Unpacking(self._largest)
            reader = clients.reader(
                self._settings, unpacking=unpacking, max_partition_fetch_bytes=self._settings.fetch_bytes
            )
            await stack.enter_async_context(clients.started(reader))
            reader.assign([tp])
            reader.seek(tp, start.committed.offset)
            commit = None if self._delivery == "exactly_once" else self._commit_offset
            dead_letters = DeadLetters(self._settings.dead_letters_topic, producer, self._dead)
            source: Source = PartitionSource(reader, tp, unpacking)
            until = None if self._ends is None else self._end_of(tp.partition, 0)
            if until is not None:
                source = Bounded(source, until)
            connections = Clients(source, producer, dead_letters, admin, probe, commit, self._positions)
            bisection = self._bisections[tp.partition]
            owned = OwnedPartition(tp, start.committed, connections, self.group, self._stop, bisection, until)
            stack.push_async_callback(owned.abandon)
            stack.callback(self._disown, owned)
            if tp.partition in self._seen:
                _, owned.seen_end = self._seen[tp.partition]
            self.owned[tp.partition] = owned
            try:
                if start.moved:
                    await owned.commit(None, owned.offset, owned.progress)
                await self._work(owned)
                await owned.flush()
            except (Fatal, ProducerFenced, CommitFailedError):
                raise
            except Exception as error:
                self._narrow(bisection, owned, error)
                raise

    def _narrow(self, bisection: Bisection, owned: OwnedPartition, error: Exception) -> None:
        """Raises `_PoisonError` if a record may be to blame, `Fatal` if it can't be any."""
        suspects = owned.suspects
        try:
            if not bisection.failed(suspects, error):
                return
        except DefectError as defect:
            raise Fatal(f"{owned.tp.topic}[{owned.partition}]: {defect}") from error
        log.info("%s[%d]: processing failed at %s", owned.tp.topic, owned.partition, suspects, exc_info=error)
        raise _PoisonError(f"{type(error).__name__}: {error}; one of {suspects} may be the cause") from error

    async def _find_start(self, tp: TopicPartition, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer) -> Start:
        if self._positions is None:
            start = Start((await read_starts(admin, probe, self.group, [tp]))[tp.partition])
        else:
            starts = await find_starts(admin, probe, self._settings, self._positions, self.group, [tp])
            start = starts[tp]
        if start.committed.offset is None:
            (first,) = (await probe.beginning_offsets([tp])).values()
            start = replace(start, committed=replace(start.committed, offset=first))
        return start

    def _disown(self, owned: OwnedPartition) -> None:
        del self.owned[owned.partition]
        if owned.committed.offset != owned.offset:
            self._moved.add(owned.partition)

    def _new_producer(self, partition: int) -> AIOKafkaProducer:
        settings = self._settings
        exactly_once = self._delivery == "exactly_once"
        return clients.producer(
            settings,
            transactional_id=settings.transactional_id(self._stage, partition) if exactly_once else None,
            transaction_timeout_ms=int(settings.transaction_timeout * 1000),
            compression=settings.compression,
            batch_bytes=settings.batch_bytes,
            retry_backoff_ms=50,
        )

    async def _commit_offset(self, tp: TopicPartition, position: OffsetAndMetadata) -> None:
        if self._member is None or tp not in self._member.assignment():
            raise CommitFailedError(f"{tp} is no longer ours")
        await self._member.commit({tp: position})


def _warm_up() -> None:
    from keygrouping_service.records.v2.precompile import warm_up

    warm_up()


class _PoisonError(Exception):
    """Work failed, and one of the records that it took may be to blame."""


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands the group's decisions to the runner; it waits for nothing that could wait for the group."""

    def __init__(
        self,
        runner: PartitionRunner,
        member: AIOKafkaConsumer,
        shared: tuple[AIOKafkaAdminClient, AIOKafkaConsumer],
    ) -> None:
        self._runner = runner
        self._member = member
        self._shared = shared

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        del revoked
        await self._runner._revoked()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._member.pause(*assigned)
        self._runner._begin((tp.partition for tp in assigned), self._shared)


async def _sleep(seconds: float, stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
