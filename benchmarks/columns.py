"""Reading, extracting and writing records: objects of aiokafka against columns in compiled code, in one run.

    python benchmarks/columns.py [--records 100000] [--rounds 5] [--value-bytes 100]

CPU time per record on one core, the best of some rounds; both get the same bytes: JSON of two numbers and a text, a
thousand skewed keys, batches of 10,000 records. `extract` takes both numbers of each value. No broker and no socket.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from keygrouping.job import Extracted, JobSpec, extract_columns
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.inflating import LZ4, ZSTD
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.reading import Reader
from keygrouping_service.records.v2.visibility import Visibility
from keygrouping_service.records.v2.writing import Sender, compressed, pack, sealed

BATCH = 10_000
WORKERS = 8
TARGET_BYTES = 1 << 20
NOW = 1_800_000_000_000
CODECS = {"none": 0, "lz4": LZ4, "zstd": ZSTD}
JOB = JobSpec.from_json(
    {
        "aggregates": [
            {"name": "total", "op": "sum", "field": "price"},
            {"name": "mean", "op": "mean", "field": "quantity"},
        ]
    }
)


def fetched(records: int, value_bytes: int, codec: int) -> bytes:
    """Batches as a broker hands them out."""
    chance = random.Random(1)
    data = bytearray()
    for base in range(0, records, BATCH):
        builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 40)
        for number in range(min(BATCH, records - base)):
            key = b"key-%d" % (int(chance.paretovariate(0.8)) % 1000)
            head = b'{"user":"u%06d","price":%.2f,"quantity":%d,"note":"' % (
                *(chance.randrange(10**6), chance.random() * 1000),
                chance.randrange(1, 9),
            )
            value = head + chance.randbytes(value_bytes).hex()[: value_bytes - len(head) - 2].encode() + b'"}'
            builder.append(number, NOW - records + base + number, key, value, [])
        batch = bytearray(builder.build())
        struct.pack_into(">q", batch, 0, base)
        data += batch
    return bytes(data)


def read_objects(data: bytes) -> Columns:
    records = PartitionRecords(TopicPartition("t", 0), MemoryRecords(data), [], 0, None, None, True, 1)
    return Columns.of("t", 0, ((r.offset, r.timestamp, r.key, r.value, r.headers) for r in records))


def read_columns(data: bytes) -> BufferBatch:
    parts = list(Reader(Unpacking(), "t", 0, 0).read(data, Visibility()))
    return parts[0].followed_by(parts[1:])


def extract_one_by_one(batch: Columns) -> list[tuple[Any, ...]]:
    """What was done before there were columns."""
    extract = JOB.extraction.extract
    rows = zip(batch.keys, batch.values, batch.headers, batch.timestamps.tolist(), strict=True)
    found = [extract(*row, NOW) for row in rows]
    usable = [each for each in found if isinstance(each, Extracted)]
    np.fromiter((each.time_ms for each in usable), np.int64, len(usable))
    return [each.fields for each in usable]


def write_objects(batch: Columns, targets: Any, codec: int) -> int:
    size = 0
    for target in range(WORKERS):
        rows = np.flatnonzero(targets == target)
        while len(rows):
            builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, TARGET_BYTES)
            done = 0
            for row in rows.tolist():
                if builder.append(done, int(batch.timestamps[row]), batch.keys[row], batch.values[row], []) is None:
                    break
                done += 1
            rows = rows[done:]
            size += len(builder.build())
    return size


def write_columns(batch: BufferBatch, targets: Any, codec: int) -> int:
    packed = pack(batch, targets, TARGET_BYTES)
    return sum(len(sealed(compressed(each, codec) if codec else each, Sender())) for each in packed)


def best(rounds: int, records: int, work: Callable[[], Any]) -> float:
    """CPU time in µs per record."""
    work()
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken) / records * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--value-bytes", type=int, default=100)
    given = parser.parse_args()
    targets = np.random.default_rng(1).integers(0, WORKERS, given.records)

    def show(name: str, objects: Callable[[], Any], columns: Callable[[], Any]) -> None:
        before, now = (best(given.rounds, given.records, work) for work in (objects, columns))
        print(f"{name:24} objects {before:6.3f} µs   columns {now:6.3f} µs   {before / now:5.1f} x", flush=True)

    for name, codec in CODECS.items():
        data = fetched(given.records, given.value_bytes, codec)
        show(f"read, {name}", lambda data=data: read_objects(data), lambda data=data: read_columns(data))  # type: ignore[misc]
    data = fetched(given.records, given.value_bytes, 0)
    objects, columns = read_objects(data), read_columns(data)
    rows, found = extract_one_by_one(objects), extract_columns(JOB, columns, NOW)
    assert found.fields is not None and list(found.fields) == rows
    show("extract two fields", lambda: extract_one_by_one(objects), lambda: extract_columns(JOB, columns, NOW))
    show("the same, from lists", lambda: extract_one_by_one(objects), lambda: extract_columns(JOB, objects, NOW))
    show(
        "the same, as rows",
        lambda: extract_one_by_one(objects),
        lambda: list(extract_columns(JOB, objects, NOW).fields or ()),
    )
    for name, codec in CODECS.items():
        show(
            f"write to {WORKERS}, {name}",
            lambda codec=codec: write_objects(objects, targets, codec),  # type: ignore[misc]
            lambda codec=codec: write_columns(columns, targets, codec),  # type: ignore[misc]
        )


if __name__ == "__main__":
    main()
