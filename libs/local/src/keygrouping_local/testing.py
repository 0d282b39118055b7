"""pytest plugin: one embedded broker and one Redis for the whole test run, and names that no other test uses."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.proxy import Proxy
from keygrouping_local.redis_server import MISSING, RedisServer, installed

# An example may wait for a busy machine: how long it takes is no fault.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A running broker, shared by all tests of the session; a test that kills it must start it again."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def fresh_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of the module's own, for tests that kill it: the session's would read hundreds of partitions again."""
    with EmbeddedBroker(tmp_path_factory.mktemp("fresh-broker")) as running:
        yield running


@pytest.fixture(autouse=True)
def _broker_serves(request: pytest.FixtureRequest) -> None:
    """Starts the shared broker again if a test has failed between killing and starting it: the next ones are not to."""
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").start()


@pytest.fixture
def proxy(broker: EmbeddedBroker) -> Iterator[Proxy]:
    """A proxy of the test's own in front of the broker, to delay, reorder and lose its clients' requests."""
    with Proxy([int(broker.bootstrap_servers.partition(":")[2])]) as running:
        yield running


@pytest.fixture
def topic_prefix() -> str:
    """A name that is new for every test, to begin its topics' names with."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def application(topic_prefix: str) -> str:
    """A name for consumer groups and transactional ids that is new for every test."""
    return topic_prefix


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A running Redis server, shared by all tests of the session; a test that kills it must start it again."""
    if not installed():
        pytest.skip(MISSING)
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with Spark first, then those with a broker: started last, one of them would keep all others waiting."""
    ranks: dict[Path, int] = {}
    for item in items:
        rank = 0 if item.get_closest_marker("spark") else 1 if item.get_closest_marker("kafka") else 2
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items.sort(key=lambda item: ranks[item.path])
