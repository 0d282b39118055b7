"""Keys that are handed over while a broker refuses what belongs to it: all others go on, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from functools import partial

import pytest
from keygrouping_app import Event, Output, State
from keygrouping_app.kafka import partition, refusals
from keygrouping_app.kafka.changelog import USUAL_BYTES
from keygrouping_app.kafka.overflow import KEPT
from keygrouping_local.ports import free_ports
from keygrouping_service.testing import Cluster, configure, until

from .served import serving
from .test_state_kafka import LONG_AGO, RECENT, Account, Bank, Padded, begun_again, bound, sums

pytestmark = pytest.mark.kafka

LONG = "k" * 3000
"""A key that no topic takes that takes records of 2000 bytes."""


@pytest.fixture
async def bank(cluster: Cluster, topic_prefix: str) -> Bank:
    found = Bank(cluster, topic_prefix)
    await found.create()
    return found


async def both_at_slot(bank: Bank, member: Padded) -> None:
    """A key that is long itself and another one have an event each, and go to the first slot."""
    await bank.pay(1, key=LONG.encode())
    await bank.pay(1, key=b"b")
    await bank.reach(2)
    for key in ("b", LONG):
        await member.order(key, 0)
    await until(lambda: member.is_at(b=0, **{LONG: 0}))


async def test_an_event_that_its_slot_takes_no_more_is_a_dead_letter_and_its_key_goes_on(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    """The bound of the topic of slots was lowered; what is refused only together goes in smaller batches."""
    member = Padded(bank, "ordered")
    async with serving(member.app):
        await bank.pay(1)
        await bank.pay(1, key=b"b")
        await bank.reach(2)
        for key in "ab":
            await member.order(key, 0)
        await until(lambda: member.is_at(a=0, b=0))
        await configure(bank.cluster.admin, f"{bank.group}.{bank.topic}.moved", {**KEPT, "max.message.bytes": "2000"})
        large = [(key, b"%d" % amount + b" " * 3000) for key, amount in ((b"a", 100), (b"b", 200), (b"a", 300))]
        small = [(key, b"1") for key in (b"a", b"b", b"home")] * 100
        await bank.cluster.write(bank.topic, [*small[:60], *large[:2], *small[60:150], large[2], *small[150:]], 0)
        await until(partial(bank.has_letters, 3))
        await bank.reach(302)
        assert await member.is_at(a=0, b=0)
        assert not await member.refused()
    in_order = [*([key, number] for key in "ab" for number in range(1, 102)), *(["home", n] for n in range(1, 101))]
    assert await sums(bank) == in_order
    letters = await bank.cluster.read(bank.dead)
    assert [(each.key, each.value) for each in letters] == large
    for each in letters:
        told = dict(each.headers)
        assert told["keygrouping-reason"] == b"refused_output"
        detail = (told["keygrouping-detail"] or b"").decode()
        assert f"{bank.topic}.moved" in detail
        assert sum("goes to" in line and detail in line and repr(each.key) in line for line in caplog.messages) > 0
    assert len(caplog.messages) < 100


async def test_a_key_of_which_the_end_is_refused_stays_at_its_slot_and_holds_up_no_other(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    changelog, member = bank.changelog_of_a("ordered"), Padded(bank, "ordered")
    async with serving(member.app):
        await both_at_slot(bank, member)
        await bank.pay(1, key=LONG.encode())
        await bank.reach(3)
        await bound(bank, changelog, 2000)
        await member.order(LONG, None)
        await bank.pay(1, 1, key=b"b")
        await bank.reach(5)
        await until(lambda: member.is_at(b=0, **{LONG: 0}))
        await member.order("b", None)
        await until(lambda: member.is_at(**{LONG: 0}))
        await until(lambda: any("stay where they are" in each for each in caplog.messages))
        await bound(bank, changelog, USUAL_BYTES)
        await member.order(LONG, None)
        await until(lambda: member.is_at())
    async with serving(Padded(bank, "ordered").app):
        await bank.pay(1, key=LONG.encode())
        await bank.reach(6)
    assert await sums(bank) == [*(["b", each] for each in (1, 2, 3)), *([LONG, each] for each in (1, 2, 3))]
    assert not await bank.cluster.read(bank.dead)


async def test_a_key_that_was_never_written_at_its_slot_leaves_it_without_an_end(bank: Bank) -> None:
    """So it can go home, which is the way out, even if the slots' changelog takes nothing of it."""
    changelog, member = bank.changelog_of_a("ordered"), Padded(bank, "ordered")
    async with serving(member.app):
        await bank.pay(1, key=LONG.encode())
        await bank.reach(1)
        await bound(bank, changelog, 2000)
        await member.order(LONG, 0)
        await until(lambda: member.is_at(**{LONG: 0}))
        await until(member.refused)
        await member.order(LONG, None)
        await until(lambda: member.is_at())
        await bank.pay(1, key=LONG.encode())
        await bank.reach(2)
    assert await sums(bank) == [[LONG, 1], [LONG, 2]]
    assert not await bank.cluster.read(changelog)
    assert not await bank.cluster.read(bank.dead)


async def test_a_key_whose_answer_home_refuses_waits_and_holds_up_no_other_of_its_slot(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of the input's changelog was lowered: neither the state nor that it stays can be written there."""
    monkeypatch.setattr(refusals, "KNOWN_SECONDS", 3.0)
    (port,) = free_ports(1)
    member, goes_on, runs = Padded(bank, "ordered"), asyncio.Event(), asyncio.Event()

    async def wait(event: Event, account: Account) -> Output:
        account.balance += event.value
        if event.value == 2:
            runs.set()
            await goes_on.wait()
        return Output(bank.out, [str(event.key), account.balance], key=event.key)

    member.app = bank.app(State(Account, moves="ordered"), wait)
    member.app.override({"port": port}, {})
    member.port = port
    async with serving(member.app):
        await both_at_slot(bank, member)
        await bank.pay(2, key=LONG.encode())
        await runs.wait()
        await member.order(LONG, None)
        await until(lambda: member.is_at(b=0))
        await bound(bank, bank.changelog, 2000)
        goes_on.set()
        await bank.pay(1, 1, key=b"b")
        await bank.reach(5)
        await member.order("b", None)
        await until(lambda: member.is_at())
        await until(member.refused)
        await bank.pay(3, key=LONG.encode())
        await bound(bank, bank.changelog, USUAL_BYTES)
        await bank.reach(6)
        await until(lambda: is_not_refused(member))
    assert await sums(bank) == [*(["b", each] for each in (1, 2, 3)), *([LONG, each] for each in (1, 3, 6))]
    assert not await bank.cluster.read(bank.dead)


async def test_hundreds_of_states_that_a_slot_refuses_hold_up_no_other_key_and_the_next_owner_finds_them(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Gaps have room for half as many here."""
    monkeypatch.setattr(partition, "MOST_METADATA", 600)
    monkeypatch.setattr(refusals, "KNOWN_SECONDS", 5.0)
    keys, events = [f"k{number}" for number in range(300)], 5000
    changelog, member = bank.changelog_of_a("ordered"), Padded(bank, "ordered")
    async with serving(member.app):
        for key, amount in [*((key, b"3000") for key in keys), ("large", b"600000")]:
            await bank.cluster.producer.send(bank.topic, amount, key.encode(), 0, LONG_AGO)
        await bank.cluster.producer.flush()
        await bank.pay(1, key=b"b")
        await bank.reach(302)
        await member.order("b", 0)
        await until(lambda: member.is_at(b=0))
        await configure(bank.cluster.admin, changelog, {"cleanup.policy": "compact", **RECENT})
        for key in [*keys, "large"]:
            await member.order(key, 0)
        await until(lambda: are_away(member, 302))
        await bank.pay(*[1, -1] * (events // 2), key=b"b")
        await bank.reach(302 + events)
        await until(member.refused)
    noted = {each.key for each in await bank.cluster.read(changelog) if "keygrouping-at" in dict(each.headers)}
    assert noted == {f"0:{key}".encode() for key in [*keys, "large"]}
    last = Padded(bank, "ordered")
    async with serving(last.app):
        await until(last.refused)
        await bank.pay(-2999, key=b"k7")
        await bank.pay(1, key=b"b")
        await bank.reach(304 + events)
        await last.order("k8", None)
        await until(lambda: are_away(last, 301))
        await configure(bank.cluster.admin, changelog, {"cleanup.policy": "compact"})
        await until(lambda: is_not_refused(last))
        await bank.cluster.write(bank.topic, [(key.encode(), b"1") for key in [*keys, "large"]], 0)
        await bank.reach(605 + events)
    found = defaultdict(list)
    for key, balance in map(json.loads, await bank.balances()):
        found[key].append(balance)
    assert found.pop("b") == [1, *[2, 1] * (events // 2), 2]
    assert found.pop("k7") == [3000, 1, 2]
    assert found.pop("large") == [600_000, 600_001]
    assert dict(found) == {key: [3000, 3001] for key in keys if key != "k7"}
    assert not await bank.cluster.read(bank.dead)
    assert begun_again(caplog) == 0


async def are_away(member: Padded, count: int) -> bool:
    found = (await member.told())["moves"]
    return (found["away"], found["under_way"]) == (count, 0)


async def is_not_refused(member: Padded) -> bool:
    return not await member.refused()
