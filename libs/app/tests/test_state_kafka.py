"""States on Kafka: restored as they were committed, and refused where they can't belong to the offsets."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.produce import ProduceRequest
from keygrouping_app import App, AppError, Event, Output, State
from keygrouping_app.kafka import refusals, transactions
from keygrouping_app.kafka.changelog import USUAL_BYTES, prepare
from keygrouping_app.kafka.redriving import Redriving
from keygrouping_app.kafka.transactions import OnceProducer
from keygrouping_app.redrive import Choice
from keygrouping_local.ports import free_ports
from keygrouping_service.records.record import Record
from keygrouping_service.testing import Cluster, configure, until

from .served import serving
from .test_moves_kafka import answered

pytestmark = pytest.mark.kafka

LONG_AGO = 1_600_000_000_000
RECENT = {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Of a changelog that takes no states that were changed more than an hour ago."""


@dataclass
class Account:
    balance: int = 0
    note: str = ""


class Bank:
    """An app with state, and its topics."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.topic, self.out, self.group = f"{prefix}-in", f"{prefix}-out", f"{prefix}-group"
        self.dead = f"{prefix}-dead"
        self.changelog = f"{self.group}.{self.topic}.states"

    async def create(self, partitions: int = 1) -> None:
        await self.cluster.create(**{self.topic: partitions, self.out: 1, self.dead: 1})

    def app(self, state: Any = Account, work: Callable[[Event, Any], Any] | None = None) -> App:
        app = App(self.group, brokers=self.cluster.bootstrap_servers, dead_letters=self.dead)

        async def book(event: Event, account: Account) -> Output:
            account.balance += event.value
            return Output(self.out, account.balance, key=event.key)

        app.on(self.topic, state=state)(work or book)
        return app

    async def pay(self, *amounts: int, key: bytes = b"a", partition: int = 0) -> None:
        await self.cluster.write(self.topic, [(key, b"%d" % each) for each in amounts], partition)

    async def balances(self) -> list[bytes]:
        return [record.value or b"" for record in await self.cluster.read(self.out)]

    def changelog_of_a(self, moves: str | None) -> str:
        """Where the state of key a is, if it is at a slot once it may move."""
        return f"{self.group}.{self.group}.{self.topic}.moved.states" if moves else self.changelog

    async def states_of_a(self, moves: str | None) -> list[Record]:
        """What is written there of it."""
        found = await self.cluster.read(self.changelog_of_a(moves))
        return [each for each in found if each.key in (b"a", b"0:a")]

    async def has_balance(self, balance: int) -> bool:
        return b"%d" % balance in await self.balances()

    async def has_letters(self, count: int) -> bool:
        return len(await self.cluster.read(self.dead)) == count

    async def reach(self, count: int) -> None:
        async def reached() -> bool:
            return len(await self.balances()) >= count

        await until(reached)


@pytest.fixture
async def bank(cluster: Cluster, topic_prefix: str) -> Bank:
    found = Bank(cluster, topic_prefix)
    await found.create()
    return found


async def refusal(app: App) -> str:
    """What it says instead of running."""
    with pytest.raises(AppError) as refused:
        await asyncio.wait_for(app.serve(asyncio.Event()), 120)
    return str(refused.value)


async def settings_of(cluster: Cluster, topic: str) -> dict[str, str]:
    (answer,) = await cluster.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


async def test_a_member_goes_on_with_the_states_of_the_one_before(bank: Bank) -> None:
    await bank.pay(1, 2)
    async with serving(bank.app()):
        await bank.reach(2)
    await bank.pay(3)
    await bank.pay(10, key=b"b")
    async with serving(bank.app()):
        await bank.reach(4)
    assert sorted(await bank.balances()) == [b"1", b"10", b"3", b"6"]
    settings = await settings_of(bank.cluster, bank.changelog)
    assert settings["cleanup.policy"] == "compact"
    records = await bank.cluster.read(bank.changelog)
    assert {record.key: record.value for record in records} == {
        b"a": b'{"balance":6,"note":""}',
        b"b": b'{"balance":10,"note":""}',
    }
    assert records[-1].headers == (("keygrouping-version", b"1"),)


async def test_a_state_that_ends_leaves_a_tombstone_and_is_not_restored(bank: Bank) -> None:
    await bank.pay(5)
    async with serving(bank.app()):
        await bank.reach(1)
        await bank.pay(-5)
        await bank.reach(2)
    assert [record.value for record in await bank.cluster.read(bank.changelog)][-1] is None
    await bank.pay(1)
    async with serving(bank.app()):
        await bank.reach(3)
    assert await bank.balances() == [b"5", b"0", b"1"]


def cents_of(old: Any, _: int) -> Any:
    """As it was meant."""
    return {"balance": old["balance"], "note": "upgraded"}


def cents_of_most(old: Any, version: int) -> Any:
    """Knows all states but one."""
    if old["balance"] == 1:
        raise LookupError("no such account")
    return cents_of(old, version)


@pytest.mark.parametrize("moves", [None, "ordered"], ids=["home", "at a slot"])
async def test_a_state_that_cannot_be_read_holds_up_no_other_key_and_is_there_when_it_can(
    bank: Bank, moves: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever owns its partition, and wherever its key is."""
    (port,) = free_ports(1)

    def app(**options: Any) -> App:
        app = bank.app(State(Account, moves=moves, **options))
        app.override({"port": port}, {})
        return app

    await bank.pay(1)
    await bank.pay(10, key=b"b")
    async with serving(app()):
        await bank.reach(2)
        if moves:
            assert (await answered(port, "/keys/a/slot", b'{"slot": 0}'))[0] == HTTPStatus.ACCEPTED
            await until(lambda: moved(port))
            await until(partial(bank.states_of_a, moves))
    before = [(each.key, each.value) for each in await bank.states_of_a(moves)]
    for number in range(2):
        await bank.pay(2)
        await bank.pay(20, key=b"b")
        async with serving(app(version=2, upgrade=cents_of_most)):
            await bank.reach(3 + number)
            await until(partial(bank.has_letters, number + 1))
            (found,) = json.loads((await answered(port, "/state/a"))[1])["states"]
            assert found["state"]["balance"] == 1
            assert "no such account" in found["unreadable"]
    letters = [dict(each.headers) for each in await bank.cluster.read(bank.dead)]
    assert [each["keygrouping-reason"] for each in letters] == [b"unreadable_state"] * 2
    where = f"of {bank.changelog_of_a(moves)}[0]: its state can't be read as version 2 of Account (no such account)"
    assert where in (letters[0]["keygrouping-detail"] or b"").decode()
    assert sum(where in each for each in caplog.messages) == 2
    assert [(each.key, each.value) for each in await bank.states_of_a(moves)] == before
    async with serving(app(version=2, upgrade=cents_of)):
        await Redriving(app().settings(), Choice(reasons={"unreadable_state"})).run(dry=False)
        await bank.reach(6)
    assert sorted(map(int, await bank.balances())) == [1, 3, 5, 10, 30, 50]


async def moved(port: int) -> bool:
    (told,) = json.loads((await answered(port, "/keys"))[1])["handlers"]
    return [(each["slot"], "to" in each) for each in told["moves"]["keys"]] == [(0, False)]


async def test_a_program_that_reads_no_state_at_all_does_not_begin(bank: Bank) -> None:
    keys = [b"%d" % number for number in range(12)]
    for key in keys:
        await bank.pay(1, key=key)
    async with serving(bank.app()):
        await bank.reach(len(keys))
    await bank.pay(1, key=b"0")
    said = await refusal(bank.app(State(Account, version=2, upgrade=cents_of_most)))
    assert f"{bank.changelog}[0]: none of 12 states that were tried can be read" in said
    assert await bank.cluster.read(bank.dead) == []
    async with serving(bank.app()):
        await bank.reach(len(keys) + 1)
    await bank.cluster.producer.send_and_wait(bank.changelog, None, b"1", partition=0)
    await bank.pay(7, key=b"1")
    async with serving(bank.app()):
        await bank.reach(len(keys) + 2)
    assert sorted(await bank.balances()) == [*[b"1"] * len(keys), b"2", b"7"], "begun without the state"


async def bound(bank: Bank, topic: str, largest: int) -> None:
    """Has a changelog take no larger records from now on."""
    await configure(bank.cluster.admin, topic, {"cleanup.policy": "compact", "max.message.bytes": str(largest)})


@pytest.mark.parametrize("moves", [None, "ordered"], ids=["home", "at a slot"])
async def test_a_state_that_the_changelog_refuses_makes_a_dead_letter_and_holds_up_nothing(
    bank: Bank, moves: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)

    async def grow(event: Event, account: Account) -> Output:
        account.balance += event.value
        account.note = "x" * event.value
        return Output(bank.out, account.balance, key=event.key)

    def app() -> App:
        app = bank.app(State(Account, moves=moves), grow)
        app.override({"port": port}, {})
        return app

    async with serving(app()):
        await bank.pay(1)
        await bank.reach(1)
        if moves:
            assert (await answered(port, "/keys/a/slot", b'{"slot": 0}'))[0] == HTTPStatus.ACCEPTED
            await until(lambda: moved(port))
        await bound(bank, bank.changelog_of_a(moves), 2000)
        await bank.pay(2)
        await bank.reach(2)
        await bank.pay(5000)
        await bank.pay(10, key=b"b")
        await until(partial(bank.has_letters, 1))
        await bank.pay(3, 4)
        await bank.reach(5)
        _, metrics = await answered(port, "/metrics")
        assert f'letters_total{{group="{bank.group}",reason="refused_state",topic="{bank.topic}"}} 1.0' in metrics
    assert sorted(map(int, await bank.balances())) == [1, 3, 6, 10, 10]
    (letter,) = await bank.cluster.read(bank.dead)
    told = dict(letter.headers)
    assert (letter.value, told["keygrouping-reason"]) == (b"5000", b"refused_state")
    detail = (told["keygrouping-detail"] or b"").decode()
    assert f"for {bank.changelog_of_a(moves)}[0], a record of 50" in detail
    assert "keygrouping redrive --reason refused_state" in detail
    assert any("goes to" in each and detail in each for each in caplog.messages)
    await bound(bank, bank.changelog_of_a(moves), USUAL_BYTES)
    async with serving(app()):
        await Redriving(app().settings(), Choice(reasons={"refused_state"})).run(dry=False)
        await until(lambda: bank.has_balance(5010))


class Padded:
    """A member in which each state has the balance in its note once more, as so many letters, and how to ask it."""

    def __init__(self, bank: Bank, moves: Any = None, **options: Any) -> None:
        (self.port,) = free_ports(1)

        async def grow(event: Event, account: Account) -> Output:
            account.balance += event.value
            account.note = "x" * account.balance
            return Output(bank.out, [str(event.key), account.balance], key=event.key)

        self.app = bank.app(State(Account, moves=moves, **options), grow)
        self.app.override({"port": self.port}, {})

    async def order(self, key: str, slot: int | None) -> None:
        body = json.dumps({"slot": slot}).encode()
        assert (await answered(self.port, f"/keys/{key}/slot", body))[0] == HTTPStatus.ACCEPTED

    async def told(self) -> Any:
        (told,) = json.loads((await answered(self.port, "/keys"))[1])["handlers"]
        return told

    async def places(self) -> dict[str, int]:
        """The slots of keys that are not at home, and not on their way."""
        return {each["key"]: each["slot"] for each in (await self.told())["moves"]["keys"] if "to" not in each}

    async def is_at(self, **slots: int) -> bool:
        return await self.places() == slots

    async def refused(self) -> str:
        """What /keys and metrics tell alike, unless it changes while they are asked."""
        told, metrics, before = "", "", None
        while before is None or bool(told) != bool(before):
            before = "".join((await self.told())["refused"].values())
            _, metrics = await answered(self.port, "/metrics")
            told = "".join((await self.told())["refused"].values())
        assert (" 0.0" if not told else " 1.0") in next(
            each for each in metrics.splitlines() if each.startswith("keygrouping_app_refused_partitions{")
        )
        return told


async def sums(bank: Bank) -> list[list[Any]]:
    return sorted(json.loads(each) for each in await bank.balances())


def begun_again(caplog: pytest.LogCaptureFixture) -> int:
    return sum("begins again from what is committed" in each for each in caplog.messages)


async def test_a_key_whose_state_is_not_taken_any_more_is_known_and_not_tried_with_each_event(
    bank: Bank, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "KNOWN_SECONDS", 5.0)
    member = Padded(bank)
    async with serving(member.app):
        await bank.pay(5000)
        await bank.pay(1, key=b"b")
        await bank.reach(2)
        await bound(bank, bank.changelog, 2000)
        since = time.monotonic()
        for number in range(10):
            await bank.pay(1)
            await bank.pay(1, key=b"b")
            await until(partial(bank.has_letters, number + 1))
            await bank.reach(3 + number)
        assert begun_again(caplog) <= 2 + (time.monotonic() - since) / refusals.KNOWN_SECONDS
        await bank.pay(-4000)
        await bank.reach(13)
        await bound(bank, bank.changelog, USUAL_BYTES)
        await asyncio.sleep(5)
        await bank.pay(5000)
        await bank.reach(14)
    assert await sums(bank) == [["a", 1000], ["a", 5000], ["a", 6000], *(["b", number + 1] for number in range(11))]
    letters = [dict(each.headers) for each in await bank.cluster.read(bank.dead)]
    assert [each["keygrouping-reason"] for each in letters] == [b"refused_state"] * 10
    assert all(b"keygrouping redrive --reason refused_state" in (each["keygrouping-detail"] or b"") for each in letters)


async def test_the_end_of_a_state_that_the_changelog_refuses_makes_a_dead_letter(bank: Bank) -> None:
    """Were it left out, the old state would be back with the next member."""
    key = b"k" * 3000
    async with serving(bank.app()):
        await bank.pay(5, key=key)
        await bank.reach(1)
        await bound(bank, bank.changelog, 2000)
        await bank.pay(-5, key=key)
        await bank.pay(1, key=b"b")
        await until(partial(bank.has_letters, 1))
        await bank.reach(2)
    await bound(bank, bank.changelog, USUAL_BYTES)
    async with serving(bank.app()):
        await bank.pay(1, key=key)
        await bank.reach(3)
    assert sorted(map(int, await bank.balances())) == [1, 5, 6]
    (letter,) = await bank.cluster.read(bank.dead)
    assert (letter.value, dict(letter.headers)["keygrouping-reason"]) == (b"-5", b"refused_state")


async def test_a_state_that_cannot_be_read_nor_written_again_is_left_and_told_of(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    """With a time to live it would be written with the times of its events."""
    now = int(1000 * time.time())
    member = Padded(bank, ttl=3600)
    async with serving(member.app):
        await bank.cluster.producer.send_and_wait(bank.topic, b"5000", b"a", 0, now - 900_000)
        await bank.cluster.producer.send_and_wait(bank.topic, b"1", b"b", 0, now - 900_000)
        await bank.reach(2)
    later = Padded(bank, ttl=3600, version=2, upgrade=cents_of_few)
    async with serving(later.app):
        await bank.pay(1, key=b"b")
        await bank.reach(3)
        await bound(bank, bank.changelog, 2000)
        for number in range(5):
            await bank.pay(1)
            await bank.pay(1, key=b"b")
            await until(partial(bank.has_letters, number + 1))
            await bank.reach(4 + number)
        await until(later.refused)
        assert "key b'a'" in await later.refused()
    assert begun_again(caplog) == 0
    letters = [dict(each.headers) for each in await bank.cluster.read(bank.dead)]
    assert [each["keygrouping-reason"] for each in letters] == [b"unreadable_state"] * 5
    assert sum("is not written" in each for each in caplog.messages) == 1


def cents_of_few(old: Any, version: int) -> Any:
    """Knows small ones."""
    if old["balance"] > 100:
        raise LookupError("no such account")
    return cents_of(old, version)


async def test_a_state_that_arrives_at_a_slot_and_is_refused_there_holds_up_no_other_key_and_is_not_lost(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has the slot. It is written when the changelog takes it, as with an event of a time that it takes."""

    async def pay_old(amount: int) -> None:
        await bank.cluster.producer.send_and_wait(bank.topic, b"%d" % amount, b"a", 0, LONG_AGO)

    changelog, member = bank.changelog_of_a("ordered"), Padded(bank, "ordered")
    async with serving(member.app):
        await pay_old(500)
        await bank.pay(1, key=b"b")
        await bank.reach(2)
        await member.order("b", 0)
        await until(lambda: member.is_at(b=0))
        await configure(bank.cluster.admin, changelog, {"cleanup.policy": "compact", **RECENT})
        await member.order("a", 0)
        await until(lambda: member.is_at(a=0, b=0))
    for number in range(3):
        again = Padded(bank, "ordered")
        async with serving(again.app):
            await pay_old(1)
            await bank.pay(1, 1, key=b"b")
            await until(partial(bank.has_letters, number + 1))
            await bank.reach(4 + 2 * number)
            await until(again.refused)
            assert "key b'0:a'" in await again.refused()
    assert begun_again(caplog) <= 3
    assert not await bank.states_of_a("ordered")
    last = Padded(bank, "ordered")
    async with serving(last.app):
        await bank.pay(2)
        await bank.reach(9)
        assert await states_of_a(bank) == [502]
        await until(lambda: is_not_refused(last))
        await configure(bank.cluster.admin, changelog, {"cleanup.policy": "compact"})
        await Redriving(last.app.settings(), Choice()).run(dry=False)
        await bank.reach(12)
    assert [each for each in await sums(bank) if each[0] == "a"] == [["a", each] for each in (500, *range(502, 506))]
    assert [each for each in await sums(bank) if each[0] == "b"] == [["b", each] for each in range(1, 8)]


async def test_a_state_that_arrived_at_a_slot_and_is_refused_may_go_home_or_is_written_when_it_can_be(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "KNOWN_SECONDS", 5.0)
    member = Padded(bank, "ordered")
    async with serving(member.app):
        await bank.pay(5000)
        await bank.reach(1)
        await bound(bank, bank.changelog_of_a("ordered"), 2000)
        await member.order("a", 0)
        await until(lambda: member.is_at(a=0))
        await until(member.refused)
        await member.order("a", None)
        await until(lambda: member.is_at())
        await until(lambda: is_not_refused(member))
        await bank.pay(1)
        await bank.reach(2)
        await member.order("a", 1)
        await until(lambda: member.is_at(a=1))
        await until(member.refused)
        assert await states_of_a(bank) == []
        await bound(bank, bank.changelog_of_a("ordered"), USUAL_BYTES)
        await until(lambda: is_not_refused(member))
        assert await states_of_a(bank) == [5001]
    async with serving(Padded(bank, "ordered").app):
        await bank.pay(1)
        await bank.reach(3)
    assert await sums(bank) == [["a", 5000], ["a", 5001], ["a", 5002]]
    assert not await bank.cluster.read(bank.dead)


async def states_of_a(bank: Bank) -> list[int]:
    """The balances that are written where its slot keeps them."""
    found = await bank.states_of_a("ordered")
    return [json.loads(each.value)["balance"] for each in found if each.value is not None]


async def is_not_refused(member: Padded) -> bool:
    return not await member.refused()


async def test_a_key_whose_state_home_refuses_stays_at_its_slot_and_holds_up_no_other(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    member = Padded(bank, "ordered")
    async with serving(member.app):
        await bank.pay(5000)
        await bank.pay(1, key=b"b")
        await bank.reach(2)
        for key in "ab":
            await member.order(key, 0)
        await until(lambda: member.is_at(a=0, b=0))
        await bound(bank, bank.changelog, 2000)
        await member.order("a", None)
        await bank.pay(1)
        await bank.pay(1, key=b"b")
        await bank.reach(4)
        await until(lambda: member.is_at(a=0, b=0))
        await member.order("b", None)
        await until(lambda: member.is_at(a=0))
        assert not await member.refused()
        await bound(bank, bank.changelog, USUAL_BYTES)
        await member.order("a", None)
        await until(lambda: member.is_at())
        await bank.pay(1)
        await bank.reach(5)
    assert await sums(bank) == [["a", 5000], ["a", 5001], ["a", 5002], ["b", 1], ["b", 2]]
    assert not await bank.cluster.read(bank.dead)
    assert sum("stay where they are" in each for each in caplog.messages) == 1


async def bounded_times(bank: Bank) -> None:
    """Creates the changelog: of states that were changed more than an hour ago it takes none."""
    topic = NewTopic(bank.changelog, 1, 1, topic_configs={"cleanup.policy": "compact", **RECENT})
    await bank.cluster.admin.create_topics([topic])


async def test_all_states_that_a_changelog_refuses_by_one_bound_are_found_at_once(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition reads its states again for all of a transaction, not for each."""
    await bounded_times(bank)
    keys = [b"%d" % number for number in range(30)]
    for at, amount in ((None, 1), (LONG_AGO, 100), (None, 10)):
        for key in keys if at else [b"now"]:
            await bank.cluster.producer.send(bank.topic, b"%d" % amount, key, 0, at)
    await bank.cluster.producer.flush()
    app = bank.app()
    app.override({"commit_interval": 1}, {})
    async with serving(app):
        await until(partial(bank.has_letters, len(keys)))
        await until(lambda: bank.has_balance(11))
        await bank.pay(2, key=b"7")
        await until(lambda: bank.has_balance(2))
    assert {each.key for each in await bank.cluster.read(bank.dead)} == set(keys)
    assert sorted(map(int, await bank.balances())) == [1, 2, 11]
    assert sum("begins again from what is committed" in each for each in caplog.messages) <= len(keys) // 3


async def test_one_bad_state_among_very_many_is_found_by_few_attempts(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a transaction has no time to send them one by one."""
    await bounded_times(bank)
    count, bad, begun, answered = 10_000, 7_001, OnceProducer.begin_transaction, OnceProducer._answered
    attempts: list[OnceProducer] = []

    async def counted(producer: OnceProducer) -> None:
        attempts.append(producer)
        await begun(producer)

    async def slowly(producer: OnceProducer, node: int, request: object, **options: Any) -> Any:
        if isinstance(request, ProduceRequest):
            await asyncio.sleep(0.01)
        return await answered(producer, node, request, **options)

    monkeypatch.setattr(transactions, "_TIMEOUT", 6.0)
    monkeypatch.setattr(OnceProducer, "begin_transaction", counted)
    monkeypatch.setattr(OnceProducer, "_answered", slowly)
    for number in range(count):
        at = LONG_AGO if number == bad else None
        await bank.cluster.producer.send(bank.topic, b"%d" % (number + 1), b"k%d" % number, 0, at)
    await bank.cluster.producer.flush()
    app = bank.app()
    app.override({"commit_interval": 5, "max_events": 4 * count}, {})
    async with serving(app):
        await until(partial(bank.has_letters, 1))
        await bank.reach(count - 1)
    (letter,) = await bank.cluster.read(bank.dead)
    assert letter.key == b"k%d" % bad
    assert sorted(map(int, await bank.balances())) == [each + 1 for each in range(count) if each != bad]
    assert len(attempts) <= math.log2(count)


async def test_states_that_a_changelog_refuses_only_together_are_written_in_smaller_batches(bank: Bank) -> None:
    app = bank.app()
    app.override({"commit_interval": 2}, {})
    async with serving(app):
        await bank.pay(1)
        await bank.reach(1)
        await bound(bank, bank.changelog, 2000)
        for number in range(500):
            await bank.cluster.producer.send(bank.topic, b"3", b"k%d" % number, 0)
        await bank.reach(501)
    assert await bank.cluster.read(bank.dead) == []
    assert len({each.key for each in await bank.cluster.read(bank.changelog)}) == 501


async def test_a_state_may_be_larger_than_records_usually_are(bank: Bank) -> None:
    async def grow(event: Event, account: Account) -> Output:
        account.note += "x" * event.value
        return Output(bank.out, len(account.note))

    state = State(Account, largest=4_000_000)
    await bank.pay(3_000_000)
    async with serving(bank.app(state, grow)):
        await bank.reach(1)
    await bank.pay(900_000, 900_000, 1)
    async with serving(bank.app(state, grow)):
        await bank.reach(3)
    assert await bank.balances() == [b"3000000", b"3900000", b"3900001"]
    assert (await settings_of(bank.cluster, bank.changelog))["max.message.bytes"] == "1048588", "as brokers have it"
    assert max(len(each.value or b"") for each in await bank.cluster.read(bank.changelog)) == 256 << 10
    (letter,) = await bank.cluster.read(bank.dead)
    assert dict(letter.headers)["keygrouping-reason"] == b"invalid_state"


async def test_a_state_that_shrinks_leaves_no_parts_and_one_that_has_lost_some_is_refused(bank: Bank) -> None:
    async def become(event: Event, account: Account) -> Output:
        account.note = "x" * event.value
        return Output(bank.out, len(account.note))

    await bank.pay(900_000)
    async with serving(bank.app(work=become)):
        await bank.reach(1)
    await bank.pay(300_000)
    async with serving(bank.app(work=become)):
        await bank.reach(2)
    last = {each.key: each.value for each in await bank.cluster.read(bank.changelog)}
    part = b"\0keygrouping-part:%d:a"
    assert {key: value is not None for key, value in last.items()} == {
        b"a": True,
        part % 1: True,
        **dict.fromkeys([part % 2, part % 3], False),
    }
    headers = [("keygrouping-parts", b"1:of-another-write")]
    await bank.cluster.producer.send_and_wait(bank.changelog, b"{", b"a", partition=0, headers=headers)
    assert "has lost records: parts of 1 states are gone" in await refusal(bank.app(work=become))


async def test_without_the_offsets_that_they_belong_to_states_are_refused_until_they_are_deleted(bank: Bank) -> None:
    await bank.pay(1, 2)
    async with serving(bank.app()):
        await bank.reach(2)
    await bank.cluster.forget(bank.group)
    said = await refusal(bank.app())
    assert "states that don't belong to the offsets" in said
    assert f"kafka-topics --delete --topic {bank.changelog}" in said
    await bank.cluster.admin.delete_topics([bank.changelog])

    async def gone() -> bool:
        return bank.changelog not in await bank.cluster.admin.list_topics()

    await until(gone)
    async with serving(bank.app()):
        await bank.reach(4)
    assert await bank.balances() == [b"1", b"3", b"1", b"3"]


async def test_a_changelog_that_has_lost_what_was_committed_is_refused(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keygrouping_app.kafka.changelog._BEHIND_SECONDS", 1.0)
    await bank.pay(1, 2)
    async with serving(bank.app()):
        await bank.reach(2)
    await bank.cluster.admin.delete_topics([bank.changelog])

    async def gone() -> bool:
        return bank.changelog not in await bank.cluster.admin.list_topics()

    await until(gone)
    said = await refusal(bank.app())
    assert "it has lost records or was created again" in said
    assert f"kafka-consumer-groups --group {bank.group} --topic {bank.topic} --reset-offsets" in said


async def test_a_member_waits_for_what_stands_behind_a_transaction_that_is_open(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not lost, only not to be read yet."""
    monkeypatch.setattr("keygrouping_app.kafka.changelog._BEHIND_SECONDS", 1.0)
    async with serving(bank.app()):
        await bank.pay(1)
        await bank.reach(1)
        foreign = AIOKafkaProducer(
            bootstrap_servers=bank.cluster.bootstrap_servers,
            transactional_id=bank.group,
            transaction_timeout_ms=600_000,
        )
        await foreign.start()
        await foreign.begin_transaction()
        await foreign.send_and_wait(bank.changelog, b"1", b"foreign", 0)
        await bank.pay(2)
        await bank.reach(2)
    try:
        async with serving(bank.app()):
            await until(lambda: caplog.text.count("a transaction is open behind offset") >= 2)
            await bank.pay(3)
            await foreign.abort_transaction()
            await bank.reach(3)
    finally:
        await foreign.stop()
    assert await bank.balances() == [b"1", b"3", b"6"]


@pytest.mark.parametrize(
    ("partitions", "settings", "says"),
    [
        (3, {"cleanup.policy": "compact"}, "has 3 partitions, and"),
        (1, {}, "has cleanup.policy=delete, which would delete states: kafka-configs --alter"),
        (
            1,
            {"cleanup.policy": "compact", "max.message.bytes": "1000"},
            "takes 1000 bytes, and parts of states may have 871629: kafka-configs",
        ),
    ],
)
async def test_a_changelog_that_is_not_as_it_has_to_be_is_refused(
    bank: Bank, partitions: int, settings: dict[str, str], says: str
) -> None:
    await bank.cluster.admin.create_topics([NewTopic(bank.changelog, partitions, 1, topic_configs=settings)])
    with pytest.raises(AppError) as refused:
        await prepare(bank.cluster.admin, bank.group, [bank.topic])
    assert says in str(refused.value)


async def test_partitions_that_are_added_end_a_member_that_gets_one(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keygrouping_app.kafka.member._METADATA_MS", 500)
    await bank.pay(1)
    stop = asyncio.Event()
    task = asyncio.create_task(bank.app().serve(stop))
    await bank.reach(1)
    await bank.cluster.admin.create_partitions({bank.topic: NewPartitions(2)})
    with pytest.raises(AppError, match=r"has 1 partitions, and .* has 2: keys have moved"):
        await asyncio.wait_for(task, 120)


async def test_states_are_kept_over_restarts_on_disk_and_of_plain_functions_as_well(bank: Bank) -> None:
    def book(event: Event, account: Account) -> Output:
        account.balance += event.value
        return Output(bank.out, account.balance)

    for number in range(2):
        await bank.pay(1, 1)
        async with serving(bank.app(State(Account, store="disk"), book)):
            await bank.reach(2 * number + 2)
    assert await bank.balances() == [b"1", b"2", b"3", b"4"]
