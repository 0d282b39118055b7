"""What a disk does to an embedded broker's log, for tests of readers."""

import time

from keygrouping_service.kafka import clients
from keygrouping_service.records.batches import Outbox
from keygrouping_service.settings import ServiceSettings

from keygrouping_local.broker import EmbeddedBroker

_WRITTEN_WITHIN = 30.0
_LOOK_SECONDS = 0.05
_UNDAMAGED = b"as it was written"


def damage(broker: EmbeddedBroker, topic: str, what: bytes, by: bytes) -> None:
    """Writes other bytes of the same length into the log of partition 0; AssertionError if it has no such ones."""
    assert len(what) == len(by), "what follows would move"
    deadline = time.monotonic() + _WRITTEN_WITHIN
    while time.monotonic() < deadline:
        for segment in (broker.log.parent / "kafka" / f"{topic}-0").glob("*.log"):
            data = segment.read_bytes()
            if what in data:
                with segment.open("r+b") as file:
                    file.seek(data.index(what))
                    file.write(by)
                return
        time.sleep(_LOOK_SECONDS)
    raise AssertionError(f"{what!r} is in no segment of {topic}")


async def write_unreadable(broker: EmbeddedBroker, settings: ServiceSettings, topic: str, time_ms: int) -> None:
    """Adds to partition 0 a record of 17 MB in few bytes, then two records in a batch that is damaged on the disk."""
    for compression, rows in (
        ("gzip", [(b"large", bytes(17 << 20))]),
        ("none", [(b"damaged", _UNDAMAGED), (b"damaged", b"")]),
    ):
        async with clients.started(clients.producer(settings, compression=compression)) as producer:
            outbox = Outbox(producer)
            for key, value in rows:
                outbox.append(topic, 0, time_ms, key, value)
            await outbox.send()
    damage(broker, topic, _UNDAMAGED, _UNDAMAGED.swapcase())
