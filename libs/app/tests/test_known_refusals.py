"""What members have learned of refused states, on several partitions and slots, while keys are handed over.

The oracle shares no code with the app: it goes once through what was written, and reads the rest from the broker.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pytest
from keygrouping_app import App, Event, Output, State
from keygrouping_app.kafka import refusals
from keygrouping_app.kafka.changelog import USUAL_BYTES
from keygrouping_local.ports import free_ports
from keygrouping_service.testing import Cluster, until

from .served import serving
from .test_moves_kafka import answered, asked
from .test_state_kafka import Bank, begun_again, bound

pytestmark = pytest.mark.kafka

PARTITIONS, SLOTS = 4, 8
BOUND, SMALL, LARGE = 2000, 100, 3000
"""Bytes of a record that changelogs take from some moment on, and of states."""
KEYS = [f"{partition}-{number}" for partition in range(PARTITIONS) for number in range(5)]
"""With the partitions that they are of."""


@dataclass
class Chain:
    """Whoever leaves one of a key's events out, has one twice or in another order, has another digest."""

    count: int = 0
    digest: str = ""
    note: str = ""

    def add(self, number: int, size: int) -> None:
        self.count += 1
        self.digest = hashlib.sha256(f"{self.digest} {number}".encode()).hexdigest()[:16]
        self.note = "x" * size


@dataclass(frozen=True)
class Written:
    number: int
    key: str
    size: int


class Site:
    """An app, its members, and what was written for it."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.changelogs = [bank.changelog, bank.changelog_of_a("ordered")]
        self.written: list[Written] = []
        self.ports: list[int] = []

    def app(self) -> App:
        (port,) = free_ports(1)
        self.ports.append(port)
        bank = self.bank
        app = App(bank.group, brokers=bank.cluster.bootstrap_servers, dead_letters=bank.dead, port=port)

        @app.on(bank.topic, state=State(Chain, moves="ordered"))
        async def work(event: Event, chain: Chain) -> Output:
            chain.add(event.value["number"], event.value["size"])
            return Output(bank.out, [event.value["number"], chain.count, chain.digest], key=event.key)

        return app

    async def write(self, *events: tuple[str, int]) -> None:
        """Events of keys that make their states so large."""
        for key, size in events:
            one = Written(len(self.written), key, size)
            self.written.append(one)
            value = json.dumps({"number": one.number, "size": size}).encode()
            await self.bank.cluster.producer.send(self.bank.topic, value, key.encode(), int(key[0]))
        await self.bank.cluster.producer.flush()

    async def bound(self, largest: int) -> None:
        for changelog in self.changelogs:
            await bound(self.bank, changelog, largest)

    async def order(self, key: str, slot: int | None) -> bool:
        """Has a key go there; whether a member has taken the order."""
        body = json.dumps({"slot": slot}).encode()
        told = [(await asyncio.to_thread(asked, port, f"/keys/{key}/slot", body))[0] for port in [*self.ports]]
        assert set(told) <= {202, 404, 409, 503}
        return 202 in told

    async def moves(self) -> list[Any]:
        """What members tell of keys that are not at home."""
        told = [json.loads((await answered(port, "/keys"))[1])["handlers"][0] for port in self.ports]
        return [each["moves"] for each in told]

    async def is_at(self, **slots: int) -> bool:
        return {each["key"]: each["slot"] for told in await self.moves() for each in told["keys"]} == slots

    async def is_written(self) -> bool:
        """Whether all keys have arrived, and all states are written, also those that were the last to go to a slot."""
        if await self.is_refused() or any(each["under_way"] for each in await self.moves()):
            return False
        slots = f"{self.bank.group}.{self.bank.topic}.moved"
        committed = await self.bank.cluster.admin.list_consumer_group_offsets(self.bank.group)
        ended = {at.partition: found.offset for at, found in committed.items() if at.topic == slots}
        return all(each.offset < ended.get(each.partition, 0) for each in await self.bank.cluster.read(slots))

    async def is_refused(self) -> bool:
        told = [json.loads((await answered(port, "/keys"))[1])["handlers"][0] for port in self.ports]
        return any(each["refused"] for each in told)

    async def is_done(self) -> bool:
        """Whether each event has ended in one way or the other."""
        handled, letters = await self.bank.cluster.read(self.bank.out), await self.bank.cluster.read(self.bank.dead)
        return len(handled) + len(letters) >= len(self.written)

    async def dead(self) -> dict[int, bytes]:
        """The numbers of events that are dead letters, with the record of a state that is told to be refused."""
        letters = await self.bank.cluster.read(self.bank.dead)
        headers = [dict(each.headers) for each in letters]
        assert {each["keygrouping-reason"] for each in headers} <= {b"refused_state"}
        told = {
            json.loads(letter.value or b"")["number"]: each["keygrouping-detail"] or b""
            for letter, each in zip(letters, headers, strict=True)
        }
        assert len(told) == len(letters)
        return told

    async def states(self) -> dict[str, Any]:
        """What changelogs have of keys: of each in one place."""
        found: dict[str, Any] = {}
        for changelog in self.changelogs:
            read = await self.bank.cluster.read(changelog)
            last = {(each.partition, each.key or b""): each for each in read}
            for (_, key), each in last.items():
                if each.value and "keygrouping-place" not in dict(each.headers):
                    name = key.decode().split(":")[-1]
                    assert name not in found, "two states of a key"
                    found[name] = json.loads(each.value)
        return found

    async def check(self, bounded: int) -> None:
        """Each event has ended once, in order; `bounded`: the first that was written when changelogs were bounded."""
        dead = await self.dead()
        handled: defaultdict[str, list[list[Any]]] = defaultdict(list)
        for output in await self.bank.cluster.read(self.bank.out):
            handled[(output.key or b"").decode()].append(json.loads(output.value or b""))
        ended = sorted([*dead, *(number for each in handled.values() for number, *_ in each)])
        assert ended == list(range(len(self.written)))
        chains: defaultdict[str, Chain] = defaultdict(Chain)
        for key in {each.key for each in self.written}:
            told = []
            for each in [each for each in self.written if each.key == key and each.number not in dead]:
                chains[key].add(each.number, each.size)
                told.append([each.number, chains[key].count, chains[key].digest])
            assert handled[key] == told
            self._check_dead([each for each in self.written if each.key == key], dead, bounded)
        assert await self.states() == {key: asdict(chain) for key, chain in chains.items() if chain.count}

    def _check_dead(self, mine: Sequence[Written], dead: Mapping[int, bytes], bounded: int) -> None:
        """Of a key's events in a transaction all are dead letters whose result is refused: that of the last.

        Between them may be others, which had been refused before that, and were not by the time they came once more.
        """
        last = {dead[each.number]: each for each in mine if each.number in dead}
        assert all(each.size == LARGE and each.number >= bounded for each in last.values())


@pytest.fixture
async def site(cluster: Cluster, topic_prefix: str) -> AsyncIterator[Site]:
    bank = Bank(cluster, topic_prefix)
    await bank.create(PARTITIONS)
    yield Site(bank)


async def test_all_partitions_and_slots_know_what_one_of_them_has_learned(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One begins again, once; a state that comes to a slot and is refused there teaches all slots."""
    monkeypatch.setattr(refusals, "KNOWN_SECONDS", 3600.0)
    async with serving(site.app()):
        await site.write(*((key, SMALL) for key in KEYS), ("0-3", LARGE), ("1-1", LARGE))
        await until(site.is_done)
        await site.order("2-0", 1)
        await site.order("3-0", 2)
        await until(partial(site.is_at, **{"2-0": 1, "3-0": 2}))
        await site.bound(BOUND)
        bounded = len(site.written)
        await site.write(("0-1", LARGE))
        await until(site.is_done)
        assert begun_again(caplog) == 1
        for key in ("0-0", "0-1", "0-2", "1-0", "1-1", "2-1", "3-1"):
            await site.write((key, LARGE), (key, SMALL), (key, LARGE))
        await until(site.is_done)
        assert begun_again(caplog) == 1, "the others have learned of it"
        await site.order("0-3", 0)
        await until(partial(site.is_at, **{"2-0": 1, "3-0": 2, "0-3": 0}))
        await until(site.is_refused)
        for key in ("0-3", "2-0", "3-0"):
            await site.write((key, LARGE))
        await until(site.is_done)
        assert begun_again(caplog) == 1, "the state that came has told all slots"
        await site.order("0-3", None)
        await site.write(("0-3", SMALL), ("0-3", LARGE), *((key, SMALL) for key in KEYS))
        await until(site.is_done)
        assert begun_again(caplog) == 1
        await site.bound(USUAL_BYTES)
        await until(site.is_written)
    await site.check(bounded)


@pytest.mark.parametrize("seed", [1, 2])
async def test_states_are_exact_while_members_learn_what_is_refused_and_keys_are_handed_over(
    site: Site, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What is known is forgotten every two seconds, and one member ends and leaves what it had to the other."""
    monkeypatch.setattr(refusals, "KNOWN_SECONDS", 2.0)
    chance = random.Random(seed)
    async with serving(site.app()), AsyncExitStack() as second:
        await second.enter_async_context(serving(site.app()))
        await site.write(*((key, chance.choice([SMALL, LARGE])) for key in KEYS * 2))
        await until(site.is_done)
        await site.bound(BOUND)
        bounded = len(site.written)
        orders = asyncio.create_task(keep_moving(site, chance))
        for number in range(40):
            if number == 25:
                site.ports.pop()
                await second.aclose()
            sizes = [LARGE if chance.random() < 0.15 else SMALL for _ in range(15)]
            await site.write(*((chance.choice(KEYS), size) for size in sizes))
            await asyncio.sleep(chance.choice([0, 0, 0.1, 0.5]))
        await until(site.is_done)
        orders.cancel()
        await site.bound(USUAL_BYTES)
        await until(site.is_written)
        assert sum(each["done"] for each in await site.moves()) > 10
    await site.check(bounded)


async def keep_moving(site: Site, chance: random.Random) -> None:
    while True:
        await site.order(chance.choice(KEYS), chance.choice([None, *range(SLOTS)]))
