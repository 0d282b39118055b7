"""Outputs that a broker refuses for good make dead letters of their events, and everything else goes on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiokafka.protocol.admin import CreateAclsRequest
from keygrouping_app import App, Event, Output
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.lanes import LoopLanes
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.records.record import Record
from keygrouping_service.testing import Cluster, until

from .served import serving

pytestmark = pytest.mark.kafka

TOPIC, LITERAL = 2, 3
ALL, WRITE = 2, 4
DENY, ALLOW = 2, 3
"""Numbers of Kafka's protocol, for ACLs."""
LARGEST = 2000
COUNT = 60
LARGE = (7, 8, 31)
"""Of the events of partition 0, those of which the output is wrong."""
ONCE = pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])


class Streams:
    """An app's topics. Of `small` no batch may be larger than LARGEST bytes."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.source, self.out, self.small = f"{prefix}-in", f"{prefix}-out", f"{prefix}-small"
        self.dead, self.group = f"{prefix}-dead", f"{prefix}-group"

    async def create(self) -> None:
        await self.cluster.create(**{self.source: 2, self.out: 1, self.dead: 1})
        await self.cluster.create_small(self.small, LARGEST)

    def app(self) -> App:
        return App(self.group, brokers=self.cluster.bootstrap_servers, dead_letters=self.dead)

    async def values(self, topic: str) -> list[bytes]:
        return [record.value or b"" for record in await self.cluster.read(topic)]

    async def letters(self) -> dict[bytes, dict[str, bytes]]:
        """The headers of dead letters, by their values."""
        return {record.value or b"": headers(record) for record in await self.cluster.read(self.dead)}

    async def all_ended(self) -> bool:
        found = await self.cluster.committed(self.group, self.source)
        return sum(each.offset or 0 for each in found.values()) == 2 * COUNT


def headers(record: Record) -> dict[str, bytes]:
    return {name: value or b"" for name, value in record.headers}


@pytest.fixture
async def streams(cluster: Cluster, topic_prefix: str) -> Streams:
    found = Streams(cluster, topic_prefix)
    await found.create()
    return found


async def write(streams: Streams) -> None:
    """The values of partition 1 are those of partition 0 and 1000."""
    for partition in (0, 1):
        rows = [(b"k%d" % (n % 7), b"%d" % (1000 * partition + n)) for n in range(COUNT)]
        await streams.cluster.write(streams.source, rows, partition)


@ONCE
async def test_an_output_that_is_too_large_for_its_topic_holds_up_nothing(
    streams: Streams, exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = streams.app()

    @app.on(streams.source, exactly_once=exactly_once)
    async def work(event: Event) -> list[Output]:
        padding = "x" * (LARGEST + 500 if event.value in LARGE else 50)
        return [Output(streams.out, event.value), Output(streams.small, [event.value, padding], key=event.key)]

    await write(streams)
    with caplog.at_level(logging.WARNING):
        async with serving(app):
            await until(streams.all_ended, timeout=120)
    letters = await streams.letters()
    assert letters.keys() == {b"%d" % n for n in LARGE}
    assert {each["keygrouping-reason"] for each in letters.values()} == {b"refused_output"}
    assert f"{streams.small!r}: [Error 10]".encode() in letters[b"7"]["keygrouping-detail"]
    told = [each.getMessage() for each in caplog.records if "goes to" in each.getMessage()]
    assert len(told) == len(LARGE)
    assert all("refused_output" in each for each in told)
    good = {1000 * partition + n for partition in (0, 1) for n in range(COUNT)} - set(LARGE)
    written = Counter(int(value[1:].split(b",")[0]) for value in await streams.values(streams.small))
    beside = Counter(map(int, await streams.values(streams.out)))
    if exactly_once:
        assert written == beside == Counter(good)
    else:
        assert written.keys() == good
        assert beside.keys() >= good


async def test_what_is_refused_is_counted(streams: Streams) -> None:
    app = streams.app()

    @app.on(streams.source, batch=True)
    async def work(events: list[Event]) -> list[Output]:
        return [Output(streams.small, "x" * 3000) for event in events if event.value == LARGE[0]]

    (handler,) = app.handlers
    runner = Runner(app.settings(), {streams.source: (handler, lambda on_end: LoopLanes(handler, work, on_end))})
    stop = asyncio.Event()
    task = asyncio.create_task(runner.run(stop))
    await write(streams)
    try:
        await until(streams.all_ended, timeout=120)
    finally:
        stop.set()
        await task
    letters = await streams.letters()
    assert b"7" in letters
    (lanes,) = runner.lanes
    assert lanes.tally.dead["refused_output"] == len(letters) == sum(lanes.tally.dead.values())
    assert lanes.tally.ended == 2 * COUNT


@ONCE
async def test_a_record_without_key_for_a_compacted_topic_is_refused(
    streams: Streams, cluster: Cluster, topic_prefix: str, exactly_once: bool
) -> None:
    app, compacted = streams.app(), f"{topic_prefix}-compacted"
    await cluster.create_compacted(compacted)

    @app.on(streams.source, exactly_once=exactly_once)
    async def work(event: Event) -> Output:
        return Output(compacted, event.value, key=None if event.value in LARGE else str(event.value))

    await write(streams)
    async with serving(app):
        await until(streams.all_ended, timeout=120)
    assert (await streams.letters()).keys() == {b"%d" % n for n in LARGE}
    assert len(set(await streams.values(compacted))) == 2 * COUNT - len(LARGE)


async def check_letters(streams: Streams, detail: bytes) -> None:
    """The large ones are dead letters for this reason, all others are written."""
    letters = await streams.letters()
    assert letters.keys() == {b"%d" % n for n in LARGE}
    assert detail in letters[b"7"]["keygrouping-detail"]
    assert len(set(await streams.values(streams.out))) == 2 * COUNT - len(LARGE)


@ONCE
async def test_a_partition_that_does_not_exist_is_refused(streams: Streams, exactly_once: bool) -> None:
    app = streams.app()

    @app.on(streams.source, exactly_once=exactly_once)
    async def work(event: Event) -> Output:
        return Output(streams.out, event.value, partition=99 if event.value in LARGE else 0)

    await write(streams)
    async with serving(app):
        await until(streams.all_ended, timeout=120)
    await check_letters(streams, b"has no partition 99")


async def test_a_topic_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedBroker(tmp_path, properties=properties) as broker:
        async with Cluster(broker.bootstrap_servers) as cluster:
            for mode, exactly_once in (("least", False), ("once", True)):
                await check_forbidden(Streams(cluster, mode), exactly_once)


async def check_forbidden(streams: Streams, exactly_once: bool) -> None:
    await streams.create()
    for operation, verdict in ((ALL, ALLOW), (WRITE, DENY)):
        given = (TOPIC, streams.small, LITERAL, "User:ANONYMOUS", "*", operation, verdict)
        await send_request(streams.cluster.admin, CreateAclsRequest(*given))
    app = streams.app()

    @app.on(streams.source, exactly_once=exactly_once)
    async def work(event: Event) -> Output:
        return Output(streams.small if event.value in LARGE else streams.out, event.value)

    await write(streams)
    async with serving(app):
        await until(streams.all_ended, timeout=120)
    await check_letters(streams, b"TopicAuthorizationFailedError")
    assert await streams.values(streams.small) == []


async def test_a_dead_letter_that_is_too_large_for_its_topic_comes_without_its_value(
    streams: Streams, cluster: Cluster, topic_prefix: str
) -> None:
    streams.dead = f"{topic_prefix}-small-dead"
    await cluster.create_small(streams.dead, LARGEST)
    app = streams.app()

    @app.on(streams.source, retries=0)
    async def work(event: Event) -> None:
        if isinstance(event.value, str):
            raise ValueError("no texts")

    await cluster.write(streams.source, [(b"a", b'"%s"' % (b"x" * 3000)), (None, b'"%s"' % (b"y" * 3000))])
    await cluster.write(streams.source, [(b"b", b"1")] * (2 * COUNT - 2))
    async with serving(app):
        await until(streams.all_ended, timeout=120)
    letters = await cluster.read(streams.dead)
    assert Counter((each.key, each.value) for each in letters) == {(b"a", None): 1, (None, b""): 1}
    assert all("keygrouping-truncated" in headers(each) for each in letters)


async def test_a_state_is_as_if_the_event_whose_output_is_refused_had_not_been(streams: Streams) -> None:
    app = streams.app()

    @app.on(streams.source, state=dict)
    async def work(event: Event, state: dict[str, int]) -> Output:
        state["sum"] = state.get("sum", 0) + event.value
        padding = "x" * (LARGEST if event.value in LARGE else 0)
        return Output(streams.small, [event.value, state["sum"], padding], key=event.key)

    await write(streams)
    async with serving(app):
        await until(streams.all_ended, timeout=120)
    assert (await streams.letters()).keys() == {b"%d" % n for n in LARGE}
    sums: Counter[bytes] = Counter()
    wanted = []
    for partition in (0, 1):
        sums.clear()
        for n in range(COUNT):
            if (value := 1000 * partition + n) not in LARGE:
                sums[b"k%d" % (n % 7)] += value
                wanted.append(b'[%d,%d,""]' % (value, sums[b"k%d" % (n % 7)]))
    assert Counter(await streams.values(streams.small)) == Counter(wanted)


async def test_outputs_that_no_broker_would_take_are_dead_letters_at_once() -> None:
    app = App("billing")
    wrong = {
        "topic": Output("no topic", 1),
        "nothing": Output("out"),
        "headers": Output("out", 1, headers=[("a", "text")]),  # type: ignore[list-item]
        "header": Output("out", 1, headers=[3]),  # type: ignore[list-item]
        "partition": Output("out", 1, partition=-1),
        "time": Output("out", 1, time=1 << 63),
    }

    @app.on("orders")
    async def work(event: Event) -> Output:
        return wrong[event.key]

    tested = await app.test([Event.of("orders", 1, key=key) for key in wrong])
    assert {event.key: failure.reason for event, failure in tested.dead} == dict.fromkeys(wrong, "invalid_output")


async def test_a_key_that_is_none_is_a_dead_letter() -> None:
    app = App("billing")

    def key(event: Event) -> Any:
        return event.value

    @app.on("orders", key=key)
    async def work(event: Event) -> None: ...

    tested = await app.test([Event.of("orders", ["a list"]), Event.of("orders", "a")])
    assert [failure.reason for _, failure in tested.dead] == ["failed"]
