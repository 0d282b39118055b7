"""The topics of `split=True`: `overflow`, whose partitions are the slots, and `sharing`, where members tell loads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from keygrouping_app.codecs import Topic
from keygrouping_app.events import Event, Raw
from keygrouping_app.gaps import GapsError, decode
from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.kafka.changelog import has_records
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.own_topics import Size, config_of, create, size_of, until_known
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.ranges import committed_of, partitions_of
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.surplus import LARGEST, source_of, surplus_of

_SHARES = "by which members share hot keys"
_LEAST_SLOTS, _MOST_SLOTS = 8, 64
"""Unless the topic was created with fewer or more. Members beyond the input's partitions have nothing but slots."""
_WEEK_MS = 7 * 86_400_000
# Retention counts from when a record is written, by the brokers' clocks and not by that of each member.
_WRITTEN = {"retention.ms": str(_WEEK_MS), "retention.bytes": "-1", "message.timestamp.type": "LogAppendTime"}
KEPT = {"cleanup.policy": "delete", **_WRITTEN}
"""Settings of a topic of slots."""
_HOUR_MS = 3_600_000
_SEGMENT_BYTES = 4 << 20
# Reports are old after seconds; only the last of a member says anything.
TOLD = {"cleanup.policy": "compact,delete", "retention.ms": str(_HOUR_MS), "segment.bytes": str(_SEGMENT_BYTES)}
"""Settings of a topic of reports."""
_LEAST_BYTES = 32_768
"""Of `max.message.bytes`: clients write batches of half as many."""
_FETCH_MS = 500
_SOURCES_SECONDS = 10.0
"""For which the first events of slots are waited for: a partition without leader has none to give."""


def overflow_of(group: str) -> str:
    """The name of the topic of slots."""
    return f"{group}.overflow"


def sharing_of(group: str) -> str:
    """The name of the topic of reports."""
    return f"{group}.sharing"


def usual_slots(partitions: int) -> int:
    """How many slots a topic of so many partitions gets."""
    return min(_MOST_SLOTS, max(_LEAST_SLOTS, partitions))


async def prepare_sharing(admin: AIOKafkaAdminClient, settings: Settings, topic: str) -> int:
    """Creates both topics for a topic of events, unless they exist; gives the bytes of what slots take.

    AppError if a topic can't be created, or slots would lose events.
    """
    partitions, copies = await size_of(admin, topic)
    overflow, sharing = overflow_of(settings.group), sharing_of(settings.group)
    faults = [
        *await create(admin, overflow, Size(usual_slots(partitions), copies), KEPT, _SHARES),
        *await create(admin, sharing, Size(1, copies), TOLD, _SHARES),
    ]
    if not faults:
        await until_known(admin, overflow)
        await until_known(admin, sharing)
    found = {} if faults else await config_of(admin, overflow)
    faults = faults or faults_of(overflow, found)
    if faults:
        raise AppError(faults)
    limits = settings.connection.get("max_request_size", LARGEST), found.get("max.message.bytes", LARGEST)
    return min(LARGEST, *map(int, limits))


def faults_of(name: str, found: Mapping[str, str]) -> list[str]:
    """What is wrong with the settings of a topic of slots, each with what to do."""
    alter = f"kafka-configs --alter --entity-type topics --entity-name {name} --add-config"
    faults = []
    if "compact" in found.get("cleanup.policy", ""):
        faults.append(
            f"topic {name!r} has cleanup.policy={found['cleanup.policy']}, which would delete events that have not "
            f"been handled: {alter} cleanup.policy=delete"
        )
    kept_ms, kept_bytes = int(found.get("retention.ms", -1)), int(found.get("retention.bytes", -1))
    if 0 <= kept_ms < _WEEK_MS:
        faults.append(
            f"topic {name!r} has retention.ms={kept_ms}, which may delete events that have not been handled: "
            f"{alter} retention.ms={_WEEK_MS}"
        )
    if kept_bytes >= 0:
        faults.append(
            f"topic {name!r} has retention.bytes={kept_bytes}, which may delete events that have not been handled: "
            f"{alter} retention.bytes=-1"
        )
    if (most := int(found.get("max.message.bytes", _LEAST_BYTES))) < _LEAST_BYTES:
        faults.append(
            f"topic {name!r} has max.message.bytes={most}, which is less than members write at once: "
            f"{alter} max.message.bytes={_LEAST_BYTES}"
        )
    return faults


class SlotPartition(Partition):
    """A slot in its owner's hands: an input of which the events have come from other inputs.

    `handlers`: all of the app, by topic.
    """

    def __init__(
        self,
        tp: TopicPartition,
        topic: Topic,
        found: OffsetAndMetadata,
        dirty: asyncio.Event,
        handlers: Mapping[str, Handler],
        transactions: Transactions | None = None,
    ) -> None:
        super().__init__(tp, topic, found, dirty, None, transactions)
        self._handlers = handlers
        self._inputs: dict[int, int] = {}
        """By the offset of what was read and is not committed as ended: the input that it is from."""

    def _events(self, records: Iterable[Raw]) -> list[Event]:
        found: list[Event] = []
        for raw in records:
            event = surplus_of(raw, self, self.tp.topic)
            # The start has looked, but members of a version before may have written since.
            if event.topic not in {self.topic.name, self.tp.topic}:
                raise AppError([_undrained(self.tp.topic, event.topic, self._handlers)])
            self._inputs[raw.offset] = event.partition
            found.append(event)
        return found

    def open_by_input(self) -> dict[int, int]:
        """How many events of each input have been read, and would be handled again if the owner died now."""
        return dict(Counter(self._inputs.values()))

    def committed(self, what: OffsetAndMetadata) -> None:
        """A commit was answered."""
        super().committed(what)
        if not self._inputs:
            return
        try:
            ended = decode(what.offset, what.metadata)
        except GapsError:
            return  # all stay open
        self._inputs = {
            offset: source for offset, source in self._inputs.items() if offset >= what.offset and offset not in ended
        }


async def slots_are_over(admin: AIOKafkaAdminClient, settings: Settings, topics: Iterable[str]) -> bool:
    """Whether the group has committed all records of slots, but for those of transactions that were aborted.

    Of a transaction that is open behind what is committed the end is waited for.
    """
    tps = await partitions_of(admin, topics)
    # Their ends are those of all that was written there, whatever is open.
    options = {**settings.connection, "isolation_level": "read_uncommitted"}
    async with started(AIOKafkaConsumer(**options, enable_auto_commit=False)) as reader:
        ends, firsts = await reader.end_offsets(tps), await reader.beginning_offsets(tps)
    committed = await committed_of(admin, settings.group, ends)
    nexts = {tp: max(firsts.get(tp, 0), committed[tp].offset if tp in committed else 0) for tp in ends}
    for tp in [tp for tp, end in ends.items() if nexts[tp] < end]:
        if await has_records(settings, tp, nexts[tp]):
            return False
    return True


async def handler_of_slots(
    admin: AIOKafkaAdminClient, settings: Settings, handlers: Mapping[str, Handler]
) -> str | None:
    """The topic whose handler, without `split`, is given what is still in slots; None if there is and will be nothing.

    AppError if no handler may be given it, or another than the one with `split`.
    """
    name = overflow_of(settings.group)
    tps = await partitions_of(admin, [name])
    committed = await committed_of(admin, settings.group, tps)
    unread = await _sources(settings, tps, committed) - {name}
    split = next((topic for topic, handler in handlers.items() if handler.split), None)
    able = {topic for topic, handler in handlers.items() if split in {None, topic} and handler.kept is None}
    if wrong := unread - able:
        raise AppError([_undrained(name, topic, handlers) for topic in sorted(wrong)])
    # What members of the version before still write is of the same topic.
    found = unread or (able if len(able) == 1 else able & await _sources(settings, tps, {}))
    if len(found) > 1:
        raise AppError([_undrained(name, topic, handlers) for topic in sorted(found)[1:]])
    return next(iter(found), None)


def _undrained(slots: str, topic: str, handlers: Mapping[str, Handler]) -> str:
    if topic not in handlers:
        why = "this app has no handler of it"
    elif handlers[topic].kept is not None:
        why = "its handler has a state"
    else:
        why = "its handler is not the one that would be given them"
    return (
        f"topic {slots!r} holds events of {topic!r} that are not handled yet, and {why}: first run a "
        f"version with a handler of {topic!r} and no split, until kafka-consumer-groups --describe --group "
        f"{slots.removesuffix(overflow_of(''))} shows no lag there"
    )


async def _sources(
    settings: Settings, tps: Iterable[TopicPartition], began: Mapping[TopicPartition, OffsetAndMetadata]
) -> set[str]:
    """The topics that the first events of slots are of, from these offsets on. TimeoutError if a slot does not tell."""
    options = {**settings.connection, "isolation_level": "read_committed"}
    found: set[str] = set()
    client = AIOKafkaConsumer(**options, enable_auto_commit=False, auto_offset_reset="earliest")
    async with asyncio.timeout(_SOURCES_SECONDS), started(client) as reader:
        ends, firsts = await reader.end_offsets(list(tps)), await reader.beginning_offsets(list(tps))
        starts = {tp: max(firsts[tp], began[tp].offset if tp in began else 0) for tp in tps}
        left = {tp for tp in tps if starts[tp] < ends[tp]}
        reader.assign(list(left))
        for tp in left:
            reader.seek(tp, starts[tp])
        while left:
            fetched = await reader.getmany(*left, timeout_ms=_FETCH_MS)
            for tp in [*left]:
                if fetched.get(tp) or await reader.position(tp) >= ends[tp]:
                    left.discard(tp)
            found |= {source_of(raws[0], tp.topic) for tp, raws in fetched.items() if raws}
    return found
