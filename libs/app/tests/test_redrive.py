"""Which dead letters are sent again, as what; and that each is sent once, whatever stops a run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from keygrouping_app import App, Event, Reject
from keygrouping_app.codecs import Topic
from keygrouping_app.commands import redrive as command
from keygrouping_app.dead_letters import HEADERS, dead_letter
from keygrouping_app.events import Record, Source, event_of
from keygrouping_app.kafka.redriving import Redriving
from keygrouping_app.redrive import DAMAGED, DONE, GONE, NOT_CHOSEN, TRUNCATED, Choice, Report, letter_of, redriven
from keygrouping_app.scheduler import Failure
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.testing import Cluster, until

BROKEN = Failure("failed", "RuntimeError: no money", digest="0123456789ab")


def letter(record: Record, failure: Failure = BROKEN, app: str = "billing", offset: int = 17) -> Record:
    """The dead letter as it lies in its topic."""
    made = dead_letter(event_of(record, Source(Topic(record.topic), partition=record.partition)), failure, "dead", app)
    return Record("dead", 0, offset, made.time, made.key, made.value, made.headers)


def test_an_event_comes_back_as_it_was_with_the_place_of_its_letter() -> None:
    record = Record("orders", 2, 5, 99, b"alice", None, (("mine", b"1"), ("mine", None)))
    found = letter_of(letter(record), "billing")
    assert found is not None
    assert (found.reason, found.digest, found.topic, found.partition) == ("failed", "0123456789ab", "orders", 2)
    event = found.event({0, 1, 2})
    assert (event.topic, event.partition, event.time, event.key, event.value) == ("orders", 2, 99, b"alice", None)
    assert event.headers == (("mine", b"1"), ("mine", None), ("keygrouping-redriven", b"dead/0/17"))
    assert found.event({0}).partition is None


def test_a_second_failure_is_recognised_and_named_by_its_own_letter_the_next_time() -> None:
    first = letter_of(letter(Record("orders", 0, 5, 99, b"a", b"1")), "billing")
    assert first is not None
    again = Record("orders", 0, 6, 99, b"a", b"1", first.event({0}).headers)
    second = letter_of(letter(again, offset=30), "billing")
    assert second is not None
    assert second.told["keygrouping-redriven"] == "dead/0/17"
    assert second.event({0}).headers == (("keygrouping-redriven", b"dead/0/30"),)


@pytest.mark.parametrize("forged", [b"5", b"9" * 30, b"9" * 5000, b"\xd9\xa3"])
def test_an_event_says_nothing_of_the_time_that_its_letter_has(forged: bytes) -> None:
    record = Record("orders", 0, 5, 99, b"a", b"1", (("keygrouping-event-time", forged),))
    found = letter_of(letter(record), "billing")
    assert found is not None
    assert found.event({0}).time == 99


def test_all_headers_of_a_letter_are_known_as_ours() -> None:
    large = Record("orders", 0, 5, -7, b"a", b"1" * 2_000_000)
    assert {name for name, _ in letter(large).headers} | {"keygrouping-redriven"} == HEADERS


@pytest.mark.parametrize(("told", "at"), [(b"-7", -7), (b"1600000000000", 1_600_000_000_000), (b"\xb2", 99), (b"", 99)])
def test_an_event_has_its_own_time_if_its_letter_could_not_have_it(told: bytes, at: int) -> None:
    made = letter(Record("orders", 0, 5, 99, b"a", b"1"))
    found = letter_of(replace(made, headers=(*made.headers, ("keygrouping-event-time", told))), "billing")
    assert found is not None
    assert found.event({0}).time == at


def test_what_cannot_be_sent_says_why() -> None:
    def fault(record: Record) -> str | None:
        found = letter_of(record, "billing")
        assert found is not None
        return found.fault({"orders"})

    fine = Record("orders", 0, 5, 99, b"a", b"1")
    assert fault(letter(fine)) is None
    assert fault(letter(Record("orders", 0, 5, 99, b"a", b"1" * 2_000_000))) == TRUNCATED
    assert fault(letter(Record("clicks", 0, 5, 99, b"a", b"1"))) == GONE
    assert fault(Record("dead", 0, 1, 0, None, b"1", (("keygrouping-app", b"billing"),))) == DAMAGED
    poison = (("keygrouping-app", b"billing"), ("keygrouping-topic", b"orders"), ("keygrouping-partition", b"\xb2x"))
    assert fault(Record("dead", 0, 1, 0, None, b"1", poison)) == DAMAGED
    assert letter_of(letter(fine, app="other"), "billing") is None
    assert letter_of(fine, "billing") is None


@pytest.mark.parametrize("value", [b"{", b"[1]", b'{"redriven": 1}', b'{"redriven": ["1"]}', None])
def test_a_damaged_receipt_is_told(value: bytes | None) -> None:
    headers = (("keygrouping-redrive", b"billing"),)
    with pytest.raises(ValueError, match=r"."):
        redriven(Record("dead", 0, 1, 0, None, value, headers), "billing")
    assert redriven(Record("dead", 0, 1, 0, None, value), "billing") == []


def test_the_report_counts_by_reason_and_digest_and_tells_no_terminal_anything() -> None:
    report = Report()
    for detail in ("no \x1b[2Jmoney", "none"):
        found = letter_of(
            letter(Record("orders", 0, 5, 99, b"a", b"1"), Failure("failed", detail, digest="d1")), "billing"
        )
        assert found is not None
        report.choose(found)
    report.left[TRUNCATED] += 3
    assert list(command.lines(report, dry=True)) == [
        "2 dead letters to send again",
        "        2  failed         d1           orders: no \\x1b[2Jmoney",
        "3 left",
        f"        3  {TRUNCATED}",
    ]


# --- on a broker ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as running:
        yield running


async def with_letters(cluster: Cluster, prefix: str, count: int) -> Callable[[], App]:
    """An app that has made every event a dead letter: even ones failed, odd ones rejected."""
    await cluster.create(**{f"{prefix}-in": 2, f"{prefix}-dead": 1})

    def declared() -> App:
        app = App(prefix, brokers=cluster.bootstrap_servers, dead_letters=f"{prefix}-dead")

        @app.on(f"{prefix}-in", retries=0)
        async def work(event: Event) -> None:
            raise Reject("odd") if event.value % 2 else KeyError("even")

        return app

    for number in range(count):
        await cluster.write(
            f"{prefix}-in", [(b"k%d" % number, b"%d" % number)], number // 2 % 2, timestamp_ms=1000 + number
        )
    await until_dead(cluster, declared(), prefix, count)
    return declared


async def until_dead(cluster: Cluster, app: App, prefix: str, count: int) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(app.serve(stop))

    async def all_dead() -> bool:
        return sum(letter_of(record, prefix) is not None for record in await cluster.read(f"{prefix}-dead")) >= count

    try:
        await until(all_dead)
    finally:
        stop.set()
        await task


async def there_are(cluster: Cluster, topic: str, wanted: Mapping[int, int]) -> None:
    """Until the topic holds each value so often: a commit is seen when its markers have come to all partitions."""

    async def counted() -> bool:
        found = Counter(int(record.value or b"") for record in await cluster.read(topic))
        assert all(count <= wanted[value] for value, count in found.items()), found
        return found == wanted

    await until(counted)


@pytest.mark.kafka
async def test_each_letter_is_sent_once_and_what_is_left_can_be_sent_later(cluster: Cluster, topic_prefix: str) -> None:
    declared = await with_letters(cluster, topic_prefix, 8)
    settings = declared().settings()
    dead = await cluster.read(f"{topic_prefix}-dead")

    looked = await Redriving(settings, Choice()).run(dry=True)
    assert looked.chosen.total() == 8
    assert sorted((reason, count) for (reason, _, _), count in looked.chosen.items()) == [
        ("failed", 4),
        ("rejected", 4),
    ]
    assert await cluster.read(f"{topic_prefix}-dead") == dead

    first = await Redriving(settings, Choice(reasons=["failed"])).run(dry=False)
    assert (first.chosen.total(), first.left) == (4, {NOT_CHOSEN: 4})
    await there_are(cluster, f"{topic_prefix}-in", {number: 2 if number % 2 == 0 else 1 for number in range(8)})
    second = await Redriving(settings, Choice(topics=[f"{topic_prefix}-in"])).run(dry=False)
    assert (second.chosen.total(), second.left) == (4, {DONE: 4})
    third = await Redriving(settings, Choice()).run(dry=False)
    assert (third.chosen.total(), third.left) == (0, {DONE: 8})

    await there_are(cluster, f"{topic_prefix}-in", dict.fromkeys(range(8), 2))
    records = await cluster.read(f"{topic_prefix}-in")
    for number in range(8):
        before, after = (record for record in records if record.value == b"%d" % number)
        assert (after.key, after.timestamp, after.partition) == (before.key, before.timestamp, before.partition)
        ((name, place),) = after.headers
        (of,) = (record for record in dead if record.value == after.value)
        assert (name, place) == ("keygrouping-redriven", f"{topic_prefix}-dead/0/{of.offset}".encode())

    await until_dead(cluster, declared(), topic_prefix, 16)
    failed_again = [dict(record.headers) for record in await cluster.read(f"{topic_prefix}-dead")]
    assert sum("keygrouping-redriven" in headers for headers in failed_again) == 8
    fourth = await Redriving(settings, Choice(digests=[next(iter(looked.chosen))[1]])).run(dry=False)
    assert fourth.chosen.total() == 4


@pytest.mark.kafka
async def test_what_a_stopped_run_had_sent_without_committing_is_sent_once(cluster: Cluster, topic_prefix: str) -> None:
    settings = (await with_letters(cluster, topic_prefix, 4))().settings()
    stopped = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"{topic_prefix}.redrive")
    await stopped.start()
    try:
        await stopped.begin_transaction()
        await stopped.send_and_wait(f"{topic_prefix}-in", b"0", partition=0)
        receipt = [("keygrouping-redrive", topic_prefix.encode())]
        await stopped.send_and_wait(f"{topic_prefix}-dead", b'{"redriven":[0,1,2,3]}', partition=0, headers=receipt)
        report = await Redriving(settings, Choice()).run(dry=False)
        assert report.chosen.total() == 4
        with pytest.raises(KafkaError):
            await stopped.commit_transaction()
    finally:
        await stopped.stop()
    await there_are(cluster, f"{topic_prefix}-in", dict.fromkeys(range(4), 2))


@pytest.mark.kafka
async def test_runs_at_the_same_time_send_each_letter_once(cluster: Cluster, topic_prefix: str) -> None:
    settings = (await with_letters(cluster, topic_prefix, 6))().settings()
    runs = (Redriving(settings, Choice()).run(dry=False) for _ in range(3))
    ended = await asyncio.gather(*runs, return_exceptions=True)
    assert all(isinstance(each, Report | KafkaError) for each in ended), ended
    await Redriving(settings, Choice()).run(dry=False)
    await there_are(cluster, f"{topic_prefix}-in", dict.fromkeys(range(6), 2))


@pytest.mark.kafka
async def test_the_command_says_what_it_did(cluster: Cluster, topic_prefix: str, tmp_path: Path) -> None:
    await with_letters(cluster, topic_prefix, 2)
    module = tmp_path / f"{topic_prefix.replace('-', '_')}.py"
    names = json.dumps([topic_prefix, f"{topic_prefix}-dead"])
    module.write_text(
        "from keygrouping.app import App\n"
        f"name, dead = {names}\n"
        "app = App(name, dead_letters=dead)\n"
        "@app.on('orders')\n"
        "async def work(event): ...\n"
    )
    arguments = ("-m", "keygrouping", "redrive", f"{module.stem}:app", "--reason", "rejected")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments, "--bootstrap-servers", cluster.bootstrap_servers, "--dry-run"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    shown, _ = await process.communicate()
    assert process.returncode == 0
    first, second, *left = shown.decode().splitlines()
    assert first == "1 dead letters to send again"
    assert second.split()[:2] == ["1", "rejected"]
    assert second.endswith(f"{topic_prefix}-in: odd")
    assert left == ["1 left", f"        1  {NOT_CHOSEN}"]
