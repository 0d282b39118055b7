"""Sorts a batch of the input: what can be used, and where late and unusable records go."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from keygrouping.job import ExtractedColumns
from prometheus_client import Counter

from keygrouping_service.errors import Fatal
from keygrouping_service.events.extract import Extractor, Judged, sort_out_late
from keygrouping_service.events.lateness import FINISHED, REASONS, PartitionClock
from keygrouping_service.events.receipts import Entry
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.records.batches import origin_headers
from keygrouping_service.records.protocols import Header, RecordBatch, Sink
from keygrouping_service.records.record import TOO_LARGE, DeadLetter, Record, truncated
from keygrouping_service.settings import StageSettings

log = logging.getLogger(__name__)

LATE_BY = "keygrouping-late-by"
"""Header of late events: by how many ms, see `lateness.Judgement`."""

MOST_FRAMING = 1024
"""What a record batch adds to its record, at most, but for many headers."""

_MOST_OF_A_HEADER = 10
"""Bytes of a header's two lengths."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The reader's own metrics of what it leaves out: by reason, by reason, and by field."""

    late: Counter
    dead: Counter
    skipped_fields: Counter


async def count_partitions(admin: AIOKafkaAdminClient, *topics: str) -> dict[str, int]:
    """How many partitions each topic has; `Fatal` if one is missing."""
    counts = {name: len(await partitions_of(admin, name)) for name in topics}
    missing = [name for name, count in counts.items() if count == 0]
    if missing:
        raise Fatal(f"missing topics: {', '.join(missing)}; create them first")
    return counts


async def largest_records(admin: AIOKafkaAdminClient, *topics: str) -> dict[str, int]:
    """The largest record that each topic takes, in bytes as they are written; without those of which it isn't told."""
    found = {}
    for answer in await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]):
        for code, message, _, topic, entries in answer.resources:
            bounds = [int(entry[1]) for entry in entries if entry[0] == "max.message.bytes"]
            if code or not bounds:
                log.warning("max.message.bytes of %s can't be read: %s", topic, message)
            else:
                found[topic] = bounds[0] - MOST_FRAMING
    return found


def size_of(record: Record, headers: Iterable[Header]) -> int:
    """Bytes of a record with these headers as it is written, without what `MOST_FRAMING` is for; never too few."""
    named = sum(len(name.encode()) + len(value or b"") + _MOST_OF_A_HEADER for name, value in headers)
    return len(record.key or b"") + len(record.value or b"") + named


class Sorter:
    """Sorts batches of the input for all partitions of a process; `partitions` are those of its topics.

    `largest`: of topics, the bytes of the largest record that they take. Of one that is larger a dead letter keeps what
    is small. A topic that is missing is not known to refuse any.
    """

    def __init__(
        self,
        settings: StageSettings,
        partitions: Mapping[str, int],
        counters: Counters,
        largest: Mapping[str, int] | None = None,
    ) -> None:
        self._settings = settings
        self._job = settings.job
        self._partitions = partitions
        self._counters = counters
        self._extractor = Extractor(settings.job)
        self._skipping: set[int] = set()
        self._largest = largest or {}
        self._told_too_large = False
        for field in self._job.fields:
            counters.skipped_fields.labels(field.pointer).inc(0)

    async def sort(
        self, records: RecordBatch, clock: PartitionClock, entry: Entry, outbox: Sink
    ) -> ExtractedColumns[RecordBatch]:
        """What the job takes of the usable records; the others go into the outbox, and all of them into the entry."""
        entry.consume(records.offsets)
        judged = await self._extractor.extract(records, int(time.time() * 1000))
        if judged.skipped:
            self._report_skipped(judged.skipped)
        judged = sort_out_late(judged, clock)
        if judged.late or judged.rejected:
            self._leave_out(judged, outbox, entry)
        return judged.usable

    def _report_skipped(self, skipped: Mapping[int, tuple[int, Record]]) -> None:
        """Counts values of the wrong type; the first of each field is logged."""
        for position, (records, first) in skipped.items():
            field = self._job.fields[position]
            self._counters.skipped_fields.labels(field.pointer).inc(records)
            if position not in self._skipping:
                self._skipping.add(position)
                log.warning(
                    "%s[%d] at offset %d: field %r is not %s, so its aggregates skip it as if it were missing; "
                    "keygrouping_%s_skipped_fields_total counts how often",
                    *(first.topic, first.partition, first.offset, field.pointer, field.wanted),
                    self._settings.section.lower(),
                )

    def _leave_out(self, judged: Judged, outbox: Sink, entry: Entry) -> None:
        """Late and unusable records go to their topics, with headers that say why."""
        settings = self._settings
        dead = [DeadLetter(record, why.reason, why.detail) for record, why in judged.rejected]
        late: list[int] = []
        for record, verdict, late_by in judged.late:
            reason, detail = REASONS[verdict]
            headers = origin_headers(record, reason, detail)
            if verdict != FINISHED:
                headers.append((LATE_BY, str(late_by).encode()))
            if not self._fits(record, headers, settings.late_topic):
                dead.append(self._too_large(record))
                continue
            late.append(record.offset)
            self.send_on(outbox, record, settings.late_topic, headers)
            self._counters.late.labels(reason).inc()
        for letter in dead:
            self._dead_letter(letter, outbox)
        entry.set_late(late)
        entry.dead_letter([letter.record.offset for letter in dead])

    def _dead_letter(self, letter: DeadLetter, outbox: Sink) -> None:
        record, reason, detail, _ = letter
        topic = self._settings.dead_letters_topic
        headers = origin_headers(record, reason, detail)
        if not self._fits(record, headers, topic):
            record = truncated(record)
            headers = origin_headers(record, reason, detail)
        self.send_on(outbox, record, topic, headers)
        self._counters.dead.labels(reason).inc()

    def _fits(self, record: Record, headers: list[Header], topic: str) -> bool:
        """Whether the topic takes it, as far as that is known."""
        if topic not in self._largest:
            return True
        return size_of(record, headers) <= self._largest[topic]

    def _too_large(self, record: Record) -> DeadLetter:
        """Of a late event that can't go to `late`; the first is logged."""
        topic = self._settings.late_topic
        detail = (
            f"the event is late, and {topic} takes {self._largest[topic]} bytes a record: raise max.message.bytes, "
            "and restart the workers"
        )
        if not self._told_too_large:
            self._told_too_large = True
            log.warning(
                "%s[%d] at offset %d: %s; it goes to %s, truncated, as all such do; "
                "keygrouping_%s_dead_letters_total counts them as %s",
                *(record.topic, record.partition, record.offset, detail, self._settings.dead_letters_topic),
                *(self._settings.section.lower(), TOO_LARGE),
            )
        return DeadLetter(truncated(record), TOO_LARGE, detail)

    def send_on(self, outbox: Sink, record: Record, topic: str, headers: list[Header]) -> None:
        """Puts a record into the outbox for another topic as it is, with these headers."""
        partition = record.partition % self._partitions[topic]
        outbox.append(topic, partition, record.timestamp, record.key, record.value, headers)
