"""The changelog of a handler with state: a compacted topic with a partition for each one of the input.

It is written in the transactions that commit offsets, and each commit's metadata has the offset of the last record that
belongs to it. So whoever restores knows whether it has read all, and whether states and offsets belong together.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from keygrouping_app.events import Outgoing, Raw
from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.own_topics import config_of, create, size_of, until_known
from keygrouping_app.kept import Kept, UnusableStateError, part_bytes
from keygrouping_app.moves import VERSION, Place, at_of, come, is_answer, kept_of, key_of_come, place_of
from keygrouping_app.partials import Merger, marks_of, partials_of
from keygrouping_app.parts import Parts, ended_parts, in_parts
from keygrouping_app.scheduler import Failure
from keygrouping_app.state import LARGEST_STATE
from keygrouping_app.states import LARGEST_KEY, InputKey, States

log = logging.getLogger(__name__)

USUAL_BYTES = 1_048_588
_ANY_TIME = str(2**63 - 1)
"""What brokers take as `max.message.bytes` by default."""
ROOM = LARGEST_KEY + 16_384
"""Bytes of a record besides its state."""
LARGEST_RECORD = part_bytes(LARGEST_STATE) + ROOM
"""Bytes of a record with a part of a state at most."""
_SEGMENT_BYTES = 64 << 20
_LOOK_SECONDS = 0.1
_BEHIND_SECONDS = 30.0
"""How long a broker that has just become the leader may not know of the last records."""
_OPEN = (
    "%s[%d]: a transaction is open behind offset %d, so what is there can't be read yet: waiting for its end. One of a "
    "member that was killed ends within a minute; another program's is listed by kafka-transactions describe-producers"
)
_LOST = (
    "%s[%d] has lost its offsets %d to %d with the state of key %r, which its changelog had refused: it goes on "
    "without. It has %d to %d: slots keep records for a week"
)
_TOLD_SECONDS = 5.0
_MOST_RECORDS = 2000
_FETCH_BYTES = 4 << 20


def slots_of(group: str, topic: str) -> str:
    """The name of the topic of slots to which keys of an input are handed over."""
    return f"{group}.{topic}.moved"


def changelog_of(group: str, topic: str) -> str:
    """Its name."""
    return f"{group}.{topic}.states"


async def prepare(admin: AIOKafkaAdminClient, group: str, topics: Iterable[str]) -> None:
    """Creates the changelogs of topics that are missing. AppError if one can't be, or is not as it has to be."""
    faults: list[str] = []
    for topic in topics:
        faults += await _prepare(admin, group, topic)
    if faults:
        raise AppError(faults)


async def _prepare(admin: AIOKafkaAdminClient, group: str, topic: str) -> list[str]:
    name = changelog_of(group, topic)
    if faults := await _create(admin, name, topic):
        return faults
    try:
        await check_partitions(admin, group, topic)
    except AppError as wrong:
        return wrong.faults
    return [f"topic {name!r} {fault}" for fault in await _faults(admin, name)]


async def check_partitions(admin: AIOKafkaAdminClient, group: str, topic: str) -> None:
    """AppError unless each partition of the input has one of the changelog."""
    name = changelog_of(group, topic)
    found, wanted = len(await until_known(admin, name)), len(await until_known(admin, topic))
    if found != wanted:
        raise AppError(
            [
                f"topic {name!r} has {found} partitions, and {topic!r} has {wanted}: keys have moved to other "
                "partitions, and their states have not. Use another app name with a topic of the final number of "
                "partitions, and let it read from the beginning"
            ]
        )


async def _create(admin: AIOKafkaAdminClient, name: str, topic: str) -> list[str]:
    settings = {
        "cleanup.policy": "compact",
        "max.message.bytes": str(USUAL_BYTES),
        "message.timestamp.type": "CreateTime",
        # A state has the time of its last event, which the input has taken, whenever that was.
        "message.timestamp.before.max.ms": _ANY_TIME,
        "message.timestamp.after.max.ms": _ANY_TIME,
        # What is restored is what is not compacted yet, and the last segment never is.
        "segment.bytes": str(_SEGMENT_BYTES),
    }
    return await create(admin, name, await size_of(admin, topic), settings, "which keeps states")


async def _faults(admin: AIOKafkaAdminClient, name: str) -> list[str]:
    """What is wrong with its settings, each with what to do."""
    if not (found := await config_of(admin, name)):
        return []
    alter = f"kafka-configs --alter --entity-type topics --entity-name {name} --add-config"
    faults = []
    if found["cleanup.policy"] != "compact":
        faults.append(
            f"has cleanup.policy={found['cleanup.policy']}, which would delete states: {alter} cleanup.policy=compact"
        )
    if found["message.timestamp.type"] != "CreateTime":
        faults.append(f"would change when states were changed: {alter} message.timestamp.type=CreateTime")
    if int(found["max.message.bytes"]) < LARGEST_RECORD:
        faults.append(
            f"takes {found['max.message.bytes']} bytes, and parts of states may have {LARGEST_RECORD}: "
            f"{alter} max.message.bytes={USUAL_BYTES}"
        )
    return faults


def records_of(changed: Mapping[bytes, Kept | None], states: States, group: str, tp: TopicPartition) -> list[Outgoing]:
    """The changelog's records of what has changed of the states of a partition of the input."""
    topic, found = changelog_of(group, tp.topic), list[Outgoing]()
    for key, kept in changed.items():
        found += ended_parts(topic, tp.partition, key, states.ended_parts(key, kept))
        if kept is None:  # its time is when it is written: brokers keep it for a while from then on
            found.append(Outgoing(topic, tp.partition, -1, key, None))
            continue
        told = ((VERSION, b"%d" % kept.version),)
        found += in_parts(Outgoing(topic, tp.partition, kept.time, key, kept.data, told), key)
    return found


def with_place(failure: Failure, group: str, tp: TopicPartition, key: bytes) -> Failure:
    """The failure of an event that could not read its key's state, with where that is."""
    detail = f"key {key!r:.200} of {changelog_of(group, tp.topic)}[{tp.partition}]: {failure.detail}"
    return replace(failure, detail=detail)


@dataclass(slots=True)
class Restoring:
    """How far a partition's states are restored, in offsets of the changelog; 0 left at first, until that is known.

    `topic`: of the handler whose states they are; the partition may be one of its slots.
    """

    topic: str
    done: int = 0
    left: int = 0


@dataclass(slots=True)
class Copy:
    """States as far as they were read from a changelog."""

    states: States
    position: int | None = None
    """Where to read on; None: at the beginning."""
    newest: int = -1
    """Offset of the last record that had a state."""
    seen_at: float = math.inf
    """When the broker answered last what there is behind the position, s since 1970; infinite: not yet."""
    places: dict[Hashable, Place] = field(default_factory=dict)
    """Of keys that are at slots."""
    parts: Parts = field(default_factory=Parts)
    noted: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Where in a slot's log states are that its changelog refuses, from the first to the last offset."""
    found: list[Hashable] = field(default_factory=list)
    """The keys of those that were looked for there: what became of them is to be written."""

    @classmethod
    def of(cls, handler: Handler, tp: TopicPartition) -> Copy:
        """An empty one, of a handler that has a state; the partition is of its topic, or a slot."""
        assert handler.state is not None
        by_input = tp.topic != handler.topic.name
        source = tp.partition if handler.moves and not by_input else None
        return cls(States(handler.state, by_field=handler.key is not None, by_input=by_input, source=source))

    def read(self, raw: Raw) -> None:
        """Takes the next record. UnusableStateError if it can't be kept here."""
        assert raw.key is not None, "a compacted topic takes none without"
        if (whole := self.parts.take(raw, raw.key)) is None:
            return
        raw = whole.raw
        assert raw.key is not None
        self.states.restore(raw.key, kept_of(raw), len(whole.parts))
        if raw.value is not None and not is_answer(raw.headers):
            self.newest = raw.offset
        if (place := place_of(raw.headers)) is not None:
            self.places[self.states.group_of(raw.key)] = place
        elif self.places:
            self.places.pop(self.states.group_of(raw.key), None)
        if (at := at_of(raw.headers)) is not None:
            self.noted[raw.key] = at
        elif self.noted:
            self.noted.pop(raw.key, None)

    def wants(self, key: bytes, offset: int) -> bool:
        """Whether a state that is noted, or a part of it, may be at this offset of the slot's log."""
        first, last = self.noted.get(key, (0, -1))
        return first <= offset <= last

    def find(self, key: bytes, records: Iterable[Raw]) -> bool:
        """Takes a state that is noted from a slot's records; False if it is not there, and has ended so.

        UnusableStateError.
        """
        group = self.states.group_of(key)
        assert isinstance(group, InputKey)
        if (kept := come(records, key)) is not None:
            self.states.arrive(group, kept)
        else:
            self.states.end(group)
        self.found.append(group)
        del self.noted[key]
        return kept is not None


def new_reader(
    settings: Settings, most: int = _FETCH_BYTES, isolation_level: str = "read_committed"
) -> AIOKafkaConsumer:
    """A client for changelogs that fetches so many bytes of a partition at once; to be started, see `started`."""
    options = {"enable_auto_commit": False, "auto_offset_reset": "none", "isolation_level": isolation_level}
    return AIOKafkaConsumer(**settings.connection, **options, max_partition_fetch_bytes=most)


async def restore(
    settings: Settings, tp: TopicPartition, copy: Copy, last: int | None, progress: Restoring, handler: Handler
) -> None:
    """Fills states with all that the changelog of an input partition, or of a slot, has beyond what the copy has read.

    `last`: the offset of the last record that belongs to what is committed; None: there is none. AppError if states and
    offsets don't belong together, or states can't be read. KafkaError if the broker is away.
    """
    changelog = TopicPartition(changelog_of(settings.group, tp.topic), tp.partition)
    loop = asyncio.get_running_loop()
    async with started(new_reader(settings)) as consumer:
        how_to_restart = _how_to_restart(settings.group, tp, changelog, handler)
        end = await _end(settings, consumer, changelog, last, how_to_restart)
        beginning = (await consumer.beginning_offsets([changelog]))[changelog]
        first = beginning if copy.position is None else copy.position
        consumer.assign([changelog])
        consumer.seek(changelog, first)
        began = told = loop.time()
        while True:
            if copy.newest > (-1 if last is None else last):
                raise AppError([_apart(settings.group, tp, changelog) + how_to_restart])
            position = copy.position = await consumer.position(changelog)
            if position >= end:
                break
            progress.done, progress.left = position - first, end - position
            if loop.time() > told + _TOLD_SECONDS:
                told = loop.time()
                share = 100 * progress.done / (end - first)
                log.info("%s[%d]: %.0f %% of its states' changelog is read, %d states", *tp, share, len(copy.states))
            fetched = await consumer.getmany(changelog, timeout_ms=1000, max_records=_MOST_RECORDS)
            for raw in fetched.get(changelog, ()):
                try:
                    copy.read(raw)
                except UnusableStateError as error:
                    raise AppError([f"{changelog.topic}[{changelog.partition}]: {error}"]) from error
    if copy.parts.missing:
        raise AppError(
            [
                f"{changelog.topic}[{changelog.partition}] has lost records: parts of {len(copy.parts.missing)} states "
                f"are gone. {how_to_restart}"
            ]
        )
    if copy.noted:
        await _find_noted(settings, tp, copy, how_to_restart)
    if end > first:
        log.info(
            "%s[%d]: %d states restored in %.1f s, by %d offsets of the changelog",
            *(*tp, len(copy.states), loop.time() - began, end - first),
        )


async def _find_noted(settings: Settings, slot: TopicPartition, copy: Copy, how_to_restart: str) -> None:
    """Reads states that only the slot's log has, as its changelog refuses them."""
    async with started(new_reader(settings)) as reader:
        end = await _end(settings, reader, slot, max(last for _, last in copy.noted.values()), how_to_restart)
        beginning = (await reader.beginning_offsets([slot]))[slot]
        reader.assign([slot])
        read, position = defaultdict[bytes, list[Raw]](list), -1
        for key, (first, last) in sorted(copy.noted.items(), key=lambda each: each[1]):
            if first >= beginning and (position < 0 or first > position + _MOST_RECORDS):
                reader.seek(slot, first)
                position = first
            while beginning <= first and position <= last:
                for raw in (await reader.getmany(slot, timeout_ms=1000, max_records=_MOST_RECORDS)).get(slot, ()):
                    if (of := key_of_come(raw)) is not None and copy.wants(of, raw.offset):
                        read[of].append(raw)
                position = await reader.position(slot)
            try:
                is_there = copy.find(key, read.pop(key, ()))
            except UnusableStateError as error:
                raise AppError([f"{slot.topic}[{slot.partition}]: {error}"]) from error
            if not is_there:
                log.error(_LOST, *slot, first, last, key, beginning, end)


async def has_records(settings: Settings, tp: TopicPartition, first: int | None = None) -> bool:
    """Whether there are records from an offset on, or from the beginning, that count.

    Those of transactions that were aborted, and what ends transactions, take offsets and count for nothing. Of a
    transaction that is open the end is waited for. KafkaError if the broker is away.
    """
    end = await _written_end(settings, tp)
    if end <= (first or 0):
        return False
    clock = asyncio.get_running_loop().time
    deadline = clock() + _BEHIND_SECONDS
    async with started(new_reader(settings)) as reader:
        reader.assign([tp])
        reader.seek(tp, max(first or 0, (await reader.beginning_offsets([tp]))[tp]))
        while (position := await reader.position(tp)) < end:
            if (await reader.getmany(tp, timeout_ms=1000, max_records=1)).get(tp):
                return True
            if clock() > deadline:
                log.warning(_OPEN, *tp, position)
                deadline = clock() + _BEHIND_SECONDS
    return False


async def _written_end(settings: Settings, tp: TopicPartition) -> int:
    """Behind its last record, whether its transaction has ended or not."""
    async with started(new_reader(settings, isolation_level="read_uncommitted")) as reader:
        end: int = (await reader.end_offsets([tp]))[tp]
        return end


async def _end(
    settings: Settings,
    consumer: AIOKafkaConsumer,
    changelog: TopicPartition,
    last: int | None,
    how_to_restart: str,
) -> int:
    """Behind its last record that can be read.

    No transaction of the former owner is open there, as it is fenced; but one of a slot that answers may be, or one of
    another program.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + _BEHIND_SECONDS
    while True:
        end: int = (await consumer.end_offsets([changelog]))[changelog]
        if last is None or end > last:
            return end
        if clock() > deadline:
            if await _written_end(settings, changelog) > last:
                log.warning(_OPEN, *changelog, end)
                deadline = clock() + _BEHIND_SECONDS
                continue
            raise AppError(
                [
                    f"{changelog.topic}[{changelog.partition}] ends at {end}, before offset {last}, up to which states "
                    f"were committed: it has lost records or was created again. {how_to_restart}"
                ]
            )
        await asyncio.sleep(_LOOK_SECONDS)


def _apart(group: str, tp: TopicPartition, changelog: TopicPartition) -> str:
    return (
        f"{changelog.topic}[{changelog.partition}] has states that don't belong to the offsets that group {group} has "
        f"committed of {tp.topic}[{tp.partition}]: these were reset or have expired. "
    )


def _how_to_restart(group: str, tp: TopicPartition, changelog: TopicPartition, handler: Handler) -> str:
    if isinstance(handler.function, Merger):  # what is merged belongs to what the input has ended
        return begin_again(group, handler.function.topic)
    if handler.moves:  # what slots hold belongs to what inputs have forwarded
        topic, slots = handler.topic.name, slots_of(group, handler.topic.name)
        return (
            f"To begin again without states, end all members, then kafka-topics --delete --topic for each of "
            f"{changelog_of(group, topic)}, {slots} and {changelog_of(group, slots)}, kafka-consumer-groups --group "
            f"{group} --topic {slots} --delete-offsets, and --topic {topic} --reset-offsets --to-earliest --execute"
        )
    return (
        f"To begin again without states: kafka-topics --delete --topic {changelog.topic}, and "
        f"kafka-consumer-groups --group {group} --topic {tp.topic} --reset-offsets --to-earliest --execute"
    )


def begin_again(group: str, topic: str) -> str:
    """What to do so that the states of an input are merged from its beginning."""
    partials = partials_of(group, topic)
    read = [partials, slots_of(group, partials)]
    deleted = [*read, *(changelog_of(group, each) for each in read), marks_of(group, topic)]
    return (
        "To begin again without states, end all members when kafka-consumer-groups --describe shows no lag in "
        f"{group}.overflow, then kafka-topics --delete --topic for each of these that there is: {', '.join(deleted)}; "
        f"kafka-consumer-groups --group {group} --delete-offsets --topic for {' and '.join(read)}, and --topic {topic} "
        "--reset-offsets --to-earliest --execute"
    )
