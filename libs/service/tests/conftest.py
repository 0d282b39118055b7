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
def settings(broker: EmbeddedBroker, application: str) -> StageSettings:
    return StageSettings(
        bootstrap_servers=broker.bootstrap_servers,
        application=application,
        job='{"aggregates": [{"name": "events", "op": "count"}]}',
        session_timeout=6,
    )
