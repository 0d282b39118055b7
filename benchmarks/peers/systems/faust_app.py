"""faust-streaming: an agent that sends each record by its key."""

import faust
from common import APPLICATION, BROKERS, FOLDER, SOURCE, TARGET, first

app = faust.App(
    APPLICATION,
    broker=f"kafka://{BROKERS}",
    datadir=FOLDER,
    store="memory://",
    topic_partitions=8,
    consumer_auto_offset_reset="earliest",
    value_serializer="raw",
    key_serializer="raw",
)
# >route
source = app.topic(SOURCE, key_type=bytes, value_type=bytes)
target = app.topic(TARGET, key_type=bytes, value_type=bytes)


@app.agent(source)
async def route(stream):
    async for event in stream.events():
        first()
        await target.send(key=event.key, value=event.value, timestamp=event.message.timestamp)


# <route
if __name__ == "__main__":
    app.main()
