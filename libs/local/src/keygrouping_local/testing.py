"""pytest plugin: one embedded broker for the whole test run, and names that no other test uses."""

import uuid
from collections.abc import Iterator

import pytest

from keygrouping_local.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A running broker, shared by all tests of the session; a test that kills it must start it again."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic_prefix() -> str:
    """A name that is new for every test, to begin its topics' names with."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def application(topic_prefix: str) -> str:
    """A name for consumer groups and transactional ids that is new for every test."""
    return topic_prefix
