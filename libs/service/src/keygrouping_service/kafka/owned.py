"""One input partition in this process's hands: reading it, and committing output with offset and progress."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import Committed, Progress, Upstream, read_offsets
from keygrouping_service.kafka.starts import beyond_end, created_again, read_last
from keygrouping_service.kafka.topic_ids import read_topic_id, same_topic
from keygrouping_service.kafka.watermarks import hide_watermark, show_watermark
from keygrouping_service.observability import metrics, tracing
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.bisection import Bisection, Suspects
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.dead_letters import DeadLetters
from keygrouping_service.records.protocols import RecordBatch, Sink, Source
from keygrouping_service.records.record import DeadLetter, UndecodableError, truncated

log = logging.getLogger(__name__)

_ABORT_TIMEOUT = 2.0
_ENDING_SECONDS = 1.0
_MOST_TAKEN = 100


@dataclass(frozen=True, slots=True)
class Clients:
    """What an owned partition works with. `source` and `producer` are its own, the others are shared.

    `commit_offset` commits outside of a transaction; None means that output and offsets go in transactions.
    `positions` takes copies of what is committed; None: the input is the work's own state, which may begin again, and
    has no event time.
    """

    source: Source
    producer: AIOKafkaProducer
    dead_letters: DeadLetters
    admin: AIOKafkaAdminClient
    probe: AIOKafkaConsumer
    commit_offset: Callable[[TopicPartition, OffsetAndMetadata], Awaitable[None]] | None = None
    positions: Positions | None = None


class OwnedPartition:
    """What the work on one input partition is given: see `PartitionRunner` for how work is written.

    `offset` is where reading begins: the committed offset, or the partition's beginning if nothing is committed.
    `progress` is what was committed with it. Both stay as they were when the work began; `committed` moves.
    `topic_id` (text) is that of the topic that is read: an offset means something together with it only.
    """

    def __init__(  # noqa: PLR0913 -- made in one place
        self,
        tp: TopicPartition,
        start: Committed,
        clients: Clients,
        group: str,
        stop: asyncio.Event,
        bisection: Bisection,
        until: int | None = None,
        commit_timeout: float = 120.0,
    ) -> None:
        self.tp = tp
        self.partition: int = tp.partition
        self.offset: int = start.offset or 0
        self.progress = start.progress
        self.topic_id = start.topic_id
        self.committed = Committed(self.offset, start.progress, start.topic_id)
        self.position: int = self.offset
        self.skipped_to: int = self.offset
        """What retention has deleted unread lies before this offset."""
        self.seen_end: int | None = None
        """The partition's end as it was seen last; None: it has not been seen yet."""
        self.admin = clients.admin
        self.upstream = Upstream(clients.admin, clients.probe)
        self._until = until
        self._clients = clients
        self._nothing: RecordBatch = Columns.of(tp.topic, tp.partition, ())
        self._group = group
        self._stop = stop
        self._bisection = bisection
        self._taken: list[Suspects] = []
        self._handed_on = False
        self._letters: list[DeadLetter] = []
        self._commit_timeout = commit_timeout
        self._pending: asyncio.Task[None] | None = None
        self._in_transaction = False
        self._show(start.progress)
        spans = tracing.active()
        self._traced = None if spans is None else spans.transactions(tp, group)

    @property
    def lag(self) -> int | None:
        """Offsets up to the end, None likewise."""
        return None if self.seen_end is None else max(0, self.seen_end - self.position)

    @property
    def at_end(self) -> bool:
        """Whether the position is the end of the range that is to be read, or behind it; never without a range."""
        return self._until is not None and self.position >= self._until

    @property
    def stopping(self) -> bool:
        """Whether the service shuts down: the work should commit what it has and return."""
        return self._stop.is_set()

    @property
    def busy(self) -> bool:
        """Whether a submitted transaction is still under way."""
        return self._pending is not None and not self._pending.done()

    @property
    def careful(self) -> bool:
        """Whether a poison record is looked for here: what was polled must be submitted before more is."""
        return self._bisection.careful(self.position)

    @property
    def suspects(self) -> Suspects | None:
        """The records of which it isn't known that they did no harm; None also where they are the work's own state.

        A state without one of its records is another state: who can't go on with all of it must not go on without.
        """
        if self._clients.positions is None:
            return None
        done = self.committed.offset or 0
        taken = [taken for taken in self._taken if taken.after > done]
        if not taken:
            return None
        return Suspects(max(done, taken[0].first), taken[-1].after, sum(each.records for each in taken))

    async def poll(self, max_records: int, timeout: float) -> RecordBatch:
        """The next records, at most `max_records`; an empty batch if none come within `timeout` seconds.

        Records that are too large or that work failed at are not among them: the `submit` of an offset behind them
        writes what is left of them to `dead-letters`.

        Afterwards `position` is the offset of the next record to come. It moves over transaction markers and
        aborted records too, so "position >= a high watermark read before" means: all up to there has been seen.
        Raises what a submitted transaction has failed with.
        """
        if self._pending is not None and self._pending.done():
            await self.flush()
        await asyncio.sleep(timeout if self.at_end else 0)
        if self.at_end:
            return self._nothing
        if self.careful:
            await self._flush_suspects()
        most = self._bisection.most(self.position, max_records)
        try:
            fetched = await self._clients.source.poll(most, timeout)
        except OffsetOutOfRangeError:
            await self._skip_expired()
            return self._nothing
        except UndecodableError as error:
            await self._pass_over(error)
            return self._nothing
        self.position = await self._clients.source.position()
        if (read_end := self._clients.source.end()) is not None:
            self.seen_end = max(self.seen_end or 0, read_end)
        records = self._sorted_out(fetched)
        self._handed_on = len(records) > 0
        if self._traced is not None:
            self._traced.saw(len(records), records.headers)
        return records

    async def group_progress(self, partitions: Iterable[int]) -> dict[int, Progress]:
        """The progress of the group in partitions of this topic, after everything that it has committed by now.

        What this partition has committed is seen by all others once this returns.
        """
        admin, probe, positions = self._clients.admin, self._clients.probe, self._clients.positions
        assert positions is not None
        await read_offsets(admin, self._group, [self.tp], stable=True)
        tps = [TopicPartition(self.tp.topic, partition) for partition in partitions]
        found = await read_last(admin, probe, positions, self._group, tps, stable=False)
        return {tp.partition: last.committed.progress for tp, last in found.items()}

    async def _flush_suspects(self) -> None:
        """Makes sure that what was taken before is through: whatever fails next, it is not to blame."""
        await self.flush()
        if self._handed_on:
            self._bisection.passed()
        self._taken.clear()

    def _sorted_out(self, fetched: RecordBatch) -> RecordBatch:
        """The records that are for the work; the others become dead letters."""
        letters = self._clients.source.left_out()
        self._note_taken(fetched, letters)
        self._letters += letters
        if not self._bisection.bans:
            return fetched
        good = np.ones(len(fetched), np.bool_)
        for row, offset in enumerate(fetched.offsets.tolist()):
            why = self._bisection.banned(offset)
            if why is not None:
                log.warning("%s[%d]: the record at offset %d goes to dead-letters: %s", *self.tp, offset, why[1])
                self._letters.append(DeadLetter(truncated(fetched.record(row)), *why))
                good[row] = False
        return fetched.where(good)

    def _note_taken(self, fetched: RecordBatch, letters: list[DeadLetter]) -> None:
        count = len(fetched) + len(letters)
        if not count:
            return
        done = self.committed.offset or 0
        self._taken = [taken for taken in self._taken if taken.after > done][-_MOST_TAKEN:]
        first = min(fetched.offsets[:1].tolist() + [letter.record.offset for letter in letters[:1]])
        self._taken.append(Suspects(first, self.position, count))

    def left_out(self, offset: int) -> list[int]:
        """The offsets of records that the next commit, of `offset`, writes to `dead-letters` by itself.

        A batch that can't be read counts once, by its first offset.
        """
        return [letter.record.offset for letter in self._letters if letter.record.offset < offset]

    async def _pass_over(self, error: UndecodableError) -> None:
        """Reads a batch again that can't be read, as it may have come wrongly; the second time it goes aside."""
        letter = error.letter
        if not self._bisection.doubted(letter.record.offset):
            log.warning("%s[%d]: %s; it is fetched again", *self.tp, error)
            self.rewind(await self._clients.source.position())
            return
        if self._clients.positions is None:
            place = f"{self.tp.topic}[{self.partition}]"
            raise Fatal(f"{place}: {letter.detail}: delete the topic to begin without that state")
        log.error("%s[%d]: %s; it goes to dead-letters, and reading goes on at %d", *self.tp, error, error.after)
        self.rewind(error.after)
        letters = [*self._clients.source.left_out(), letter]
        self._note_taken(self._nothing, letters)
        self._letters += letters

    async def end(self) -> int:
        """The partition's end now: its high watermark, open transactions included."""
        (end,) = (await self._clients.probe.end_offsets([self.tp])).values()
        return int(end)

    def rewind(self, offset: int) -> None:
        """Reads on from another offset."""
        self._clients.source.seek(offset)
        self.position = offset

    def outbox(self) -> Sink:
        """An empty outbox for one `commit` or `submit`."""
        return Outbox(self._clients.producer)

    async def commit(self, outbox: Sink | None, offset: int, progress: Progress) -> None:
        """Writes the records, the next offset to read and the progress as one transaction; returns when it is done.

        With at-least-once delivery the records are written first, then offset and progress.
        """
        await self.submit(outbox, offset, progress)
        await self.flush()

    async def submit(
        self, outbox: Sink | None, offset: int, progress: Progress, committed: Callable[[], None] | None = None
    ) -> None:
        """Like `commit`, but returns as soon as the transaction has begun; `committed` is called when it is done.

        One transaction at a time: this waits for the one before, so memory stays bounded. Its failure is raised
        by the next `submit`, `flush` or `poll`.
        """
        await self.flush()
        # Those behind the offset are read again after a restart: writing them now might double them.
        if letters := [letter for letter in self._letters if letter.record.offset < offset]:
            self._letters = [letter for letter in self._letters if letter.record.offset >= offset]
            outbox = self.outbox() if outbox is None else outbox
            await self._clients.dead_letters.write(letters, outbox)
        self._pending = asyncio.create_task(self._write(outbox, offset, progress, committed))

    async def flush(self) -> None:
        """Waits until nothing is under way; raises what the transaction failed with."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            await pending

    def _show(self, progress: Progress) -> None:
        if self._clients.positions is not None:
            show_watermark(self._group, self.partition, progress)

    async def abandon(self) -> None:
        """Ends what is under way, or gives it up, so that readers of committed records needn't wait for a timeout.

        A transaction gets a moment to end: who cancels a commit doesn't know whether it was done, so what is counted
        with it would be lost, and its work would often be done twice.
        """
        hide_watermark(self._group, self.partition)
        if self._pending is not None:
            await asyncio.wait([self._pending], timeout=_ENDING_SECONDS)
            self._pending.cancel()
            await asyncio.wait([self._pending])
            if not self._pending.cancelled():
                self._pending.exception()
        if self._in_transaction:
            metrics.TRANSACTION_ABORTS.labels(self._group).inc()
            with contextlib.suppress(KafkaError, TimeoutError, AssertionError):
                async with asyncio.timeout(_ABORT_TIMEOUT):
                    await self._clients.producer.abort_transaction()

    async def _write(
        self, outbox: Sink | None, offset: int, progress: Progress, committed: Callable[[], None] | None
    ) -> None:
        entry = Committed(offset, progress, self.topic_id)
        with self._span(outbox, offset):
            async with asyncio.timeout(self._commit_timeout):
                if self._clients.commit_offset is None:
                    await self._write_transaction(outbox, entry.encode())
                else:
                    if outbox:
                        await outbox.send()
                    await self._commit_offset(self._clients.commit_offset, entry.encode())
        self.committed = entry
        self._bisection.committed(offset)
        self._show(progress)
        metrics.COMMITS.labels(self._group).inc()
        if committed is not None:
            committed()

    def _span(self, outbox: Sink | None, offset: int) -> contextlib.AbstractContextManager[None]:
        if self._traced is None:
            return contextlib.nullcontext()
        return self._traced.transaction(offset, outbox.records if outbox else 0)

    async def _commit_offset(
        self, commit: Callable[[TopicPartition, OffsetAndMetadata], Awaitable[None]], position: OffsetAndMetadata
    ) -> None:
        """With at-least-once delivery the copy says no more than the output does, as the offset."""
        await commit(self.tp, position)
        if self._clients.positions is not None:
            await self._clients.positions.send(self._clients.producer, [(self.tp, position)])

    async def _write_transaction(self, outbox: Sink | None, position: OffsetAndMetadata) -> None:
        producer = self._clients.producer
        await producer.begin_transaction()
        self._in_transaction = True
        writes = [producer.send_offsets_to_transaction({self.tp: position}, self._group)]
        if self._clients.positions is not None:
            outbox = self.outbox() if outbox is None else outbox
            self._clients.positions.append(outbox, self.tp, position)
        if outbox:
            writes.append(outbox.send())
        for result in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        self._in_transaction = False
        await producer.commit_transaction()

    async def _skip_expired(self) -> None:
        topic_id = await read_topic_id(self.admin, self.tp.topic)
        if not same_topic(topic_id, self.topic_id):
            raise Fatal(created_again(self.tp.topic, self._group, self.topic_id, topic_id))
        first = await self._clients.source.first()
        if first < self.position:
            raise Fatal(beyond_end(self.tp, self._group, self.position, self.topic_id))
        lost = first - self.position
        log.error("%s[%d]: retention deleted %d offsets unread", self.tp.topic, self.partition, lost)
        metrics.EXPIRED_OFFSETS.labels(self._group).inc(lost)
        self.skipped_to = first
        self.rewind(first)
