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
from collections import defaultdict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError, OffsetOutOfRangeError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, cancel, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.events import Outgoing
from keygrouping_app.gaps import GapsError
from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.kafka import refusals
from keygrouping_app.kafka.changelog import (
    Copy,
    Restoring,
    changelog_of,
    check_partitions,
    records_of,
    restore,
)
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.giving import keep_giving
from keygrouping_app.kafka.handling import Declared, Handling
from keygrouping_app.kafka.left import Left
from keygrouping_app.kafka.member import Member, NotNowError
from keygrouping_app.kafka.moved import MovedPartition
from keygrouping_app.kafka.moving import Moving
from keygrouping_app.kafka.overflow import SlotPartition, overflow_of, prepare_sharing, slots_are_over
from keygrouping_app.kafka.partials import MarkedPartition, check_begun, prepare_partials
from keygrouping_app.kafka.partition import ANSWER_WITHHELD, Given, Partition, Returned
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
    Known,
    RefusedMovesError,
    all_refused,
    blamed,
    instead_of,
    keys_refused,
    other_than_outputs,
    records_in,
    refuse_events,
    spoils_of,
    unwritten_of,
)
from keygrouping_app.kafka.sharing import Sharing, board_of
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.kafka.standbys import Standbys
from keygrouping_app.kafka.topics import Topics, all_topics
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.kafka.writing import RefusedError, Writer
from keygrouping_app.kept import Kept
from keygrouping_app.lanes import Lanes
from keygrouping_app.moves import Step
from keygrouping_app.partials import Partials
from keygrouping_app.scheduler import Failure
from keygrouping_app.states import States

log = logging.getLogger(__name__)

_FULL_SECONDS = 0.1
_END_SECONDS = 0.5
_START_SECONDS = 30.0
"""For which a member that starts tries to see its topics."""
_LOOK_SECONDS = 5.0
_AGAIN_SECONDS = 0.01
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
        self._known: defaultdict[str, Known] = defaultdict(Known)
        """What changelogs refuse, by the topic that they are of."""
        self._beginning: dict[TopicPartition, asyncio.Task[None]] = {}
        self._transacting: dict[Partition, asyncio.Task[None]] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._dirty, self._committed = asyncio.Event(), Signal()

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
                self._let_know(tp, copy.states)
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
        pauses = backoff()
        try:
            while True:
                await partition.dirty.wait()
                partition.dirty.clear()
                pause = self._settings.commit_interval
                try:
                    await self._transact(partition, transactions)
                    if partition.spoilt:
                        return
                    pauses = backoff()
                except ProducerFenced as error:
                    log.warning("%s[%d] belongs to another member: %r", *partition.tp, error)
                    asyncio.get_running_loop().call_soon(self._member.lose_all)
                    return
                except RefusedError as error:
                    pause = next(pauses)
                    partition.dirty.set()
                    # What slots of shared keys refuse stays here, which is told where it does.
                    if error.topics != {overflow_of(self._settings.group)}:
                        partition.refuse(error.args[0])
                except Exception as error:
                    if not can_be_retried(error):
                        raise
                    pause = next(pauses)
                    partition.dirty.set()
                    log.warning("%s[%d]: trying again in %.1f s: %r", *partition.tp, pause, error)
                await partition.rest(pause)
        finally:
            del self._transacting[partition]
            if partition.states is not None:
                partition.states.close()
            await transactions.close()

    async def _transact(self, partition: Partition, transactions: Transactions) -> None:
        # Taken in one go: a transaction speaks of nothing whose outputs and states are not in it.
        given, states = partition.take_given(), partition.states
        self._end_old(partition)
        step = partition.step(self.handling.of(partition).scheduler)
        what = partition.due(given, step)
        if what is None:
            self._keep_given(partition, given, GapsError("the commit's metadata has no room for them"))
            self._look_again(partition)
            return
        returned = partition.take_returned()
        changed = {} if states is None else states.take()
        told = {key: kept for key, kept in changed.items() if key not in step.keys}
        records = [*self._state_records(partition, told), *step.marks, *partition.marks]
        surplus = [*(each.record for each in given), *step.records]
        try:
            partials = self.handling.of(partition).partials
            committed, refused = await self._commit_without_refused(
                transactions, what, returned, surplus, records, partials
            )
        except BaseException as error:
            self._learn(partition.tp.topic, error, records)
            if spoils := spoils_of(error, records, states, step.keys):
                self._spoil(partition, spoils)
                return
            partition.keep(returned)
            if states is not None:
                states.give_back(changed)
            if not self._give_up(partition, given, step, records, error):
                raise
            return
        if committed is None:
            self._spoil(partition, {event.raw.offset: why for each, why in refused for event in each.events})
            return
        partition.wrote(returned)
        if given and partition.moves is not None:
            partition.gave(given)
        elif given and self.sharing is not None:
            self.sharing.gave(partition, given)
        partition.committed(committed)
        self._stepped(partition, step, told)
        self.handling.wrote(refused)
        self._committed.set()

    def _give_up(
        self,
        partition: Partition,
        given: list[Given],
        step: Step,
        records: Sequence[Outgoing],
        error: BaseException,
    ) -> bool:
        """Leaves out what a transaction has failed by; False if it is to be tried again as it is."""
        # Fenced or cancelled, the partition is another's, and so are its events.
        if not isinstance(error, Exception) or isinstance(error, ProducerFenced):
            return False
        refused = refuse_events(given, error)
        self._keep_given(partition, [each for place, each in enumerate(given) if place not in refused], error)
        for place, failure in refused.items():
            partition.drop_given([given[place]])
            self.handling.refuse(given[place].event, failure)
        if not refused and not self._withhold(partition, error, records, step):
            keys = keys_refused(error, step, len(given), records, partition.states) if partition.states else set()
            if not self._give_up_moves(partition, step, error, keys):
                return False
        partition.hurry()
        return True

    def _end_old(self, partition: Partition) -> None:
        """What has become too old is to be written as well, and what was refused long enough ago."""
        if (states := partition.states) is None:
            return
        partition.write_withheld()
        if not partition.closed:  # or events that its next owner handles have gone from memory
            has = self.handling.of(partition).scheduler.has
            states.end_old(lambda group: has(group) or partition.is_held(group))

    def _learn(self, topic: str, error: BaseException, records: Sequence[Outgoing]) -> None:
        """What is refused of states is known to all partitions of their topic."""
        self._known[topic].learn(error, records)
        for each in self.partitions.values():
            if each.tp.topic == topic and each.states is not None:
                self._let_know(each.tp, each.states)

    def _let_know(self, tp: TopicPartition, states: States) -> None:
        known, group = self._known[tp.topic], self._settings.group
        if known:
            states.why_refused = lambda changed: known.why(records_of(changed, states, group, tp)) if known else ""

    def _withhold(self, partition: Partition, error: BaseException, records: Sequence[Outgoing], step: Step) -> bool:
        """Has states not written that are refused, and that no event has made: all else goes on; False: none is."""
        unwritten = {key: why for key, why in unwritten_of(error, records).items() if key not in step.keys}
        if (states := partition.states) is None:
            return False
        if states.withhold(unwritten):
            partition.withhold(next(iter(unwritten.values())), refusals.KNOWN_SECONDS)
            return True
        return any(map(states.will_write, unwritten))  # as events have changed them meanwhile

    def _state_records(self, partition: Partition, told: Mapping[bytes, Kept | None]) -> list[Outgoing]:
        states = partition.states
        return [] if states is None else records_of(told, states, self._settings.group, partition.tp)

    def _keep_given(self, partition: Partition, given: list[Given], error: Exception) -> None:
        """These are not in their slots."""
        if partition.moves is not None:
            partition.give_again(given)
        elif given and self.sharing is not None:
            self.sharing.keep_here(partition, given, error)

    def _give_up_moves(self, partition: Partition, step: Step, error: Exception, keys: set[Hashable]) -> bool:
        """Of keys of which the states are refused where they are to go: they stay where they are. False: none is."""
        if not step or not isinstance(error, RefusedError):
            return False
        if isinstance(partition, MovedPartition):
            refused = partition.visits.refuse(step, keys, own=not isinstance(error, RefusedMovesError))
            if refused.unanswered:
                partition.withhold(error.args[0], refusals.KNOWN_SECONDS, ANSWER_WITHHELD)
            if not refused.staying:
                return any(refused)
        log.warning("%s[%d]: %d keys stay where they are: %r", *partition.tp, len(keys) or len(step.done), error)
        if partition.moves is not None:
            self.handling.resume(partition, partition.moves.forget(keys))
        return True

    def _stepped(self, partition: Partition, step: Step, told: Mapping[bytes, Kept | None]) -> None:
        """A transaction is committed that has told these states."""
        if partition.states is not None:
            partition.states.written(told)
        partition.stepped(step)
        if step and partition.moves is not None:
            self.handling.resume(partition, partition.moves.answered_early(partition.changelog_end))
        self.moving.follow(partition, partition.changelog_end)
        if step:
            partition.hurry()  # what was held is sent on
        self._look_again(partition)

    def _look_again(self, partition: Partition) -> None:
        """Until what runs of a key that is to go has ended, or is to be tried again; not at once, if nothing rests."""
        if partition.waits_to_move and not partition.closed:
            partition.look_again(_AGAIN_SECONDS)

    async def _commit_without_refused(
        self,
        transactions: Transactions,
        what: OffsetAndMetadata,
        returned: Sequence[Returned],
        surplus: Sequence[Outgoing],
        states: list[Outgoing],
        partials: Partials | None,
    ) -> tuple[OffsetAndMetadata | None, list[tuple[Returned, Failure]]]:
        """What was committed, and what was refused, of which dead letters are in the transaction instead.

        `partials`: has those of a key go as one, unless something is refused, when it has to be told whose it is.

        None for what was committed, if something refused has changed a state: nothing was. RefusedError if it is
        something else: of `surplus`, which goes to slots, or of states.
        """
        left, pieces, refused = list(returned), dict[str, int](), list[tuple[Returned, Failure]]()
        whole = partials is not None
        while True:
            sent = partials.together(records_in(left)) if partials is not None and whole else records_in(left)
            try:
                return await transactions.commit(what, [*sent, *surplus], states, pieces), refused
            except RefusedError as error:
                if overflow_of(self._settings.group) in error.topics or _blames(error, sent, partials):
                    raise
                if whole:
                    whole = False
                    continue
                found, size = await blamed(transactions, [*sent, *surplus, *states], error)
                if not found:
                    pieces |= dict.fromkeys(error.topics, size)
                    continue
                if not (instead := instead_of(left, all_refused(sent, found), self._settings)):
                    raise other_than_outputs(found, len(sent), len(surplus), error) from error
            refused += [(left[place], failure) for place, (failure, _) in instead.items()]
            if states and partials is None and any(not each.letters for each, _ in refused):
                return None, refused
            for place, (_, other) in instead.items():
                left[place] = other

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


def _blames(error: RefusedError, sent: Sequence[Outgoing], partials: Partials | None) -> bool:
    """Whether it is their topic that is refused, which is no event's fault."""
    return partials is not None and any(sent[each].topic == partials.topic for each in error.why if each < len(sent))
