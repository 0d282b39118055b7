"""Standby copies of states: they follow what others commit, and whoever takes over goes on from there."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app import App, Event, Output, State
from keygrouping_app.events import Record
from keygrouping_app.handlers import Handler
from keygrouping_app.kafka import restores
from keygrouping_app.kafka.changelog import Copy, changelog_of, check_partitions
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.kafka.standbys import Standbys
from keygrouping_service.testing import Cluster, until

from .served import serving

KEYS = 400
ONE, TWO = ("in", 0), ("in", 2)


@dataclass
class Account:
    balance: int = 0


def app_of(name: str, topic: str, out: str, brokers: str = "nowhere:9092", **state: Any) -> App:
    app = App(name, brokers=brokers, dead_letters=f"{name}-dead")

    @app.on(topic, state=State(Account, **state))
    async def book(event: Event, account: Account) -> Output:
        account.balance += event.value
        return Output(out, account.balance, key=event.key)

    return app


def handler_of(**state: Any) -> Handler:
    (handler,) = app_of("bank", "in", "out", **state).handlers
    return handler


def states_of(copy: Copy) -> dict[Any, bytes]:
    return {key: kept.data for key, kept in copy.states}


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(1, 9))), max_size=40),
    st.lists(st.integers(0, 40), max_size=6),
    st.integers(0, 99),
    st.sampled_from(["memory", "disk"]),
)
def test_a_copy_that_follows_a_changelog_is_as_one_that_reads_it_in_the_end(
    changes: list[tuple[str, int | None]], looks: list[int], seed: int, store: str
) -> None:
    """What is compacted meanwhile is of keys that have a later record."""
    chance, written = random.Random(seed), list[Record]()
    following, fresh = (Copy.of(handler_of(store=store), TopicPartition("in", 0)) for _ in range(2))
    for offset, (key, balance) in enumerate(changes):
        value = None if balance is None else b'{"balance":%d}' % balance
        written.append(Record("changelog", 0, offset, 1_000 + offset, key.encode(), value))
        for _ in range(looks.count(offset)):
            last = {record.key: record.offset for record in written}
            written = [each for each in written if each.offset == last[each.key] or chance.random() < 0.5]
            for record in written:
                if record.offset >= (following.position or 0):
                    following.read(record)
            following.position = offset + 1
    for record in written:
        fresh.read(record)
        if record.offset >= (following.position or 0):
            following.read(record)
    balances = {key.encode(): balance for key, balance in changes}
    assert states_of(following) == states_of(fresh)
    assert states_of(fresh) == {key: b'{"balance":%d}' % each for key, each in balances.items() if each is not None}
    following.states.close()
    fresh.states.close()


@pytest.mark.kafka
async def test_whoever_takes_over_reads_only_what_its_copy_has_not(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name, topic, out = f"{topic_prefix}-group", f"{topic_prefix}-in", f"{topic_prefix}-out"
    await cluster.create(**{topic: 4, out: 1, f"{name}-dead": 1})
    members: list[Runner] = []
    monkeypatch.setattr(Runner, "run", _noting(members, Runner.run))
    caplog.set_level(logging.INFO)

    async def pay() -> None:
        for partition in range(4):
            rows = [(b"%d-%d" % (partition, number), b"1") for number in range(KEYS)]
            await cluster.write(topic, rows, partition)

    async def reach(count: int) -> list[bytes]:
        async def reached() -> bool:
            return len(await cluster.read(out)) == count

        await until(reached)
        return [record.value or b"" for record in await cluster.read(out)]

    def is_copied() -> bool:
        """Whether each of both has its two partitions, and a copy of all of the other's, up to the end."""
        copies = [copy for member in members for copy in member.standbys._copies.values()]
        counts = [len(member.partitions) for member in members]
        left = [member.standbys.left_of(topic) for member in members]
        return (counts, left) == ([2, 2], [[0, 0]] * 2) and [len(copy.states) for copy in copies] == [KEYS] * 4

    def app() -> App:
        return app_of(name, topic, out, cluster.bootstrap_servers, standbys=1)

    async with serving(app()):
        await pay()
        async with serving(app()):
            await reach(4 * KEYS)
            await until(is_copied)
            caplog.clear()
            monkeypatch.setattr(restores, "check_partitions", _failing_once(check_partitions))
        await pay()
        assert sorted(await reach(8 * KEYS))[-4 * KEYS :] == [b"2"] * (4 * KEYS)
        assert not [line for line in caplog.messages if "states restored" in line], "there was nothing left to read"
        assert len([line for line in caplog.messages if "cannot restore its states" in line]) == 1
        (stays,) = members
        assert stays.standbys.left_of(topic) == [], "nobody else is there to be followed"


def _failing_once(check: Any) -> Any:
    failures = [1]

    async def checked(*given: Any) -> None:
        if failures:
            failures.clear()
            raise KafkaConnectionError("the broker is away")
        await check(*given)

    return checked


def _noting(members: list[Runner], run: Any) -> Any:
    async def noted(self: Runner, stop: asyncio.Event) -> None:
        members.append(self)
        try:
            await run(self, stop)
        finally:
            members.remove(self)

    return noted


@asynccontextmanager
async def following(cluster: Cluster, group: str, handler: Handler) -> AsyncIterator[Standbys]:
    standbys = Standbys(Settings(group, cluster.bootstrap_servers, "dead"), {"in": handler})
    task = asyncio.create_task(standbys.keep())
    try:
        yield standbys
    finally:
        task.cancel()
        await asyncio.wait([task])
        standbys.close()


async def copied(standbys: Standbys, tp: TopicPartition, wanted: dict[bytes, bytes]) -> None:
    await until(lambda: tp in standbys._copies and states_of(standbys._copies[tp]) == wanted)


@pytest.mark.kafka
async def test_what_is_followed_changes_while_it_is_read(cluster: Cluster, topic_prefix: str) -> None:
    changelog = changelog_of(topic_prefix, "in")
    await cluster.create(**{changelog: 3})
    one, two = TopicPartition(*ONE), TopicPartition(*TWO)
    async with following(cluster, topic_prefix, handler_of()) as standbys:
        standbys.follow({ONE})
        await cluster.write(changelog, [(b"a", b"1"), (b"b", b"2"), (b"a", None)], 0)
        await copied(standbys, one, {b"b": b"2"})
        standbys.follow({ONE, TWO})
        await cluster.write(changelog, [(b"c", b"3")], 2)
        await copied(standbys, two, {b"c": b"3"})
        await until(lambda: standbys.left_of(one.topic) == [0, 0])
        taken = standbys.take(one)
        await cluster.write(changelog, [(b"b", b"4")], 0)
        await cluster.write(changelog, [(b"c", b"5")], 2)
        await copied(standbys, two, {b"c": b"5"})
        assert taken is not None and states_of(taken) == {b"b": b"2"} and taken.position == 3
        standbys.follow(set())
        await until(lambda: standbys.left_of(one.topic) == [])
        standbys.follow({ONE})
        await copied(standbys, one, {b"b": b"4"})


@pytest.mark.kafka
async def test_a_changelog_that_was_created_again_is_read_from_its_beginning(
    cluster: Cluster, topic_prefix: str
) -> None:
    changelog, tp = changelog_of(topic_prefix, "in"), TopicPartition(*ONE)
    await cluster.create(**{changelog: 1})
    await cluster.write(changelog, [(b"%d" % number, b"1") for number in range(9)])
    async with following(cluster, topic_prefix, handler_of()) as standbys:
        standbys.follow({ONE})
        await copied(standbys, tp, {b"%d" % number: b"1" for number in range(9)})
        await cluster.recreate(changelog)
        await cluster.write(changelog, [(b"a", b"2")])
        await copied(standbys, tp, {b"a": b"2"})


@pytest.mark.kafka
async def test_a_copy_that_may_have_missed_that_a_state_has_gone_begins_again(
    cluster: Cluster, topic_prefix: str
) -> None:
    """A tombstone is in the changelog for a day, and this copy has not been there for two."""
    changelog, tp = changelog_of(topic_prefix, "in"), TopicPartition(*ONE)
    await cluster.create(**{changelog: 1})
    await cluster.write(changelog, [(b"a", b"1")])
    async with following(cluster, topic_prefix, handler_of()) as standbys:
        standbys.follow({ONE})
        await copied(standbys, tp, {b"a": b"1"})
        away = standbys._copies[tp]
        away.read(Record(changelog, 0, 0, 1_000, b"gone", b"2"))
        away.seen_at -= 2 * 86_400
        await copied(standbys, tp, {b"a": b"1"})
        assert standbys._copies[tp] is not away
        standbys._copies[tp].seen_at -= 2 * 86_400
        assert standbys.take(tp) is None, "nor does it help who takes over"


@pytest.mark.kafka
async def test_states_of_a_newer_program_are_not_followed(
    cluster: Cluster, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    changelog = changelog_of(topic_prefix, "in")
    await cluster.create(**{changelog: 1})
    await cluster.producer.send_and_wait(changelog, b"1", b"a", headers=[("keygrouping-version", b"2")])
    async with following(cluster, topic_prefix, handler_of()) as standbys:
        standbys.follow({ONE})
        await until(lambda: "this member can't have copies" in caplog.text)
        assert "in[0]: this member can't have copies of its states: states of version 2 are there" in caplog.text
        assert (standbys.left_of("in"), standbys.places, standbys.wanted) == ([], set(), {}), "another is to have them"
        standbys.follow({ONE})
        assert not standbys.places, "it would fail again"
