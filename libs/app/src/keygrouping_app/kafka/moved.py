"""Keys that are handed over, in Kafka: the topics of slots, a slot in its owner's hands, and the answers of slots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.codecs import Topic
from keygrouping_app.events import Event, Raw
from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.kafka.changelog import LARGEST_RECORD, USUAL_BYTES, changelog_of, new_reader, slots_of
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.overflow import KEPT, faults_of, usual_slots
from keygrouping_app.kafka.own_topics import Size, config_of, create, size_of, until_known
from keygrouping_app.kafka.partition import ANSWER_WITHHELD, Given, Partition
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.kept import UnusableStateError
from keygrouping_app.moves import Step, Topics, Visits, Waiting
from keygrouping_app.scheduler import Failure
from keygrouping_app.states import InputKey, States
from keygrouping_app.surplus import may_be_written, record_of, surplus_of
from keygrouping_app.tally import REFUSED

log = logging.getLogger(__name__)

_WHY = "to which keys are handed over"
_ROOM_BEHIND_PARTS = 100
"""Records that may be read though gaps have less room: as many as are read at once at least."""
_ROOM = 65_536
"""Bytes of an event's record in a slot beyond those of the input's largest."""
_POLL_MS = 100
_FETCH_BYTES = 1 << 20
"""Of a partition at once: the event loop has other things to do, too."""
_IDLE_SECONDS = 30.0
"""For which the reader of answers stays, as it takes as long to begin as a move does."""


class NotHereError(LookupError):
    """No input partition of this member has the key."""


def topics_of(group: str, topic: str) -> Topics:
    """By which keys of an input move."""
    slots = slots_of(group, topic)
    return Topics(slots, changelog_of(group, topic), changelog_of(group, slots))


@dataclass(frozen=True, slots=True)
class Slots:
    """Those of an input: how many there are, and bytes of a record that they take."""

    count: int
    largest: int


async def prepare_slots(
    admin: AIOKafkaAdminClient, settings: Settings, handlers: Iterable[Handler]
) -> dict[str, Slots]:
    """Creates the topics of slots that are missing; gives the slots of each input. AppError if there can't be any."""
    faults: list[str] = []
    found: dict[str, Slots] = {}
    for handler in handlers:
        topic = handler.topic.name
        name = slots_of(settings.group, topic)
        wanted = max(USUAL_BYTES, int((await config_of(admin, topic)).get("max.message.bytes", 0)) + _ROOM)
        if wrong := await _create(admin, topic, name, wanted):
            faults += wrong
            continue
        slots = len(await until_known(admin, name))
        config = await config_of(admin, name)
        largest = int(config.get("max.message.bytes", wanted))
        faults += faults_of(name, config)
        if largest < LARGEST_RECORD:
            faults.append(
                f"topic {name!r} takes {largest} bytes, and parts of states may have more: kafka-configs --alter "
                f"--entity-type topics --entity-name {name} --add-config max.message.bytes={wanted}"
            )
        found[topic] = Slots(slots, largest)
    if faults:
        raise AppError(faults)
    return found


async def _create(admin: AIOKafkaAdminClient, topic: str, name: str, largest: int) -> list[str]:
    partitions, copies = await size_of(admin, topic)
    options = {**KEPT, "max.message.bytes": str(largest)}
    return await create(admin, name, Size(usual_slots(partitions), copies), options, _WHY)


class MovedPartition(Partition):
    """A slot in its owner's hands: an input of keys that were handed over to it, with their states."""

    def __init__(
        self,
        tp: TopicPartition,
        topic: Topic,
        found: OffsetAndMetadata,
        dirty: asyncio.Event,
        visits: Visits,
        transactions: Transactions | None,
        states: States,
    ) -> None:
        super().__init__(tp, topic, found, dirty, None, transactions, states)
        self.visits = visits

    def group_of(self, event: Event) -> Hashable:
        """See `Source`."""
        return InputKey(event.partition, event.group)

    def is_held(self, group: Hashable) -> bool:
        """See `Partition`."""
        return self.visits.is_held(group)

    def _events(self, records: Iterable[Raw]) -> list[Event]:
        found: list[Event] = []
        ended: list[int] = []
        for raw in records:
            try:
                now = self.visits.take(raw)
            except UnusableStateError as error:
                raise AppError([f"{self.tp.topic}[{self.tp.partition}]: {error}"]) from error
            except KeyError:
                found.append(surplus_of(raw, self, self.tp.topic))
            else:
                ended += now
                if now or self.visits.waits:
                    self.hurry()
        self._end_offsets(ended)
        return found

    def room(self, events: int, size: int) -> int:
        """See `Partition`. What follows parts of a state has room, as they end with its record, which comes behind."""
        room = super().room(events, size)
        return max(room, _ROOM_BEHIND_PARTS) if self.is_half_read and self.gaps.room() < _ROOM_BEHIND_PARTS else room

    @property
    def is_half_read(self) -> bool:
        """See `Partition`."""
        return self.visits.half_read

    @property
    def waits_to_move(self) -> bool:
        """See `Partition`."""
        return self.visits.called > 0

    @property
    def withholds(self) -> set[str]:
        """See `Partition`."""
        return super().withholds | ({ANSWER_WITHHELD} if self.visits.unanswered else set())

    def _write_withheld(self) -> None:
        super()._write_withheld()
        self.visits.try_again()

    def step(self, lanes: Waiting) -> Step:
        """See `Partition`."""
        return self.visits.step(lanes, closed=self.closed, crowded=self.gaps.is_crowded)

    def stepped(self, step: Step) -> None:
        """See `Partition`."""
        super().stepped(step)
        self.visits.wrote(step.ended)


def forwards(
    partition: Partition, slots: str, largest: int, refuse: Callable[[Event, Failure], None]
) -> Callable[[Event, int], None]:
    """Has an event of a partition written to a slot by its next transaction; refuses what would be too large there."""

    def forward(event: Event, slot: int) -> None:
        if not may_be_written(event, largest):
            told = f"its key is at a slot of {slots!r}, which takes {largest} bytes, and it has {event.size}"
            refuse(event, Failure(REFUSED, told, retry=False))
            return
        partition.give(Given(event, record_of(event, slots, slot), slot))
        partition.dirty.set()

    return forward


class Answers:
    """What slots write to the changelogs of this member's inputs, while keys are called.

    `resume` is given events that are to be handled at home again.
    """

    def __init__(self, settings: Settings, resume: Callable[[Partition, list[Event]], None]) -> None:
        self._settings = settings
        self._resume = resume
        self._positions: dict[Partition, int] = {}
        self._changed = asyncio.Event()

    def follow(self, partition: Partition, position: int) -> None:
        """A partition has keys that are called; what comes from this offset of its changelog on is read."""
        if partition not in self._positions:
            self._positions[partition] = position
            self._changed.set()

    async def keep(self) -> None:
        """Reads for ever; raises what can't be retried."""
        pauses = backoff()
        while True:
            await self._changed.wait()
            try:
                with given_up_calls():
                    await self._read_all()
                pauses = backoff()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("answers of slots can't be read, trying again: %r", error)
                self._changed.set()
                await asyncio.sleep(next(pauses))

    async def _read_all(self) -> None:
        """While there is something to be waited for."""
        idle_since = asyncio.get_running_loop().time()
        async with started(new_reader(self._settings, _FETCH_BYTES)) as reader:
            while True:
                self._positions = {each: at for each, at in self._positions.items() if self._waits(each)}
                if not self._positions:
                    self._changed.clear()
                    if asyncio.get_running_loop().time() > idle_since + _IDLE_SECONDS:
                        return
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_MS / 1000):
                            await self._changed.wait()
                    continue
                idle_since = asyncio.get_running_loop().time()
                if self._changed.is_set():
                    self._changed.clear()
                    await self._assign(reader)
                by_changelog = {self._changelog(each): each for each in self._positions}
                for tp, raws in (await reader.getmany(timeout_ms=_POLL_MS)).items():
                    if (partition := by_changelog.get(tp)) is not None:
                        self._take(partition, raws)

    def _waits(self, partition: Partition) -> bool:
        return (
            not partition.lost and not partition.closed and partition.moves is not None and bool(partition.moves.called)
        )

    async def _assign(self, reader: AIOKafkaConsumer) -> None:
        reader.assign([self._changelog(each) for each in self._positions])
        for each, position in self._positions.items():
            reader.seek(self._changelog(each), position)

    def _take(self, partition: Partition, raws: Sequence[Raw]) -> None:
        assert partition.moves is not None
        self._positions[partition] = raws[-1].offset + 1
        if partition.lost or partition.closed:
            return
        try:
            events = [event for raw in raws for event in partition.moves.answered(raw)]
        except UnusableStateError as error:
            raise AppError([f"{partition.tp.topic}[{partition.tp.partition}]: {error}"]) from error
        self._resume(partition, events)
        partition.hurry()

    def _changelog(self, partition: Partition) -> TopicPartition:
        return TopicPartition(changelog_of(self._settings.group, partition.tp.topic), partition.tp.partition)
