"""Keys that are handed over between members on Kafka: by the API and by plan."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from keygrouping.app import App, AppError, Event, Output, State
from keygrouping_app.kafka import planner
from keygrouping_app.kafka.moved import prepare_slots
from keygrouping_app.kafka.overflow import KEPT
from keygrouping_app.kafka.partition import Partition
from keygrouping_local.ports import free_ports
from keygrouping_service.testing import Cluster, until

from .served import serving

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("planners")]

PARTITIONS = LANES = 2
FEED = 100
SLOTS = 8
"""That an app creates for two partitions."""
slot_options = {**KEPT, "max.message.bytes": "2000000"}
"""As an app creates them."""


class Shop:
    """An app with a state, and what is told of its members."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster, self.name = cluster, f"{prefix}-group"
        self.topic, self.out, self.dead = f"{prefix}-in", f"{prefix}-out", f"{prefix}-dead"
        self.handled: Counter[tuple[int, str]] = Counter()
        """By member and key."""
        self.written: Counter[str] = Counter()

    def app(self, number: int, port: int, moves: Any, seconds: float = 0.0) -> App:
        app = App(self.name, brokers=self.cluster.bootstrap_servers, dead_letters=self.dead, port=port)

        @app.on(self.topic, state=State(dict, moves=moves), concurrency=LANES)
        async def count(event: Event, counts: dict[str, int]) -> Output:
            counts["n"] = counts.get("n", 0) + 1
            self.handled[number, event.key] += 1
            await asyncio.sleep(seconds)
            return Output(self.out, counts["n"], key=event.key)

        return app

    def calls(self, wanted: str) -> int:
        return sum(count for (_, key), count in self.handled.items() if key == wanted)

    def members(self, key: str) -> set[int]:
        """Those that have handled something of it."""
        return {number for number, name in self.handled if name == key}

    async def write(self, partition: int, *keys: str) -> None:
        self.written.update(keys)
        await self.cluster.write(self.topic, [(key.encode(), b"1") for key in keys], partition)

    async def feed(self, keys: str) -> None:
        """However slow members are to plan, there is something to do."""
        if min(self.written[key] - self.calls(key) for key in keys) < FEED:
            await self.write(0, *keys * FEED)

    async def counts(self) -> list[tuple[str, int]]:
        return [((each.key or b"").decode(), int(each.value or b"0")) for each in await self.cluster.read(self.out)]


@pytest.fixture
async def shop(cluster: Cluster, topic_prefix: str) -> Shop:
    shop = Shop(cluster, topic_prefix)
    await cluster.create(**{shop.topic: 2, shop.out: 1, shop.dead: 1})
    return shop


def asked(port: int, path: str, body: bytes | None = None) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, method="GET" if body is None else "PUT")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def answered(port: int, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Once all states are restored, until when a member can't tell of a key that it doesn't know, and its event loop
    has a moment."""
    found: list[tuple[int, str]] = []

    async def is_known() -> bool:
        found[:] = [await asyncio.to_thread(asked, port, path, body)]
        return found[0][0] != HTTPStatus.SERVICE_UNAVAILABLE

    await until(is_known)
    return found[0]


async def told(port: int) -> dict[str, Any]:
    _, body = await answered(port, "/keys")
    found: dict[str, Any] = json.loads(body)["handlers"][0]
    return found


async def until_shared(*ports: int, slots: int = SLOTS) -> None:
    """Until each partition and each slot is at one member, and none has more than its share: members come one by one,
    and what is handled before the last of them has come says nothing of plans."""

    async def are_shared() -> bool:
        held = [[name.startswith("slot") for name in (await told(port))["gaps"]] for port in ports]
        counts = [(PARTITIONS, [each.count(False) for each in held]), (slots, [each.count(True) for each in held])]
        return all(sum(each) == there and max(each) - min(each) <= 1 for there, each in counts)

    await until(are_shared)


def first_slot(handler: dict[str, Any]) -> int:
    """Of those of a member."""
    return min(int(name.split()[1]) for name in handler["gaps"] if name.startswith("slot"))


async def test_a_key_goes_where_it_is_ordered_and_home_again_with_its_state(shop: Shop) -> None:
    ports = free_ports(2)
    async with serving(shop.app(0, ports[0], "ordered")), serving(shop.app(1, ports[1], "ordered")):

        async def is_shared() -> bool:
            """Whether each has handled something: the first has all partitions until the second is there."""
            await shop.write(0, "a")
            await shop.write(1, "a")
            return {number for number, _ in shop.handled} == {0, 1}

        await until(is_shared)
        await until_shared(*ports)
        one, other = [first_slot(await told(port)) for port in ports]
        await shop.write(0, "b")
        await until(lambda: shop.calls("b") == 1)

        async def ordered(slot: int | None) -> int:
            """The owner of partition 0, which took the order."""
            body = json.dumps({"slot": slot}).encode()
            for _ in range(100):
                for number, port in enumerate(ports):
                    status, _ = await asyncio.to_thread(asked, port, "/keys/b/slot", body)
                    if status == HTTPStatus.ACCEPTED:
                        return number
                await asyncio.sleep(0.1)
            raise AssertionError

        async def rests(owner: int, *keys: dict[str, Any]) -> None:
            async def does() -> bool:
                found = (await told(ports[owner]))["moves"]
                return not found["under_way"] and found["keys"] == list(keys)

            await until(does)

        places = [one, other, other, None, None, other, None]
        for number, slot in enumerate(places, 2):
            owner = await ordered(slot)
            await rests(owner, *([] if slot is None else [{"key": "b", "partition": 0, "slot": slot}]))
            await shop.write(0, "b")
            await until(lambda number=number: shop.calls("b") == number)  # type: ignore[misc]
        await until_read(shop, sum(shop.handled.values()))
        counts = [n for key, n in await shop.counts() if key == "b"]
        assert counts == list(range(1, len(places) + 2))
        assert {number for number, key in shop.handled if key == "b"} == {0, 1}, "slots are on both members"
        assert (await told(ports[owner]))["moves"]["done"] == 5, "where it is already it does not go"


async def test_what_runs_of_a_key_that_is_to_go_keeps_nothing_busy(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where commits wait for nothing."""
    looks = 0
    step = Partition.step

    def counted(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return step(*given)

    monkeypatch.setattr(Partition, "step", counted)
    (port,) = free_ports(1)
    app = App(shop.name, brokers=shop.cluster.bootstrap_servers, dead_letters=shop.dead, port=port, commit_interval=0)
    hangs, began = asyncio.Event(), asyncio.Event()

    @app.on(shop.topic, state=State(dict, moves="ordered"))
    async def count(event: Event, counts: dict[str, int]) -> Output:
        counts["n"] = counts.get("n", 0) + 1
        if counts["n"] > 1:
            began.set()
            await hangs.wait()
        return Output(shop.out, counts["n"], key=event.key)

    async with serving(app):
        await shop.write(0, "a")
        await until_read(shop, 1)
        await shop.write(0, "a")
        await asyncio.wait_for(began.wait(), 60)
        status, _ = await answered(port, "/keys/a/slot", b'{"slot": 1}')
        assert status == HTTPStatus.ACCEPTED
        before, since = looks, time.monotonic()
        await asyncio.sleep(1)
        await until(lambda: looks - before > 10)
        assert looks - before <= 110 * (time.monotonic() - since)
        hangs.set()
        await until_read(shop, 2)
        await shop.write(0, "a")
        assert [n for _, n in await until_read(shop, 3)] == [1, 2, 3]


async def until_counted(shop: Shop) -> None:
    """Until all that was written is handled, of each key in order and each event once."""
    read = await until_read(shop, shop.written.total())
    for key, written in shop.written.items():
        assert [n for name, n in read if name == key] == list(range(1, written + 1))


async def until_read(shop: Shop, count: int) -> list[tuple[str, int]]:
    async def is_read() -> bool:
        return len(await shop.counts()) == count

    await until(is_read)
    return await shop.counts()


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/keys/nobody/slot", b'{"slot": 1}', 404, "no input partition of this member has a state of this key"),
        ("/keys/a/slot", b'{"slot": 8}', 422, "there are slots 0 to 7"),
        ("/keys/a/slot", b'{"slot": -1}', 422, "there are slots 0 to 7"),
        ("/keys/a/slot", b'{"slot": true}', 422, "NUMBER"),
        ("/keys/a/slot", b"slot", 422, "NUMBER"),
        ("/keys/a/slot?to=1", b'{"slot": 1}', 422, "no query"),
        ("/keys//slot", b'{"slot": 1}', 404, "/grouping, /keys/KEY/slot"),
        ("/state/a", b'{"slot": 1}', 404, "/keys/KEY/slot"),
        ("/keys/a/slot", b"x" * 20_000, 411, "a body of at most"),
    ],
)
async def test_what_can_t_be_ordered_is_told(shop: Shop, path: str, body: bytes, status: int, says: str) -> None:
    (port,) = free_ports(1)
    async with serving(shop.app(0, port, "ordered")):
        await shop.write(0, "a")
        await until_read(shop, 1)
        found, text = await answered(port, path, body)
    assert (found, says in text) == (status, True), text


async def test_keys_of_a_member_with_too_much_to_do_go_to_others_by_plan(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two keys of one partition fill the lanes of its owner, while the other member has nothing to do."""
    monkeypatch.setattr(planner, "_SPAN", 4.0)
    caplog.set_level(logging.INFO, "keygrouping_app.kafka.planner")
    ports = free_ports(2)

    def one_has_moved() -> bool:
        return sorted(len(shop.members(key)) for key in "ab") == [1, 2]

    async def moves() -> bool:
        await shop.feed("ab")
        return one_has_moved()

    async with (
        serving(shop.app(0, ports[0], "mixed", 0.05)),
        serving(shop.app(1, ports[1], "mixed", 0.05)),
    ):
        await until_shared(*ports)
        await until(moves)
        while not await as_promised(shop, ports):
            await shop.feed("ab")
        await until_counted(shop)
    assert one_has_moved()
    found = plans(caplog)
    assert found
    assert all("1 keys" in line and "imbalance 2.0" in line for line in found)


async def as_promised(shop: Shop, ports: Sequence[int]) -> bool:
    """Whether both tell of one plan, and of work as it has promised and as it is, by what each has handled."""
    before, since = shop.handled.copy(), time.monotonic()
    while time.monotonic() < since + 2 * planner._SPAN:
        await shop.feed("ab")
        await asyncio.sleep(0.1)
    handled = shop.handled - before
    loads = [sum(count for (number, _), count in handled.items() if number == each) for each in range(len(ports))]
    told_of = [(await told(port))["moves"] for port in ports]
    really = max(loads) * len(loads) / sum(loads)
    expected = {"before": pytest.approx(2.0, abs=0.05), "after": pytest.approx(1.0, abs=0.05)}
    return really < 1.1 and all(
        each["plan"]["keys"] == 1 and each["imbalance"] == {**expected, "now": pytest.approx(really, abs=0.1)}
        for each in told_of
    )


def plans(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Those by which keys go: one that is slow to go may be in several."""
    return [line for line in caplog.messages if "are to be handed over" in line]


@pytest.mark.parametrize(("slots", "keys", "able"), [(1, "ab", 2), (4, "abc", 3)])
async def test_a_member_beyond_the_partitions_gets_keys_if_it_has_slots_and_hinders_nobody_otherwise(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, slots: int, keys: str, able: int
) -> None:
    """All keys are of one partition, and each of them can fill a lane."""
    monkeypatch.setattr(planner, "_SPAN", 4.0)
    await shop.cluster.admin.create_topics(
        [NewTopic(f"{shop.name}.{shop.topic}.moved", slots, 1, topic_configs=slot_options)]
    )
    ports = free_ports(3)

    async def are_at_work() -> bool:
        await shop.feed(keys)
        return len({number for number, _ in shop.handled}) >= able

    async with AsyncExitStack() as members:
        for number, port in enumerate(ports):
            await members.enter_async_context(serving(shop.app(number, port, "mixed", 0.05)))
        await until_shared(*ports, slots=slots)
        await until(are_at_work)
        await until_counted(shop)
    assert len({number for number, _ in shop.handled}) == able


async def choose(port: int, grouping: str, topic: str) -> None:
    """Tells one member, when it has begun."""
    body = json.dumps({"grouping": grouping}).encode()

    async def takes_it() -> bool:
        status, found = await answered(port, "/grouping", body)
        assert status in (HTTPStatus.ACCEPTED, HTTPStatus.CONFLICT), found
        return status == HTTPStatus.ACCEPTED

    await until(takes_it)
    await follows(port, grouping, topic)


async def follows(port: int, grouping: str, topic: str) -> None:
    async def does() -> bool:
        _, found = await answered(port, "/grouping")
        groupings: list[dict[str, str]] = json.loads(found)["groupings"]
        return groupings == [{"topic": topic, "grouping": grouping, "declared": "mixed"}]

    await until(does)


async def test_all_members_plan_by_the_grouping_that_one_of_them_is_told_while_they_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two keys of one partition fill the lanes of its owner: nothing moves until a grouping plans again."""
    monkeypatch.setattr(planner, "_SPAN", 4.0)
    caplog.set_level(logging.INFO, "keygrouping_app.kafka.planner")
    ports = free_ports(3)

    async def are_planned() -> bool:
        await shop.feed("ab")
        return bool(plans(caplog))

    async with (
        serving(shop.app(0, ports[0], "mixed", 0.05)),
        serving(shop.app(1, ports[1], "mixed", 0.05)),
    ):
        await choose(ports[1], "ordered", shop.topic)
        await follows(ports[0], "ordered", shop.topic)
        await shop.write(0, *"ab" * 200)
        await until_counted(shop)
        assert plans(caplog) == []
        assert [(await told(port))["moves"]["away"] for port in ports[:2]] == [0, 0]
        await choose(ports[0], "llfd", shop.topic)
        await follows(ports[1], "llfd", shop.topic)
        await until(are_planned)
        await until_counted(shop)
        found = plans(caplog)
        async with serving(shop.app(2, ports[2], "mixed", 0.05)):
            await follows(ports[2], "llfd", shop.topic)
        await until_counted(shop)
    assert all("1 keys" in line and "handed over by llfd" in line for line in found)


async def test_a_member_without_moves_does_not_begin_with_keys_that_are_away(shop: Shop) -> None:
    (port,) = free_ports(1)
    async with serving(shop.app(0, port, "ordered")):
        await shop.write(0, "a")
        await until_read(shop, 1)
        assert (await answered(port, "/keys/a/slot", b'{"slot": 1}'))[0] == HTTPStatus.ACCEPTED

        async def is_away() -> bool:
            found = (await told(port))["moves"]
            return bool(found["away"]) and not found["under_way"]

        await until(is_away)
    with pytest.raises(AppError, match=r"1 keys are at slots, and .* has no State"):
        await asyncio.wait_for(shop.app(0, port, None).serve(asyncio.Event()), 120)


async def test_a_topic_of_slots_that_would_lose_events_is_refused(shop: Shop) -> None:
    settings = {"retention.ms": "1000", "max.message.bytes": "100000"}
    await shop.cluster.admin.create_topics([NewTopic(f"{shop.name}.{shop.topic}.moved", 2, 1, topic_configs=settings)])
    app = shop.app(0, 0, "ordered")
    with pytest.raises(AppError) as refused:
        await prepare_slots(shop.cluster.admin, app.settings(), app.handlers)
    assert "retention.ms=1000" in str(refused.value)
    assert "takes 100000 bytes" in str(refused.value)
