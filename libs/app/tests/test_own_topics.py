"""Topics that an app creates for itself: how safe they are, and what is told where one can't be created."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    InvalidReplicationFactorError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from keygrouping.app import App, Event, State
from keygrouping_app.kafka import topics
from keygrouping_app.kafka.changelog import check_partitions
from keygrouping_app.kafka.own_topics import Size, config_of, create, size_of
from keygrouping_local.cluster import EmbeddedCluster
from keygrouping_service.testing import until
from merging_handlers import Visits, merge

from .served import serving


class Brokers:
    """What an admin client tells of brokers that refuse, or do not; `late`: how often they don't know of the topic."""

    def __init__(self, code: int = 0, reason: str | None = None, there: tuple[str, ...] = (), late: int = 0) -> None:
        self._answer = code, reason
        self._late = late
        self._there = there
        self.created: list[NewTopic] = []
        self.looks = 0

    async def list_topics(self) -> list[str]:
        self.looks += 1
        self._late -= 1
        return [] if self._late >= 0 else list(self._there)

    async def create_topics(self, topics: list[NewTopic]) -> Any:
        self.created += topics
        return SimpleNamespace(topic_errors=[(each.name, *self._answer) for each in topics])

    async def describe_topics(self, topics: list[str]) -> Any:
        self._late -= 1
        found = [] if self._late >= 0 else [{"partition": number, "replicas": [1, 2, 3]} for number in range(2)]
        return [{"topic": each, "partitions": found} for each in topics]

    async def describe_configs(self, _: Any) -> Any:
        self._late -= 1
        code = UnknownTopicOrPartitionError.errno if self._late >= 0 else self._answer[0]
        entries = [] if code else [("retention.ms", "5", False, False, False)]
        return [SimpleNamespace(resources=[(code, None, 2, "own", entries)])]


async def made(brokers: Any, copies: int = 1) -> list[str]:
    return await create(brokers, "own", Size(4, copies), {"cleanup.policy": "compact"}, "which is a test's")


@pytest.mark.parametrize(("copies", "safe"), [(1, {}), (2, {}), (3, {"min.insync.replicas": "2"})])
async def test_of_three_copies_two_are_written_before_a_record_counts(copies: int, safe: dict[str, str]) -> None:
    brokers = Brokers()
    assert await made(brokers, copies) == []
    (topic,) = brokers.created
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("own", 4, copies)
    assert topic.topic_configs == {"cleanup.policy": "compact", **safe}


async def test_one_that_is_there_is_left_as_it_is() -> None:
    brokers = Brokers(there=("own",))
    assert await made(brokers) == []
    assert not brokers.created
    assert await made(Brokers(TopicAlreadyExistsError.errno)) == []  # by another member, just now


async def test_why_it_cant_be_created_and_how_somebody_else_can_is_told() -> None:
    how = (
        "Create it: kafka-topics --create --topic own --partitions 4 --replication-factor 3 "
        "--config cleanup.policy=compact --config min.insync.replicas=2"
    )
    assert await made(Brokers(TopicAuthorizationFailedError.errno), 3) == [
        f"topic 'own', which is a test's, can't be created: TopicAuthorizationFailedError. {how}"
    ]
    assert await made(Brokers(InvalidReplicationFactorError.errno, "there is one broker"), 3) == [
        f"topic 'own', which is a test's, can't be created: there is one broker. {how}"
    ]


async def test_settings_that_may_not_be_known_are_none(caplog: pytest.LogCaptureFixture) -> None:
    admin: Any = Brokers()
    assert await config_of(admin, "own") == {"retention.ms": "5"}
    admin = Brokers(late=2)
    assert await config_of(admin, "own") == {"retention.ms": "5"}
    admin = Brokers(TopicAuthorizationFailedError.errno)
    with caplog.at_level(logging.WARNING):
        assert await config_of(admin, "own") == {}
    assert [each.getMessage() for each in caplog.records if each.name.endswith("own_topics")] == [
        "the settings of topic own can't be read: TopicAuthorizationFailedError"
    ]


async def test_a_broker_that_has_not_heard_of_a_topic_yet_is_asked_again() -> None:
    late: Any = Brokers(late=3)
    assert await size_of(late, "own") == Size(2, 3)
    late = Brokers(late=3)
    await check_partitions(late, "app", "own")


@pytest.mark.parametrize("late", [0, 3])
async def test_an_input_that_a_broker_has_not_heard_of_yet_is_not_missing(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_PAUSE", 0.001)
    admin: Any = Brokers(there=("in", "other"), late=late)
    assert await topics.all_topics(admin, ["in"]) == {"in", "other"}


async def test_a_missing_input_is_looked_for_again_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_PAUSE", 0.001)
    monkeypatch.setattr(topics, "MISSING_SECONDS", 0.05)
    admin: Any = Brokers(there=("other",))
    assert await topics.all_topics(admin, ["in"]) == {"other"}
    assert admin.looks > 1


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[tuple[AIOKafkaAdminClient, str]]:
    """Of three brokers that would be content with one copy; and where they are."""
    with EmbeddedCluster(tmp_path, properties={"min.insync.replicas": "1"}) as brokers:
        client = AIOKafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
        await client.start()
        try:
            yield client, brokers.bootstrap_servers
        finally:
            await client.close()


def count(_: Event, state: dict[str, int]) -> None:
    state["n"] = state.get("n", 0) + 1


def see(_: Event, visits: Visits) -> None:
    visits.count += 1


@pytest.mark.kafka
async def test_all_topics_of_an_app_need_two_of_three_copies(admin: tuple[AIOKafkaAdminClient, str]) -> None:
    client, servers = admin
    await client.create_topics([NewTopic(name, 2, 3) for name in ("moved", "merged", "dead")])
    app = App("own", brokers=servers, dead_letters="dead")
    app.on("moved", state=State(dict, moves="mixed"))(count)
    app.on("merged", split=True, state=State(Visits, merge=merge))(see)
    wanted = {
        *("own.moved.states", "own.moved.moved", "own.own.moved.moved.states", "own.moved.planning"),
        *("own.merged.partials", "own.merged.partials.inputs", "own.own.merged.partials.states"),
        *("own.overflow", "own.sharing"),
    }
    async with serving(app) as running:
        missing = {*wanted}

        async def all_there() -> bool:
            missing.difference_update(await client.list_topics())
            return running.done() or not missing

        with suppress(AssertionError):  # below is told which one is missing
            await until(all_there)
    found = [name for name in await client.list_topics() if name.startswith("own.")]
    assert not missing, found
    assert {name: (await config_of(client, name))["min.insync.replicas"] for name in found} == dict.fromkeys(found, "2")
