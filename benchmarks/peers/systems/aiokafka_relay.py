"""A relay on aiokafka, batches built by hand, a transaction for each fetched batch."""

import asyncio

import mmh3
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from common import APPLICATION, BROKERS, SOURCE, TARGET, first

# >route
SOURCES, PARTITIONS = 8, 10


async def relay():
    consumer = AIOKafkaConsumer(
        bootstrap_servers=BROKERS,
        group_id=APPLICATION,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=4 << 20,
    )
    await consumer.start()
    tps = [TopicPartition(SOURCE, partition) for partition in range(SOURCES)]
    consumer.assign(tps)
    producers = {
        tp: AIOKafkaProducer(
            bootstrap_servers=BROKERS, max_batch_size=1 << 19, transactional_id=f"{APPLICATION}-{tp.partition}"
        )
        for tp in tps
    }
    await asyncio.gather(*[producer.start() for producer in producers.values()])

    async def handle(tp, records):
        producer = producers[tp]
        await producer.begin_transaction()
        builders, sent = [None] * PARTITIONS, []
        for record in records:
            worker = (mmh3.hash(record.key, 13) & 0x7FFFFFFF) % PARTITIONS
            builder = builders[worker]
            fields = {"key": record.key, "value": record.value, "timestamp": record.timestamp}
            if builder is None or builder.append(**fields) is None:
                if builder is not None:
                    builder.close()
                    sent.append(await producer.send_batch(builder, TARGET, partition=worker))
                builder = builders[worker] = producer.create_batch()
                builder.append(**fields)
        for worker, builder in enumerate(builders):
            if builder is not None:
                builder.close()
                sent.append(await producer.send_batch(builder, TARGET, partition=worker))
        await asyncio.gather(*sent)
        await producer.send_offsets_to_transaction({tp: records[-1].offset + 1}, APPLICATION)
        await producer.commit_transaction()

    while True:
        fetched = await consumer.getmany(timeout_ms=1000, max_records=20000)
        if fetched:
            first()
        await asyncio.gather(*[handle(tp, records) for tp, records in fetched.items()])


asyncio.run(relay())
# <route
