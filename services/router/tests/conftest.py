from collections.abc import AsyncIterator

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_router.settings import RouterSettings
from keygrouping_service.testing import Cluster


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as cluster:
        yield cluster


@pytest.fixture
async def settings(cluster: Cluster, application: str, topic_prefix: str) -> RouterSettings:
    """Settings of a router with four workers and two input partitions; its topics exist."""
    kinds = ("events", "routed", "late", "dead-letters", "positions", "receipts")
    names = {kind: f"{topic_prefix}-{kind}" for kind in kinds}
    counts = dict.fromkeys(kinds, 1) | {"events": 2, "routed": 8}
    await cluster.create(**{names[kind]: count for kind, count in counts.items() if kind != "positions"})
    await cluster.create_compacted(names["positions"])
    return RouterSettings(
        bootstrap_servers=cluster.bootstrap_servers,
        application=application,
        # Every event is believed, so that few events move time.
        job='{"aggregates": [{"name": "events", "op": "count"}], "lateness": "10s", "confirmations": 1}',
        session_timeout=6,
        events_topic=names["events"],
        routed_topic=names["routed"],
        late_topic=names["late"],
        dead_letters_topic=names["dead-letters"],
        receipts_topic=names["receipts"],
        positions_topic=names["positions"],
        workers=4,
        grouping="pkg",
        linger=0.01,
    )
