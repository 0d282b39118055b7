"""What the tests across parts share: a deployment of real services on the session's broker."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deploy, Deployment, Shape


@pytest.fixture
async def deploy(broker: EmbeddedBroker, application: str, tmp_path: Path) -> AsyncIterator[Deploy]:
    """Makes the test's own application on the session's broker; its processes end with the test."""
    async with AsyncExitStack() as stack:

        async def make(job: str, shape: Shape | None = None) -> Deployment:
            deployment = Deployment(broker.bootstrap_servers, application, tmp_path, job, shape=shape)
            return await stack.enter_async_context(deployment)

        yield make
