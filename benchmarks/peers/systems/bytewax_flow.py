"""Bytewax with a recovery store: records by key; count and sums per key and window, up to the input's end."""

import json
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window
from common import BROKERS, GRACE_MS, SOURCE, TARGET, WINDOW_MS, WORK, first

flow = Dataflow("peer")
sink = KafkaSink([BROKERS], TARGET, {"partitioner": "murmur2_random"})
if WORK == "route":
    # >route
    def passed(message):
        first()
        return KafkaSinkMessage(message.key, message.value)

    stream = op.input("in", flow, KafkaSource([BROKERS], [SOURCE], batch_size=10_000))
    op.output("out", op.map("pass", stream, passed), sink)
    # <route
else:
    # >count
    ZERO = datetime(2020, 1, 1, tzinfo=UTC)

    def keyed(message):
        first()
        value = json.loads(message.value)
        return message.key.decode(), (message.timestamp[1], value["a"], value["b"])

    def add(sums, event):
        return sums[0] + 1, sums[1] + event[1], sums[2] + event[2]

    def merge(left, right):
        return tuple(map(sum, zip(left, right, strict=True)))

    def result(row):
        key, (window, sums) = row
        start = int(ZERO.timestamp() * 1000) + window * WINDOW_MS
        return KafkaSinkMessage(key.encode(), json.dumps([start, *sums]).encode())

    stream = op.map("key", op.input("in", flow, KafkaSource([BROKERS], [SOURCE], tail=False, batch_size=10_000)), keyed)
    clock = EventClock(
        lambda event: datetime.fromtimestamp(event[0] / 1000, UTC),
        wait_for_system_duration=timedelta(milliseconds=GRACE_MS),
    )
    windows = TumblingWindower(length=timedelta(milliseconds=WINDOW_MS), align_to=ZERO)
    sums = fold_window("sums", stream, clock, windows, lambda: (0, 0, 0), add, merge)
    op.output("out", op.map("result", sums.down, result), sink)
    # <count
