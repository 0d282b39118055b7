"""Event-time progress of the stages, kept as metadata of their committed offsets.

Each stage commits, in the transaction that holds its output, the watermark of that output. So the progress is as
durable and as exactly-once as the data, survives every restart, needs no extra topic or store and no control records
among the data, and a stage may run on any runner.

A stage that follows another learns what it may rely on in three steps, in this order: read the progress that the
stage before has committed; then read the ends (high watermarks) of the topic between them; whoever has read the
topic up to these ends has seen everything that the progress speaks of. The ends must be those of uncommitted reading:
a transaction's offsets may become visible a moment before its records do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeAlias

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CoordinatorLoadInProgressError, KafkaTimeoutError, for_code
from aiokafka.structs import OffsetAndMetadata
from keygrouping.job import MOST_CONFIRMATIONS
from keygrouping_kafka.stable_offsets import StableOffsetsRequest

from keygrouping_service.kafka.topic_ids import UNKNOWN
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.settings import ServiceSettings

log = logging.getLogger(__name__)

_LOOKS_IN_DOUBT = 3

MIN_TIME = -1
"""Progress of a partition of which nothing is known yet: before all event times."""

END = 253_402_214_400_000
"""Progress of a finished input: 9999-12-31T00:00:00Z, after all event times."""

_STATES = ("active", "idle", "resuming")
_STABLE_SECONDS, _STABLE_PAUSE = 15.0, 0.02


class OffsetsHeldError(KafkaTimeoutError):  # type: ignore[misc]
    """A transaction that commits offsets of a group does not end, so nobody knows which are right."""


_MOST_AHEAD = 2 * MOST_CONFIRMATIONS


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a partition is: event time in ms, the epoch of the plan in force, whether it waits for events.

    `resuming` counts as not idle: the partition has said that it comes back, but doesn't know yet how far the others
    went on without it. Whoever owns it next must find that out before any event.

    `ahead` are the last events of an input partition, the oldest first: how many ms each lies ahead of `time`, not
    confirmed by enough others yet; 0 if it does not.
    """

    time: int = MIN_TIME
    epoch: int = 0
    idle: bool = False
    resuming: bool = False
    ahead: tuple[int, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the input is finished: no more events will come."""
        return self.time == END

    def encode(self, topic_id: str = UNKNOWN) -> str:
        """The text that is committed as metadata of an offset in the topic with this id."""
        state = "idle" if self.idle else "resuming" if self.resuming else "active"
        return " ".join([f"v2 {self.time} {self.epoch} {state} {topic_id}", *_encode_ahead(self.ahead)])

    @classmethod
    def decode(cls, metadata: str | None) -> Progress:
        """Reads metadata; text that is not ours (a group reset by a tool) counts as nothing known."""
        return _read(metadata)[0]


def _read(metadata: str | None) -> tuple[Progress, str]:
    """Progress and topic id in metadata; nothing known of either if it is not ours."""
    words = (metadata or "").split(" ")
    if not 5 <= len(words) <= 6 or words[0] != "v2" or words[3] not in _STATES:
        return Progress(), UNKNOWN
    try:
        ahead = _decode_ahead(words[5]) if len(words) == 6 else ()
        progress = Progress(int(words[1]), int(words[2]), words[3] == "idle", words[3] == "resuming", ahead)
    except ValueError:
        return Progress(), UNKNOWN
    return progress, words[4]


def _encode_ahead(ahead: tuple[int, ...]) -> list[str]:
    """A word of hexadecimal numbers, in which `*n` stands for n zeros; none if nothing is ahead."""
    runs = [(number, len(list(same))) for number, same in groupby(ahead)]
    if runs and runs[0][0] == 0:
        del runs[0]
    tokens = [token for number, count in runs for token in ([f"{number:x}"] * count if number else [f"*{count:x}"])]
    return [",".join(tokens)] if tokens else []


def _decode_ahead(word: str) -> tuple[int, ...]:
    ahead: list[int] = []
    for token in word.split(","):
        ahead += [0] * min(int(token[1:], 16), _MOST_AHEAD) if token.startswith("*") else [int(token, 16)]
    return tuple(ahead[-_MOST_AHEAD:])


@dataclass(frozen=True, slots=True)
class Committed:
    """A partition's committed offset (None: none yet) and progress, and the id of the topic that they are of."""

    offset: int | None = None
    progress: Progress = Progress()
    topic_id: str = field(default=UNKNOWN, compare=False)

    def encode(self) -> OffsetAndMetadata:
        """What is committed."""
        return OffsetAndMetadata(self.offset or 0, self.progress.encode(self.topic_id))

    @classmethod
    def decode(cls, stored: OffsetAndMetadata | None) -> Committed:
        """Reads what was committed; None and offset -1 stand for nothing."""
        if stored is None or stored.offset < 0:
            return cls()
        return cls(stored.offset, *_read(stored.metadata))


@dataclass(frozen=True, slots=True)
class UpstreamWatermark:
    """The watermark of the stage before: who has read to `ends` (offset per partition) is complete up to `time`."""

    time: int
    epoch: int
    ends: Mapping[int, int]

    def covered(self, partition: int, position: int) -> bool:
        """Whether a reader of `partition` whose next offset is `position` may rely on `time`."""
        return position >= self.ends.get(partition, 0)

    def reached(self, positions: Mapping[int, int]) -> bool:
        """Whether a reader of all partitions, whose next offsets are `positions`, may rely on `time`."""
        return all(self.covered(partition, positions.get(partition, 0)) for partition in self.ends)


def router_watermark(progress: Mapping[int, Progress], lateness_ms: int) -> int:
    """Event time (ms) before which the routers send nothing any more, given the progress of every input partition.

    The minimum over the partitions that are not idle, less the allowed lateness. If all are idle nothing newer is
    held back by anybody, and the newest of them counts. MIN_TIME as long as an active partition has shown nothing.
    """
    active = [p.time for p in progress.values() if not p.idle]
    seen = active or [p.time for p in progress.values()]
    time = min(active) if active else max(seen, default=MIN_TIME)
    return time if time in (END, MIN_TIME) else max(MIN_TIME, time - lateness_ms)


def floor_of_resuming(progress: Mapping[int, Progress], partition: int, lateness_ms: int) -> int:
    """The furthest watermark (ms) that anybody may have derived while `partition` was idle.

    To be asked after `partition` is committed as resuming. Others that are resuming were idle too and have sent nothing
    since, so they are taken as idle as well: their old times have held nobody back.
    """
    silent = {
        number: replace(entry, idle=entry.idle or entry.resuming or number == partition)
        for number, entry in progress.items()
    }
    return router_watermark(silent, lateness_ms)


def stage_watermark(progress: Mapping[int, Progress]) -> int:
    """A stage's watermark: the event time (ms) that all of its partitions have reached, so the minimum."""
    return min((p.time for p in progress.values()), default=MIN_TIME)


async def read_offsets(
    admin: AIOKafkaAdminClient, group: str, partitions: Sequence[TopicPartition], *, stable: bool = False
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed for each partition, after all finished transactions; offset -1 where there is nothing.

    A transaction's offsets become visible some time after its commit has been answered. With `stable` (brokers since
    2.5) this waits for transactions that have yet to show theirs, and raises a retriable KafkaError after 15 s.

    Raises a retriable KafkaError while the group's coordinator is loading: "not known yet" must never be taken for
    "nothing committed".
    """
    if not partitions:
        return {}
    found = await _read_stable(admin, group, partitions) if stable else await _read_now(admin, group, partitions)
    if any(tp not in found for tp in partitions):
        raise CoordinatorLoadInProgressError(f"offsets of group {group!r} are not available yet")
    return found


async def _read_now(
    admin: AIOKafkaAdminClient, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    found: dict[TopicPartition, OffsetAndMetadata] = await admin.list_consumer_group_offsets(
        group, partitions=list(partitions)
    )
    return found


async def _read_stable(
    admin: AIOKafkaAdminClient, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    wanted: dict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        wanted[tp.topic].append(tp.partition)
    deadline = time.monotonic() + _STABLE_SECONDS
    while True:
        coordinator = await admin.find_coordinator(group)
        try:
            answer = await send_request(admin, StableOffsetsRequest(group, wanted), coordinator)
        except NotImplementedError:
            return await _read_now(admin, group, partitions)
        found = {
            TopicPartition(topic, partition): (OffsetAndMetadata(offset, metadata or ""), code)
            for topic, entries, _ in answer.topics
            for partition, offset, _, metadata, code, _ in entries
        }
        codes = {answer.error_code, *(code for _, code in found.values())} - {0}
        if not codes:
            return {tp: stored for tp, (stored, _) in found.items()}
        if codes != {StableOffsetsRequest.UNSTABLE}:
            code = next(iter(codes - {StableOffsetsRequest.UNSTABLE}))
            raise for_code(code)(f"the offsets of group {group!r} can't be read")
        if time.monotonic() > deadline:
            raise OffsetsHeldError(f"a transaction that commits offsets of group {group!r} does not end")
        await asyncio.sleep(_STABLE_PAUSE)


async def read_progress(
    admin: AIOKafkaAdminClient, group: str, topic: str, partitions: Iterable[int], *, stable: bool = False
) -> dict[int, Committed]:
    """Committed offset and progress of each partition; raises as `read_offsets` does."""
    tps = [TopicPartition(topic, partition) for partition in partitions]
    found = await read_offsets(admin, group, tps, stable=stable)
    return {tp.partition: Committed.decode(stored) for tp, stored in found.items()}


async def read_starts(
    admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer, group: str, partitions: Sequence[TopicPartition]
) -> dict[int, Committed]:
    """Where a group stands in partitions of one topic: the beginning where nothing is committed. For lags: who begins
    to read asks `keygrouping_service.kafka.starts`."""
    found = {tp: Committed.decode(stored) for tp, stored in (await read_offsets(admin, group, partitions)).items()}
    fresh = [tp for tp, start in found.items() if start.offset is None]
    first = await probe.beginning_offsets(fresh) if fresh else {}
    return {tp.partition: replace(start, offset=first.get(tp, start.offset)) for tp, start in found.items()}


async def partitions_of(admin: AIOKafkaAdminClient, topic: str) -> list[int]:
    """Numbers of all partitions of a topic, read again; empty if the topic doesn't exist."""
    (description,) = await admin.describe_topics([topic])
    return sorted(partition["partition"] for partition in description["partitions"])


Unread: TypeAlias = Callable[[AIOKafkaAdminClient, AIOKafkaConsumer], Awaitable[int]]
"""Counts offsets that are unread, by clients that are started."""


class Upstream:
    """What a stage may rely on from the stage before it.

    `probe` is a started consumer without group that reads uncommitted; it and `admin` stay the caller's.
    """

    def __init__(self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer) -> None:
        self._admin = admin
        self._probe = probe
        self._strange_looks = 0
        self._seen: tuple[dict[int, int | None], int] = ({}, 0)

    async def of_worker(self, router_group: str, events: str, routed: str, lateness_ms: int) -> UpstreamWatermark:
        """The worker stage's: what the routers have committed, and the ends of `routed`."""
        progress = await self._progress(router_group, events)
        return await self._upstream_watermark(router_watermark(progress, lateness_ms), progress, routed)

    async def of_aggregator(self, worker_group: str, routed: str, partials: str) -> UpstreamWatermark:
        """The aggregator stage's: what the workers have committed, and the ends of `partials`."""
        committed = await self._committed(worker_group, routed)
        progress = {partition: entry.progress for partition, entry in committed.items()}
        found = await self._upstream_watermark(stage_watermark(progress), progress, partials)
        offsets = {partition: entry.offset for partition, entry in committed.items()}
        if await self._doubt(routed, offsets, sum(found.ends.values())):
            log.warning(
                "%s has records that no worker has made of %s, so no window becomes final: if workers combine at the "
                "source, set KEYGROUPING_STAGES=combine here too",
                *(partials, routed),
            )
        return found

    async def _doubt(self, routed: str, offsets: dict[int, int | None], written: int) -> bool:
        """Whether it is time to warn, once, that partials (`written` offsets) are made of something else than `routed`.

        There are some though nobody has ever read it, or they go on to grow though nothing of it is left to read. One
        look proves neither: commits are seen late, and markers of transactions come after them.
        """
        (before, least), self._seen = self._seen, (offsets, written)
        read = any(offset is not None for offset in offsets.values())
        if read and offsets == before and written == least:
            return False
        strange = offsets == before and not await self._lag(routed, offsets) if read else written > 0
        self._strange_looks = self._strange_looks + 1 if strange else 0
        return self._strange_looks == _LOOKS_IN_DOUBT

    async def _lag(self, topic: str, offsets: Mapping[int, int | None]) -> int:
        """How many offsets lie behind those that a group has committed."""
        ends = await self._probe.end_offsets([TopicPartition(topic, partition) for partition in offsets])
        return sum(max(0, end - (offsets[tp.partition] or 0)) for tp, end in ends.items())

    async def of_combined(self, settings: ServiceSettings, lateness_ms: int, unread: Unread) -> UpstreamWatermark:
        """The aggregator stage's where workers read the input itself: what they have committed, and `partials`' ends.

        Nothing is known while events of `routed` are in no partial yet, which `unread` counts: routers may have run
        before, or still run.
        """
        progress = await self._progress(settings.group("router"), settings.events_topic)
        left = await unread(self._admin, self._probe)
        time = MIN_TIME if left else router_watermark(progress, lateness_ms)
        return await self._upstream_watermark(time, progress, settings.partials_topic)

    async def _progress(self, group: str, topic: str) -> dict[int, Progress]:
        return {partition: entry.progress for partition, entry in (await self._committed(group, topic)).items()}

    async def _committed(self, group: str, topic: str) -> dict[int, Committed]:
        partitions = await partitions_of(self._admin, topic)
        return await read_progress(self._admin, group, topic, partitions)

    async def _upstream_watermark(self, time: int, progress: Mapping[int, Progress], topic: str) -> UpstreamWatermark:
        partitions = [TopicPartition(topic, p) for p in await partitions_of(self._admin, topic)]
        ends = await self._probe.end_offsets(partitions) if partitions else {}
        epoch = max((p.epoch for p in progress.values()), default=0)
        return UpstreamWatermark(time, epoch, {tp.partition: end for tp, end in ends.items()})


async def commit_progress(consumer: AIOKafkaConsumer, topic: str, committed: Mapping[int, Committed]) -> None:
    """Commits offsets with their progress outside of a transaction, for a group without members.

    `consumer` has the group's id and is assigned the partitions by hand.
    """
    await consumer.commit({TopicPartition(topic, partition): entry.encode() for partition, entry in committed.items()})
