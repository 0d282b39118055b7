"""Where the observer's reading begins, over a real broker."""

import logging

import orjson
import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import write_unreadable
from keygrouping_observer.reading import read_snapshots
from keygrouping_observer.snapshots import KEPT
from keygrouping_service.kafka import clients
from keygrouping_service.settings import ServiceSettings
from keygrouping_service.testing import Cluster


@pytest.mark.kafka
async def test_the_last_snapshots_of_this_observer_are_read_and_what_can_not_be_is_told(
    broker: EmbeddedBroker, application: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ServiceSettings(bootstrap_servers=broker.bootstrap_servers)
    rows = [(b"other" if number % 3 == 2 else b"ours", orjson.dumps({"n": number})) for number in range(4 * KEPT)]
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{application: 1})
        await cluster.write(application, rows[:-3])
        await write_unreadable(broker, settings, application, 1)
        await cluster.write(application, rows[-3:])
    source = clients.source(settings)
    with caplog.at_level(logging.WARNING):
        async with clients.started(source.consumer):
            found = await read_snapshots(source, application, "ours")
    numbers = [n for n in range(2 * KEPT + 3, 4 * KEPT) if n % 3 != 2]
    assert [each["n"] for each in found] == numbers[-KEPT:]
    told = [record.getMessage() for record in caplog.records if "is no snapshot to show" in record.getMessage()]
    for offset, line in zip((4 * KEPT - 3, 4 * KEPT - 2), told, strict=True):
        assert line.startswith(f"{application}[0]: offset {offset} is no snapshot to show: ")
