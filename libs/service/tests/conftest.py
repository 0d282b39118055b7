from collections.abc import AsyncIterator

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as cluster:
        yield cluster


@pytest.fixture
async def settings(broker: EmbeddedBroker, cluster: Cluster, application: str) -> StageSettings:
    positions = f"{application}-positions"
    await cluster.create(**{positions: 1})
    return StageSettings(
        bootstrap_servers=broker.bootstrap_servers,
        application=application,
        job='{"aggregates": [{"name": "events", "op": "count"}]}',
        session_timeout=6,
        positions_topic=positions,
    )
