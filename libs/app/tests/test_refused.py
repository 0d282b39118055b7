"""Outputs that a broker refuses for good make dead letters of their events, and everything else goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest
from keygrouping_app import App, Event, Output
from keygrouping_app.events import Outgoing
from keygrouping_app.kafka import topics, transactions, writing
from keygrouping_app.kafka.clients import new_producer
from keygrouping_app.kafka.redriving import Redriving
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.redrive import Choice
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.records.record import Record
from keygrouping_service.testing import Cluster, configure, until

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
            await until(streams.all_ended)
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
        await until(streams.all_ended)
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
        await until(streams.all_ended)
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
        await until(streams.all_ended)
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
        await until(streams.all_ended)
    await check_letters(streams, b"TopicAuthorizationFailedError")
    assert await streams.values(streams.small) == []


async def test_a_changelog_that_may_not_be_written_is_told_of_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedBroker(tmp_path, properties=properties) as broker:
        async with Cluster(broker.bootstrap_servers) as cluster:
            streams = Streams(cluster, "state")
            await streams.create()
            app = streams.app()

            @app.on(streams.source, state=dict)
            async def work(_: Event, state: dict[str, int]) -> Output:
                state["count"] = state.get("count", 0) + 1
                return Output(streams.out, state["count"])

            changelog = f"{streams.group}.{streams.source}.states"
            given = [
                (TOPIC, changelog, LITERAL, "User:ANONYMOUS", "*", *each) for each in ((ALL, ALLOW), (WRITE, DENY))
            ]
            async with serving(app):
                await cluster.write(streams.source, [(b"k", b"1")])
                await until(partial(has_value, streams, streams.out, b"1"))
                for each in given:
                    await send_request(cluster.admin, CreateAclsRequest(*each))
                await cluster.write(streams.source, [(b"k", b"1")])
                await until(lambda: "[0]: nothing of it is committed, as records for" in caplog.text)
                assert f"{changelog} are refused: TopicAuthorizationFailedError" in caplog.text
                await asyncio.sleep(3)
                assert caplog.text.count("nothing of it is committed") == 1
                assert "never retrieved" not in caplog.text
                await send_request(cluster.admin, DeleteAclsRequest(*given[1]))
                await until(partial(has_value, streams, streams.out, b"2"))
            assert await streams.values(streams.dead) == []
            assert await streams.values(streams.out) == [b"1", b"2"]


@pytest.mark.parametrize("how", ["at-least-once", "exactly-once", "state"])
async def test_an_output_for_a_topic_that_does_not_exist_is_refused_and_delays_others_once(
    streams: Streams, cluster: Cluster, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the call is lost: its event is a dead letter that names the topic and what to do.

    What one producer has found is known to all: to the next one of a partition, and to those of other partitions.
    """
    monkeypatch.setattr(topics, "MISSING_SECONDS", 1.0)
    waited = watched(monkeypatch)
    app, nowhere = streams.app(), f"{streams.out}-misspelled"

    async def work(event: Event) -> Output:
        return Output(nowhere if event.value in LARGE else streams.out, event.value)

    async def with_state(event: Event, state: dict[str, int]) -> Output:
        state["events"] = state.get("events", 0) + 1
        return await work(event)

    if how == "state":
        app.on(streams.source, state=dict)(with_state)
    else:
        app.on(streams.source, exactly_once=how == "exactly-once")(work)

    await write(streams)
    async with serving(app):
        await until(streams.all_ended)
        await check_letters(streams, f"{nowhere!r}: MissingTopicError: it does not exist: create it".encode())
        await cluster.write(streams.source, [(b"k", b"%d" % LARGE[0])], 1)
        await until(lambda: letters_of_all(streams, len(LARGE) + 1))
        assert waited == [nowhere]
        await cluster.create(**{nowhere: 1})
        await cluster.write(streams.source, [(b"k", b"%d" % LARGE[1])], 0)
        await until(lambda: has_value(streams, nowhere, b"%d" % LARGE[1]))


async def letters_of_all(streams: Streams, count: int) -> bool:
    return len(await streams.values(streams.dead)) == count


async def has_value(streams: Streams, topic: str, value: bytes) -> bool:
    return value in await streams.values(topic)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were waited for in vain, as whoever asked did not know that they are missing."""
    waited, missing = list[str](), topics.Topics.missing

    async def noted(asked: topics.Topics, *given: Any) -> dict[str, topics.MissingTopicError]:
        known = set(asked._missing)
        found = await missing(asked, *given)
        waited.extend(found.keys() - known)
        return found

    monkeypatch.setattr(topics.Topics, "missing", noted)
    return waited


async def test_only_what_was_sent_and_refused_ends_a_producer(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MISSING_SECONDS", 0.0)
    made: list[bool] = []

    def counted(*given: Any, **options: Any) -> AIOKafkaProducer:
        made.append(options.get("enable_idempotence", False))
        return new_producer(*given, **options)

    monkeypatch.setattr(writing, "new_producer", counted)
    good, no_partition = (Outgoing(streams.out, partition, -1, None, b"1") for partition in (0, 99))
    nowhere = Outgoing(f"{streams.out}-misspelled", 0, -1, None, b"1")
    large, fine = (Outgoing(streams.small, 0, -1, None, b"x" * size) for size in (3000, 1))
    async with writing.Writer(streams.app().settings(), topics.Topics()) as writer:
        for _ in range(3):
            assert (await writer.write([good, nowhere, no_partition])).keys() == {1, 2}
        assert made == [True]
        assert (await writer.write([nowhere, large, fine, good])).keys() == {0, 1}
        assert (await writer.write([good])) == {}
        assert made == [True, False, True], "one without numbers for what was refused, and another one to go on"
    assert len(await streams.values(streams.out)) == 5


async def test_what_is_written_beside_what_is_refused_is_not_written_twice(streams: Streams) -> None:
    old = {"message.timestamp.before.max.ms": "3600000"}
    topic = f"{streams.out}-two"
    await streams.cluster.admin.create_topics([NewTopic(topic, 2, 1, topic_configs=old)])
    good = [Outgoing(topic, 1, -1, None, b"%d" % number) for number in range(9)]
    async with writing.Writer(streams.app().settings(), topics.Topics()) as writer:
        assert (await writer.write([Outgoing(topic, 0, 1_600_000_000_000, None, b"old"), *good])).keys() == {0}
    assert await streams.values(topic) == [one.value for one in good]


async def test_all_outputs_that_one_bound_refuses_are_found_at_once(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction is not done again for each of them."""
    app, begun, tried = streams.app(), transactions.OnceProducer.begin_transaction, 0

    @app.on(streams.source, exactly_once=True)
    async def work(event: Event) -> Output:
        return Output(streams.small, "x" * (LARGEST + 500 + event.value))

    async def counted(producer: transactions.OnceProducer) -> None:
        nonlocal tried
        tried += 1
        await begun(producer)

    app.override({"commit_interval": 3}, {})
    monkeypatch.setattr(transactions.OnceProducer, "begin_transaction", counted)
    await write(streams)
    async with serving(app):
        await until(streams.all_ended)
    assert len(await streams.letters()) == 2 * COUNT
    assert tried < COUNT


@ONCE
async def test_an_output_whose_topic_is_deleted_meanwhile_is_refused(
    streams: Streams, cluster: Cluster, exactly_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be sent any more is given up after 40 s, a transaction after 60 s, unless they are told otherwise."""
    monkeypatch.setattr(topics, "MISSING_SECONDS", 1.0)
    monkeypatch.setattr(writing, "new_producer", partial(new_producer, request_timeout_ms=3000))
    monkeypatch.setattr(transactions, "_TIMEOUT", 5.0)
    app = streams.app()

    @app.on(streams.source, exactly_once=exactly_once)
    async def work(event: Event) -> Output:
        return Output(streams.small, event.value)

    await write(streams)
    async with serving(app):
        await until(streams.all_ended)
        await cluster.admin.delete_topics([streams.small])
        await cluster.write(streams.source, [(b"k", b"5000")], 0)
        await until(lambda: letters_of_all(streams, 1))
    assert (await streams.letters())[b"5000"]["keygrouping-reason"] == b"refused_output"


async def test_names_of_missing_topics_take_no_more_and_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were found first are forgotten: they are waited for again."""
    monkeypatch.setattr(topics, "MISSING_SECONDS", 0.0)
    monkeypatch.setattr(topics, "_MOST_MISSING", 3)
    found = topics.Topics()
    producer = SimpleNamespace(client=SimpleNamespace(cluster=SimpleNamespace(partitions_for_topic=lambda _: None)))

    async def asked(_: object, names: list[str]) -> set[str]:
        return set(names)

    monkeypatch.setattr(topics, "_asked", asked)
    for n in range(10):
        assert (await found.missing(producer, [f"t{n}"])).keys() == {f"t{n}"}
    assert [*found._missing] == ["t7", "t8", "t9"]
    assert len(await found.missing(producer, [f"t{n}" for n in range(10)])) == 10
    assert len(found._missing) == 3


@pytest.mark.parametrize("brokers", [[], [1, 2]])
async def test_no_topic_is_taken_for_missing_while_no_broker_tells(brokers: list[int]) -> None:
    async def send(_: int, __: object) -> None:
        raise KafkaConnectionError

    nodes = [SimpleNamespace(nodeId=each) for each in brokers]
    cluster = SimpleNamespace(partitions_for_topic=lambda _: None, brokers=lambda: nodes)
    away = SimpleNamespace(client=SimpleNamespace(cluster=cluster, send=send))
    with pytest.raises(KafkaConnectionError):
        await topics.Topics().missing(away, ["out"])


async def test_a_broker_that_is_away_is_no_reason_not_to_know() -> None:
    async def send(node: int, _: object) -> SimpleNamespace:
        if node == 1:
            raise KafkaConnectionError
        return SimpleNamespace(topics=[(0, "out", False, []), (29, "closed", False, [])])

    cluster = SimpleNamespace(
        partitions_for_topic=lambda _: None, brokers=lambda: [SimpleNamespace(nodeId=each) for each in (1, 2)]
    )
    half = SimpleNamespace(client=SimpleNamespace(cluster=cluster, send=send))
    for _ in range(20):
        assert await topics.Topics().missing(half, ["out", "closed"]) == {}


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
        await until(streams.all_ended)
    letters = await cluster.read(streams.dead)
    assert Counter((each.key, each.value) for each in letters) == {(b"a", None): 1, (None, b""): 1}
    assert all("keygrouping-truncated" in headers(each) for each in letters)


@pytest.mark.parametrize("how", ["at-least-once", "exactly-once", "state"])
async def test_a_dead_letter_of_a_time_that_its_topic_does_not_take_is_written_now(
    streams: Streams, cluster: Cluster, topic_prefix: str, how: str
) -> None:
    """It tells the event's own time, with which the event is sent again."""
    streams.dead = f"{topic_prefix}-recent"
    hour = {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"}
    await cluster.admin.create_topics(
        [NewTopic(streams.dead, 1, 1, topic_configs=hour | {"max.message.bytes": "2000"})]
    )
    any_time = dict.fromkeys(hour, str(2**63 - 1))
    await configure(cluster.admin, streams.source, any_time)
    app, good, seen = streams.app(), False, Counter[tuple[int, int]]()

    async def work(event: Event) -> None:
        if event.value != 1:
            seen[int(str(event.value)[:3]), event.time] += good
            assert good

    async def with_state(event: Event, _: dict[str, int]) -> None:
        await work(event)

    if how == "state":
        app.on(streams.source, state=dict, retries=0)(with_state)
    else:
        app.on(streams.source, exactly_once=how == "exactly-once", retries=0)(work)
    now = int(1000 * time.time())
    times = [100, 1_600_000_000_000, now + 10**9, 2**62, now]
    for number, at in enumerate(times * 10):
        large = b"0" * (3000 if number < len(times) else 1)
        await cluster.producer.send(streams.source, b"%d%s" % (100 + number, large), b"k%d" % number, 0, at)
    await cluster.producer.flush()
    await cluster.write(streams.source, [(b"b", b"1")] * (COUNT - len(times) * 10), 0)
    await cluster.write(streams.source, [(b"b", b"1")] * COUNT, 1)
    async with serving(app):
        await until(streams.all_ended)
        letters = await cluster.read(streams.dead)
        told = Counter((each.key, headers(each).get("keygrouping-event-time")) for each in letters)
        wrong = [None if at == now else b"%d" % at for at in times * 10]
        assert told == Counter((b"k%d" % number, at) for number, at in enumerate(wrong))
        assert all(abs(each.timestamp - now) < 3_600_000 for each in letters)
        assert sum("keygrouping-truncated" in headers(each) for each in letters) == len(times)
        assert {headers(each)["keygrouping-app"] for each in letters} == {streams.group.encode()}
        good = True
        await Redriving(app.settings(), Choice()).run(dry=False)
        await until(lambda: sum(seen.values()) == len(times) * 9)
    assert set(seen) == {(100 + number, at) for number, at in enumerate(times * 10) if number >= len(times)}


async def test_a_state_is_as_if_the_event_whose_output_is_refused_had_not_been(streams: Streams) -> None:
    app = streams.app()

    @app.on(streams.source, state=dict)
    async def work(event: Event, state: dict[str, int]) -> Output:
        state["sum"] = state.get("sum", 0) + event.value
        padding = "x" * (LARGEST if event.value in LARGE else 0)
        return Output(streams.small, [event.value, state["sum"], padding], key=event.key)

    await write(streams)
    async with serving(app):
        await until(streams.all_ended)
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
