"""A loop on confluent-kafka: `at-least-once` commits each second, `eos` has a transaction for each 50,000 records."""

import time

from common import APPLICATION, BROKERS, MODE, SOURCE, TARGET, first
from confluent_kafka import Consumer, Producer

# >route
consumer = Consumer(
    {
        "bootstrap.servers": BROKERS,
        "group.id": APPLICATION,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 5,  # 1,000 by default: a full queue then stops fetching for a second
    }
)
consumer.subscribe([SOURCE])
settings = {
    "bootstrap.servers": BROKERS,
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "linger.ms": 20,
    "queue.buffering.max.messages": 200_000,
}
if MODE == "eos":
    settings["transactional.id"] = APPLICATION
producer = Producer(settings)
if MODE == "eos":
    producer.init_transactions()


def route(record):
    while True:
        try:
            producer.produce(TARGET, record.value(), record.key(), timestamp=record.timestamp()[1])
            return
        except BufferError:
            producer.poll(0.1)


def commit():
    if MODE == "eos":
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
    else:
        producer.flush()
        consumer.commit(asynchronous=False)


pending, committed = 0, time.time()
while True:
    records = consumer.consume(5000, 0.1)
    if records:
        first()
    if MODE == "eos" and records and not pending:
        producer.begin_transaction()
    for record in records:
        if record.error():
            raise RuntimeError(record.error())
        route(record)
    producer.poll(0)
    pending += len(records)
    full = pending >= 50_000 if MODE == "eos" else time.time() - committed > 1
    if pending and (full or not records):
        commit()
        pending, committed = 0, time.time()
# <route
