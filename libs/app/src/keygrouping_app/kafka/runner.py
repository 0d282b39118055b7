"""The app on Kafka: reading into the lanes, writing what handlers return, committing what has ended.

An event's life: it is read, waits for its key and a lane, runs (and runs again after a failure), and has ended when its
handler has returned or its dead letter is made. What it returned is written, and then it is committed as ended: alone,
by the gaps in the commit's metadata, whatever still runs before it. Until then it counts as not ended. With
`exactly_once` both happen in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError, OffsetOutOfRangeError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, cancel, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.kafka.changelog import (
    Copy,
    Restoring,
    changelog_of,
    check_partitions,
    restore,
)
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.giving import keep_giving
from keygrouping_app.kafka.handling import Declared, Handling
from keygrouping_app.kafka.known import KnownRefusals
from keygrouping_app.kafka.left import Left
from keygrouping_app.kafka.member import Member, NotNowError
from keygrouping_app.kafka.moving import Moving
from keygrouping_app.kafka.overflow import SlotPartition, overflow_of, prepare_sharing, slots_are_over
from keygrouping_app.kafka.partials import MarkedPartition, check_begun, prepare_partials
from keygrouping_app.kafka.partition import Partition, Returned
from keygrouping_app.kafka.ranges import (
    End,
    begin,
    committed_of,
    is_over,
    offsets_at,
    split_end,
    split_states,
)
from keygrouping_app.kafka.reading import Reading, new_reader
from keygrouping_app.kafka.refusals import (
    instead_of,
    records_in,
)
from keygrouping_app.kafka.sharing import Sharing, board_of
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.kafka.standbys import Standbys
from keygrouping_app.kafka.topics import Topics, all_topics
from keygrouping_app.kafka.transacting import Transacting
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.kafka.writing import Writer
from keygrouping_app.lanes import Lanes
from keygrouping_app.scheduler import Failure

log = logging.getLogger(__name__)

_FULL_SECONDS = 0.1
_END_SECONDS = 0.5
_START_SECONDS = 30.0
"""For which a member that starts tries to see its topics."""
_LOOK_SECONDS = 5.0
_MOST_RESTORES = 4
"""Partitions whose states are restored at once."""
_GRACE = 5.0
"""Seconds beyond a handler's timeout that what runs is waited for, and what is on its way to slots."""
_GIVE_SECONDS = 4.0
"""For which a slot may be without leader until it is not written: less than who gives an input away waits for it."""


class Runner:
    """One member's work. `handlers` with what makes the lanes in which they run, by topic."""

    def __init__(self, settings: Settings, handlers: Declared) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.seen = time.time()
        """When it last saw its partitions in Kafka, as a member of the group; at first, when it began."""
        self._settings = settings
        self.handling = Handling(settings, handlers, self.partitions)
        self._topics = Topics()
        split = next((topic for topic, handler in self.handling.inputs.items() if handler.split), None)
        self.moving = Moving(
            settings, self.handling.handlers, self.partitions, self.handling.resume, self.handling.refuse
        )
        self.handling.topic_of.update(self.moving.inputs)
        if split is not None:
            self.handling.topic_of[overflow_of(settings.group)] = split
        self.sharing = None if split is None else Sharing(settings, self.handling.lanes[split], self.partitions)
        """None: no handler has `split`."""
        self.standbys = Standbys(settings, self.moving.states)
        self._copies: dict[TopicPartition, Copy] = {}
        """Of partitions that are ours now, until that is begun with."""
        apart = {overflow_of(settings.group), *self.handling.topic_of} - self.handling.inputs.keys()
        self._member = Member(settings, self.handling.topic_of, self, apart, self.standbys)
        self.restoring: dict[TopicPartition, Restoring] = {}
        """Partitions that are ours and wait for their states."""
        self._restores = asyncio.Semaphore(_MOST_RESTORES)
        self._known = KnownRefusals(settings.group, self.partitions)
        self._beginning: dict[TopicPartition, asyncio.Task[None]] = {}
        self._transacting: dict[Partition, asyncio.Task[None]] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._dirty, self._committed = asyncio.Event(), Signal()
        self.transacting = Transacting(
            settings, self.handling, self.sharing, self._known, self.moving.follow, self._committed
        )

    @property
    def name(self) -> str:
        """The app's."""
        return self._settings.group

    @property
    def until(self) -> str:
        """Where the app ends; empty if it runs on."""
        return str(self._settings.until or "")

    @property
    def held(self) -> list[Partition]:
        """All its partitions."""
        return list(self.partitions.values())

    @property
    def lanes(self) -> list[Lanes]:
        """Of all handlers."""
        return list(self.handling.lanes.values())

    @property
    def joined(self) -> bool:
        """Whether the group has given it its partitions."""
        return self._member.joined

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set or the range is over; then what runs ends, all is committed, and the group is left.

        Raises what can't be retried, AppError for topics that are missing.
        """
        async with AsyncExitStack() as stack:
            await self.handling.begin(stack)
            connection = self._settings.connection
            self._admin = await stack.enter_async_context(started(AIOKafkaAdminClient(**connection)))
            await self._prepare_topics()
            self._reader = await stack.enter_async_context(started(new_reader(self._settings)))
            self._reading = Reading(self._settings, self._reader, self.partitions, self.handling, self.sharing)
            if self._settings.start != "earliest":
                await begin(self._settings, self._admin, self._reader, self.handling.inputs, stop)
            self._writer = await stack.enter_async_context(Writer(self._settings, self._topics))
            if self.sharing is not None:
                self._board = await stack.enter_async_context(board_of(self._settings))
                # Begun when there is something to be given.
                self._giver = Writer(self._settings, self._topics, _GIVE_SECONDS)
                stack.push_async_exit(self._giver)
            moving = await self.moving.begin(stack, self.handling.lanes)
            stack.callback(self.handling.close)
            stack.callback(self.standbys.close)
            await self._work(stop, moving)

    async def _work(self, stop: asyncio.Event, moving: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        loops = [
            asyncio.create_task(each())
            for each in (
                *(self._reading.keep, self._keep_committing, self._keep_looking),
                *(self._member.keep, self.standbys.keep, *moving),
            )
        ]
        reading, *_ = loops
        telling: list[asyncio.Task[None]] = []
        if self.sharing is not None:
            giving = keep_giving(self.sharing, self.partitions, self._giver, self._settings.commit_interval)
            telling = [asyncio.create_task(self.sharing.keep(self._board))]
            loops += [*telling, asyncio.create_task(giving)]
        stopping = asyncio.create_task(stop.wait())
        failures = [self._failure, self._member.failure, *(lanes.failure for lanes in self.lanes)]
        over = asyncio.create_task(self._reach_end())
        ends: list[asyncio.Future[Any]] = [stopping, over, *loops, *failures]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() or over.done():
                for each in (reading, *telling):  # nobody is to give it anything from now on
                    each.cancel()
                await asyncio.gather(*(self._drain(each, for_good=True) for each in list(self.partitions.values())))
                self.partitions.clear()
                if telling:  # its last word is that this member ends
                    await asyncio.wait(telling, timeout=_GRACE)
        finally:
            tasks = [stopping, over, *loops, *self._beginning.values(), *self._transacting.values()]
            await cancel(tasks)
        for end in ends:
            if end.done() and not end.cancelled():
                end.result()

    async def _reach_end(self) -> None:
        """Returns when the group has committed all up to the end; never if there is none."""
        while True:
            await asyncio.sleep(_END_SECONDS)
            inputs = [each for each in self.partitions.values() if each.tp.topic in self.handling.inputs]
            if self._settings.until is None or not all(each.read for each in inputs):
                continue
            try:
                with given_up_calls():
                    if (
                        await is_over(self._settings, self._admin, self.handling.inputs)
                        and await self._are_slots_over()
                    ):
                        log.info("every event up to the end of the range is handled (until: %s)", self._settings.until)
                        return
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("cannot check whether the range has been handled, trying again: %r", error)

    async def _are_slots_over(self) -> bool:
        """To be asked when the inputs are over: then nothing more comes to slots."""
        mergers = self.handling.mergers
        behind = {slots for slots, topic in self.moving.inputs.items() if topic in mergers}
        if not await self._left.is_over():
            return False
        slots = self.handling.topic_of.keys() - self.handling.inputs.keys() - mergers - behind
        for topics in (slots, mergers, behind):  # each is over when nothing comes from those before it
            if topics and not await slots_are_over(self._admin, self._settings, topics):
                return False
        return True

    # Which partitions are ours.

    def gain(self, tp: TopicPartition) -> None:
        """See `Owner`."""
        if (copy := self.standbys.take(tp)) is not None:
            self._copies[tp] = copy
        self._start(tp, self._begin(tp))

    async def give_up(self, tp: TopicPartition) -> None:
        """See `Owner`."""
        self._stop_beginning(tp)
        if (partition := self.partitions.get(tp)) is not None:
            await self._drain(partition)
            self.partitions.pop(tp, None)
            self._end_transactions(partition)
            self._reading.begin_again()

    def lose(self, tp: TopicPartition) -> None:
        """See `Owner`."""
        self._stop_beginning(tp)
        if (partition := self.partitions.pop(tp, None)) is not None:
            log.warning(
                "%s[%d] is another member's, or may be: what runs of it is stopped if it can be, and runs again there",
                *tp,
            )
            partition.lost = True
            self.handling.of(partition).abandon(partition)
            self._end_transactions(partition)
            self._reading.begin_again()
            self._committed.set()

    def may_start(self, until: float) -> None:
        """See `Owner`."""
        self.handling.may_start(until)

    def _start(self, tp: TopicPartition, beginning: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(beginning)
        self._beginning[tp] = task
        task.add_done_callback(self._begun)

    def _spoil(self, partition: Partition, refused: Mapping[int, Failure]) -> None:
        """Has it begin again from what is committed, without these events, by offset: others have met their states."""
        log.warning(
            "%s[%d] begins again from what is committed, without %d events of which outputs or states are refused: %s",
            *(*partition.tp, len(refused), next(iter(refused.values())).detail),
        )
        partition.spoilt = True
        partition.refused |= refused
        self.handling.of(partition).withdraw(partition)
        self._start(partition.tp, self._begin_again(partition))

    async def _begin_again(self, partition: Partition) -> None:
        await self._let_end(partition)
        del self.partitions[partition.tp]
        await self._begin(partition.tp, partition.refused)

    def _stop_beginning(self, tp: TopicPartition) -> None:
        if (task := self._beginning.pop(tp, None)) is not None:
            task.cancel()
        if (copy := self._copies.pop(tp, None)) is not None:
            copy.states.close()

    async def _begin(self, tp: TopicPartition, refused: Mapping[int, Failure] | None = None) -> None:
        handler = self.handling.handler_of(tp)
        followed = self._copies.pop(tp, None)
        async with AsyncExitStack() as begun:
            if followed is not None:
                begun.callback(followed.states.close)
            transactions = None
            if handler.in_transactions:
                largest = self.moving.largest(handler)
                transactions = Transactions(self._settings, self._topics, tp, partial(self._find_start, tp), largest)
                begun.push_async_callback(transactions.close)
            found, end = await self._found(tp, transactions)
            copy = None if handler.kept is None else await self._restored(tp, handler, found, followed)
            if copy is not None:
                self._known.tell(tp, copy.states)
            if copy is not None and (fit := self.handling.lanes[handler.topic.name].fit) is not None:
                begun.callback(copy.states.close)
                fit.check(copy.states, f"{changelog_of(self._settings.group, tp.topic)}[{tp.partition}]")
            begun.pop_all()
        partition = self._partition(tp, found, end, transactions, copy)
        partition.refused |= refused or {}
        if transactions is not None:
            task = asyncio.create_task(self._keep_transacting(partition, transactions))
            self._transacting[partition] = task
            task.add_done_callback(self._fail_with)
        self.partitions[tp] = partition
        if self.sharing is not None and self.handling.topic_of[tp.topic] == self.sharing.topic:
            self.sharing.gain(partition)
        self._reading.begin_again()
        self.handling.room.set()
        if end is not None:
            partition.dirty.set()  # from now on it stays

    def _partition(
        self,
        tp: TopicPartition,
        found: OffsetAndMetadata,
        end: End | None,
        transactions: Transactions | None,
        copy: Copy | None,
    ) -> Partition:
        if copy is not None:
            return self.moving.partition(tp, found, end, transactions, copy)
        handler = self.handling.handler_of(tp)
        dirty = self._dirty if transactions is None else asyncio.Event()
        if tp.topic not in self.handling.inputs:
            return SlotPartition(tp, handler.topic, found, dirty, self.handling.handlers, transactions)
        # One that has come since the start has nowhere to tell that it has begun.
        kind = MarkedPartition if tp.partition < self._marked.get(tp.topic, 0) else Partition
        partition = kind(tp, handler.topic, found, dirty, end, transactions)
        if isinstance(partition, MarkedPartition):
            partition.tell(self._settings.group, found)
        return partition

    async def _found(
        self, tp: TopicPartition, transactions: Transactions | None
    ) -> tuple[OffsetAndMetadata, End | None]:
        for pause in backoff():
            try:
                with given_up_calls():
                    found = await (self._find_start(tp) if transactions is None else transactions.begin())
                    if tp.partition < self._marked.get(tp.topic, 0):
                        await check_begun(self._reader, self._settings.group, tp, found)
                    return found, await self._find_end(tp, found)
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("%s[%d]: cannot read the committed offset, trying again: %r", *tp, error)
            await asyncio.sleep(pause)
        raise AssertionError

    async def _restored(
        self, tp: TopicPartition, handler: Handler, found: OffsetAndMetadata, followed: Copy | None
    ) -> Copy:
        """The states that belong to what is committed; `followed`: those that were followed, if any."""
        progress = self.restoring[tp] = Restoring(handler.topic.name)
        copy = followed or Copy.of(handler, tp)
        try:
            for pause in backoff():
                try:
                    async with self._restores:
                        with given_up_calls():
                            await check_partitions(self._admin, self._settings.group, tp.topic)
                            await restore(self._settings, tp, copy, split_states(found.metadata)[1], progress, handler)
                    return copy
                except BaseException as error:
                    if not can_be_retried(error) or isinstance(error, OffsetOutOfRangeError):
                        copy.states.close()
                        # What was followed may be of a changelog that is there no more.
                        if not can_be_retried(error) and (followed is None or not isinstance(error, Exception)):
                            raise
                        copy, followed = Copy.of(handler, tp), None
                    log.warning("%s[%d]: cannot restore its states, trying again: %r", *tp, error)
                await asyncio.sleep(pause)
            raise AssertionError
        finally:
            if self.restoring.get(tp) is progress:
                del self.restoring[tp]

    def _end_transactions(self, partition: Partition) -> None:
        if (task := self._transacting.get(partition)) is not None:
            task.cancel()

    def _begun(self, task: asyncio.Task[None]) -> None:
        for tp in [tp for tp, other in self._beginning.items() if other is task]:
            del self._beginning[tp]
        self._fail_with(task)

    def _fail_with(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self._failure.done():
            self._failure.set_exception(error)

    async def _find_start(self, tp: TopicPartition) -> OffsetAndMetadata:
        """What is committed; the first record there is if nothing is."""
        committed = await committed_of(self._admin, self._settings.group, [tp])
        if tp in committed:
            return committed[tp]
        return OffsetAndMetadata((await offsets_at(self._reader, [tp], "earliest"))[tp], "")

    async def _find_end(self, tp: TopicPartition, found: OffsetAndMetadata) -> End | None:
        """Where the partition ends: as it was committed, or as it is decided now; None if it does not."""
        until = self._settings.until
        if until is None or tp.topic not in self.handling.inputs:
            return None
        _, stored = split_end(found.metadata)
        if stored is not None and stored.asked == until:
            return stored
        return End((await offsets_at(self._reader, [tp], until))[tp], until)

    async def _drain(self, partition: Partition, *, for_good: bool = False) -> None:
        """Starts nothing of it any more, and returns when what runs has ended or is too late, and all is committed.

        `for_good`: or when it is clear that nothing can be committed.
        """
        await self._let_end(partition)
        await self._let_be_given(partition)
        while not (partition.lost or partition.spoilt) and partition.due() is not None:
            if for_good and self._member.is_cut_off:
                log.warning(
                    "%s[%d]: the group does not answer, so what ended since the last commit runs again", *partition.tp
                )
                return
            partition.dirty.set()
            await self._committed.take(1.0)

    async def _let_be_given(self, partition: Partition) -> None:
        """What is on its way to slots: its next owner would handle it once more."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _GRACE
        while partition.giving and loop.time() < deadline and not partition.lost:
            partition.dirty.set()
            await self._committed.take(_FULL_SECONDS)
        if partition.giving and not partition.lost:
            log.warning(
                "%s[%d]: %d events are on their way to slots; its next owner handles them, so they may run twice",
                *partition.tp,
                partition.giving,
            )

    async def _let_end(self, partition: Partition) -> None:
        lanes = self.handling.of(partition)
        lanes.withdraw(partition)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + lanes.handler.timeout + _GRACE
        while partition.running and loop.time() < deadline and not partition.lost:
            await self.handling.room.take(deadline - loop.time())
        if partition.running:
            log.warning(
                "%s[%d]: %d handlers did not end in time; their events will be handled again",
                *partition.tp,
                partition.running,
            )

    async def _keep_looking(self) -> None:
        while True:
            try:
                with given_up_calls():
                    await self._look()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("the ends of the partitions can't be seen, trying again: %r", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        """How far Kafka's partitions go, also of those that are not read for now; of its topics, if it has none."""
        if not self.joined:
            return
        ends = await self._reader.end_offsets(
            [*self.partitions] or [TopicPartition(each, 0) for each in self.handling.inputs]
        )
        for tp, end in ends.items():
            if tp in self.partitions:
                self.partitions[tp].log_end = end
        self.seen = time.time()
        if await self._left.look(self._reader):
            self._member.join()

    # What has ended.

    async def _keep_committing(self) -> None:
        pauses = backoff()
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            pause = self._settings.commit_interval
            try:
                with given_up_calls():
                    await self._commit()
                pauses = backoff()
            except (NotNowError, CommitFailedError):
                pause = _FULL_SECONDS
                self._dirty.set()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                pause = next(pauses)
                self._dirty.set()
                log.warning("cannot commit progress, trying again in %.1f s: %r", pause, error)
            await asyncio.sleep(pause)

    async def _commit(self) -> None:
        partitions = [each for each in self.partitions.values() if not each.lost and each.transactions is None]
        # Taken in one go: a commit speaks of nothing whose outputs are not written.
        due = {partition: what for partition in partitions if (what := partition.due()) is not None}
        await self._write({partition: partition.take_returned() for partition in due})
        offsets = {partition.tp: what for partition, what in due.items() if not partition.lost}
        if offsets:
            await self._member.commit(offsets)
        for partition, what in due.items():
            partition.committed(what)
        self._committed.set()

    async def _write(self, returned: Mapping[Partition, list[Returned]]) -> None:
        refused: list[tuple[Returned, Failure]] = []
        left = [one for each in returned.values() for one in each]
        try:
            while left:
                instead = instead_of(left, await self._writer.write(records_in(left)), self._settings)
                refused += [(left[place], failure) for place, (failure, _) in instead.items()]
                left = [each for _, each in instead.values()]
        except BaseException:
            # Some may be written: they are written again, which at least once allows.
            for partition, each in returned.items():
                partition.keep(each)
            raise
        for partition, each in returned.items():
            partition.wrote(each)
        self.handling.wrote(refused)

    async def _keep_transacting(self, partition: Partition, transactions: Transactions) -> None:
        try:
            self._spoil(partition, await self.transacting.keep(partition, transactions))
        except ProducerFenced as error:
            log.warning("%s[%d] belongs to another member: %r", *partition.tp, error)
            asyncio.get_running_loop().call_soon(self._member.lose_all)
        finally:
            del self._transacting[partition]
            if partition.states is not None:
                partition.states.close()
            await transactions.close()

    # The clients.

    async def _prepare_topics(self) -> None:
        """Looks at topics and creates those of its own; a broker that is away then may be back soon."""
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        for pause in backoff():
            try:
                with given_up_calls():
                    await self._require_topics()
            except Exception as error:
                if not can_be_retried(error) or asyncio.get_running_loop().time() > deadline:
                    raise
                log.warning("topics can't be looked at or created, trying again: %r", error)
                await asyncio.sleep(pause)
            else:
                return

    async def _require_topics(self) -> None:
        needed = (*self.handling.inputs, self._settings.dead_letters)
        there = await all_topics(self._admin, needed)
        missing = [topic for topic in needed if topic not in there]
        if missing:
            raise AppError(
                f"topic {topic!r} does not exist on {self._settings.brokers}: create it "
                f"(kafka-topics --create --topic {topic})"
                for topic in missing
            )
        self._marked = await prepare_partials(self._admin, self._settings, self.handling.inputs)
        await self.moving.prepare(self._admin)
        for topic, handler in self.handling.inputs.items():
            if handler.split and self.sharing is not None:
                self.sharing.largest = await prepare_sharing(self._admin, self._settings, topic)
        self._left = Left(self._admin, self._settings, self.handling.handlers, self.handling.topic_of)
        await self._left.find(there)
