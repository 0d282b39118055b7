"""The app on a real broker: nothing is lost, keys keep their order, and only what had not ended runs again.

What the checks know comes from a log that handlers write and from what the broker holds, read by code of their own.
"""

from __future__ import annotations

import asyncio
import base64
import math
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError
from keygrouping_app import BYTES, App, AppError, Event, Output, Topic
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.kafka.topics import all_topics
from keygrouping_app.kafka.writing import write_all
from keygrouping_app.lanes import LoopLanes
from keygrouping_service.testing import Cluster, notes, until

from .served import serving, until_left
from .test_faults import Log, judge

pytestmark = pytest.mark.kafka

NewMember = Callable[..., Awaitable[asyncio.subprocess.Process]]


async def made(cluster: Cluster, prefix: str, partitions: int) -> Callable[..., App]:
    await cluster.create(**{f"{prefix}-in": partitions, f"{prefix}-out": 2, f"{prefix}-dead": 1})

    def app(**settings: Any) -> App:
        given: dict[str, Any] = {"brokers": cluster.bootstrap_servers, "dead_letters": f"{prefix}-dead"}
        return App(f"{prefix}-group", **(given | settings))

    return app


def rows(count: int, keys: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % keys), b"%d" % number) for number in range(count)]


def ended_of(offset: int, metadata: str) -> tuple[int, set[int]]:
    """The committed offset and those behind it that have ended, as docs/app.md says that they are written."""
    packed = base64.b64decode(metadata.removeprefix("kg1:"))
    ended: set[int] = set()
    if packed[:1] == b"\x01":
        for place in range(8 * len(packed[1:])):
            if packed[1 + place // 8] >> (place % 8) & 1:
                ended.add(offset + place)
    elif packed:
        place, number, shift, done = offset, 0, 0, False
        for byte in packed[1:]:
            number += (byte % 128) << shift
            shift += 7
            if byte < 128:
                if done:
                    ended |= set(range(place, place + number))
                place, number, shift, done = place + number, 0, 0, not done
    return offset, ended


async def committed(cluster: Cluster, prefix: str, partitions: int) -> dict[int, tuple[int, set[int]]]:
    tps = [TopicPartition(f"{prefix}-in", partition) for partition in range(partitions)]
    found = await cluster.admin.list_consumer_group_offsets(f"{prefix}-group", partitions=tps)
    if any(tp not in found for tp in tps):
        raise KafkaConnectionError("the coordinator is loading")
    return {tp.partition: ended_of(max(0, found[tp].offset), found[tp].metadata or "") for tp in tps}


async def test_all_is_handled_written_and_committed_and_the_group_is_left(cluster: Cluster, topic_prefix: str) -> None:
    # No broker ends a session while this is waited for: the member leaves by itself.
    app = (await made(cluster, topic_prefix, 2))(session_timeout=600.0)
    seen: defaultdict[str, list[int]] = defaultdict(list)

    @app.on(f"{topic_prefix}-in", concurrency=8)
    async def double(event: Event) -> Output:
        seen[event.key].append(event.value)
        await asyncio.sleep(0)
        return Output(f"{topic_prefix}-out", event.value * 2, key=event.key)

    for partition in (0, 1):
        await cluster.write(
            f"{topic_prefix}-in", [(b"p%d-" % partition + key, v) for key, v in rows(300, 7)], partition
        )

    async def all_committed() -> bool:
        return await committed(cluster, topic_prefix, 2) == {0: (300, set()), 1: (300, set())}

    async with serving(app):
        await until(all_committed)
        assert await cluster.members(f"{topic_prefix}-group") == 1
    await until_left(cluster, f"{topic_prefix}-group")
    assert sorted(int(record.value or b"") for record in await cluster.read(f"{topic_prefix}-out")) == sorted(
        2 * number for number in [*range(300), *range(300)]
    )
    assert all(values == sorted(values) for values in seen.values())
    assert await cluster.read(f"{topic_prefix}-dead") == []


async def test_what_fails_for_good_is_a_dead_letter_that_says_why(cluster: Cluster, topic_prefix: str) -> None:
    app = (await made(cluster, topic_prefix, 1))()

    @app.on(f"{topic_prefix}-in", retries=0)
    def work(event: Event) -> None:
        if event.value == 1:
            raise RuntimeError("one")

    await cluster.producer.send_and_wait(f"{topic_prefix}-in", b"1", b"a", headers=[("mine", b"too")])
    await cluster.write(f"{topic_prefix}-in", [(b"b", b"{"), (None, b"2"), (b"a", None)])

    async def all_committed() -> bool:
        return await committed(cluster, topic_prefix, 1) == {0: (4, set())}

    async with serving(app):
        await until(all_committed)
    first, second = sorted(await cluster.read(f"{topic_prefix}-dead"), key=lambda record: record.key or b"")
    told = {name: (value or b"").decode() for name, value in first.headers}
    assert (first.key, first.value, told["mine"], told["keygrouping-reason"]) == (b"a", b"1", "too", "failed")
    assert told["keygrouping-detail"] == "RuntimeError: one"
    assert told["keygrouping-identity"] == f"{topic_prefix}-in/0/0"
    assert len(told["keygrouping-digest"]) == 12
    assert (second.key, dict(second.headers)["keygrouping-reason"]) == (b"b", b"undecodable")


async def test_all_missing_topics_are_told_together(cluster: Cluster, topic_prefix: str) -> None:
    app = App(topic_prefix, brokers=cluster.bootstrap_servers, dead_letters=f"{topic_prefix}-dead")

    @app.on(f"{topic_prefix}-in")
    async def work(event: Event) -> None:
        assert event

    with pytest.raises(AppError) as wrong:
        await app.serve(asyncio.Event())
    assert [fault.split(" does not exist")[0] for fault in wrong.value.faults] == [
        f"topic '{topic_prefix}-in'",
        f"topic '{topic_prefix}-dead'",
    ]


def fail_at_first(monkeypatch: pytest.MonkeyPatch, failures: float) -> None:
    """Has requests at the start fail as those to one of several brokers do that is away."""
    left = failures

    async def failing(*given: Any) -> set[str]:
        nonlocal left
        left -= 1
        if left >= 0:
            raise NodeNotReadyError("node id 2")
        return await all_topics(*given)

    monkeypatch.setattr("keygrouping_app.kafka.preparing.all_topics", failing)


async def test_a_broker_that_is_away_at_the_start_is_waited_for(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = (await made(cluster, topic_prefix, 1))()
    await cluster.write(f"{topic_prefix}-in", rows(1, 1))
    seen: list[str] = []

    @app.on(f"{topic_prefix}-in")
    async def look(event: Event) -> None:
        seen.append(event.identity)

    fail_at_first(monkeypatch, 3)
    async with serving(app):
        await until(lambda: seen)
    assert caplog.text.count("topics can't be looked at or created") == 3


async def test_a_broker_that_stays_away_at_the_start_ends_the_member(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = (await made(cluster, topic_prefix, 1))()
    app.on(f"{topic_prefix}-in")(lambda _: None)
    fail_at_first(monkeypatch, math.inf)
    monkeypatch.setattr("keygrouping_app.kafka.preparing._START_SECONDS", 1.0)
    with pytest.raises(NodeNotReadyError):
        await asyncio.wait_for(app.serve(asyncio.Event()), 60)


async def test_after_a_stop_only_what_had_not_ended_runs_again(cluster: Cluster, topic_prefix: str) -> None:
    """A hanging event holds the offset back; what ended behind it stands in the metadata, and stays so."""
    new_app = await made(cluster, topic_prefix, 1)
    await cluster.write(f"{topic_prefix}-in", rows(500, 10))
    handled: list[int] = []

    def declared(hanging: int | None) -> App:
        app = new_app(max_events=600)

        @app.on(f"{topic_prefix}-in", concurrency=16, timeout=1.0 if hanging is None else 0.5, retries=100)
        async def work(event: Event) -> None:
            if event.offset == hanging:
                await asyncio.Event().wait()
            handled.append(event.offset)

        return app

    async def all_but(*missing: int) -> bool:
        return len(handled) == 500 - len(missing)

    key_of_7 = list(range(7, 500, 10))
    async with serving(declared(7)):
        await until(lambda: all_but(*key_of_7))
    first, ended = (await committed(cluster, topic_prefix, 1))[0]
    assert first == 7
    assert ended == {offset for offset in range(8, 500) if offset not in key_of_7}
    async with serving(declared(7)):
        await asyncio.sleep(0.5)
    assert (await committed(cluster, topic_prefix, 1))[0] == (first, ended)
    async with serving(declared(None)):
        await until(lambda: all_but())
    assert sorted(handled) == list(range(500))
    assert handled[-len(key_of_7) :] == key_of_7
    assert (await committed(cluster, topic_prefix, 1))[0] == (500, set())


async def test_a_partition_moves_when_its_slow_handler_has_ended_and_the_others_work_on(
    cluster: Cluster, topic_prefix: str
) -> None:
    new_app = await made(cluster, topic_prefix, 4)
    release = asyncio.Event()
    log: list[tuple[str, str, int, int]] = []

    def declared(name: str) -> App:
        app = new_app()

        @app.on(f"{topic_prefix}-in", timeout=600)
        async def work(event: Event) -> None:
            log.append((name, "start", event.partition, event.offset))
            if event.offset == 0:
                await release.wait()
            log.append((name, "end", event.partition, event.offset))

        return app

    def ended(partition: int) -> int:
        return sum(what == "end" and of == partition for _, what, of, _ in log)

    async def two_partitions_wait() -> bool:
        """Whether two of them lag behind the others, while events come to all."""
        for partition in range(4):
            await cluster.write(f"{topic_prefix}-in", [(b"more", b"1")], partition)
            written[partition] += 1
        counts = sorted(map(ended, range(4)))
        return counts[2] - counts[1] >= 5

    written = [6] * 4
    for partition in range(4):
        await cluster.write(f"{topic_prefix}-in", [(b"slow%d" % partition, b"0"), *rows(5, 3)], partition)
    async with serving(declared("one")):
        await until(lambda: [ended(partition) for partition in range(4)] == [5] * 4)
        async with serving(declared("two")):
            await until(two_partitions_wait)
            assert {name for name, *_ in log} == {"one"}
            release.set()
            await until(lambda: [ended(partition) for partition in range(4)] == written)
            assert {name for name, *_ in log} == {"one", "two"}
    assert sorted((partition, at) for _, what, partition, at in log if what == "start") == [
        (partition, at) for partition in range(4) for at in range(written[partition])
    ]


async def test_a_static_member_that_restarts_keeps_its_partitions_and_no_other_waits_for_it(
    cluster: Cluster, topic_prefix: str
) -> None:
    new_app = await made(cluster, topic_prefix, 4)
    handled: set[tuple[str, int, int]] = set()

    def declared(name: str) -> App:
        app = new_app(instance_id=f"{topic_prefix}-{name}", session_timeout=60.0)

        @app.on(f"{topic_prefix}-in")
        async def work(event: Event) -> None:
            handled.add((name, event.partition, event.value))

        return app

    async def written(number: int) -> None:
        for partition in range(4):
            await cluster.write(f"{topic_prefix}-in", [(b"k", b"%d" % number)], partition)

    def owners(number: int) -> dict[int, str]:
        return {partition: name for name, partition, value in handled if value == number}

    async with serving(declared("stays")):
        async with serving(declared("restarts")):
            rounds = 0

            async def both_have_two() -> bool:
                nonlocal rounds
                rounds += 1
                await written(rounds)
                await until(lambda: len(owners(rounds)) == 4)
                return sorted(owners(rounds).values()) == ["restarts"] * 2 + ["stays"] * 2

            await until(both_have_two)
            before = owners(rounds)
        await written(1000)
        await until(lambda: len(owners(1000)) == 2)
        async with serving(declared("restarts")):
            await until(lambda: len(owners(1000)) == 4)
        assert owners(1000) == before


async def test_what_is_held_is_bounded_in_bytes_and_all_is_handled_when_there_is_room_again(
    cluster: Cluster, topic_prefix: str
) -> None:
    app = (await made(cluster, topic_prefix, 2))(max_bytes=2 << 20)
    size, count, most = 50_000, 200, 0
    go_on, ended = asyncio.Event(), set[tuple[int, int]]()

    @app.on(Topic(f"{topic_prefix}-in", value=BYTES))
    async def work(event: Event) -> None:
        nonlocal most
        most = max(most, sum(partition.bytes for partition in runner.held))
        await go_on.wait()
        ended.add((event.partition, event.offset))

    (handler,) = app.handlers
    runner = Runner(app.settings(), {handler.topic.name: (handler, lambda on_end: LoopLanes(handler, work, on_end))})
    stop = asyncio.Event()
    task = asyncio.create_task(runner.run(stop))
    try:
        await until(lambda: len(runner.held) == 2)
        for partition in range(2):
            await cluster.write(f"{topic_prefix}-in", [(b"k%d" % n, bytes(size)) for n in range(count)], partition)
        await until(lambda: [partition.paused for partition in runner.held] == [True] * 2)
        most = sum(partition.bytes for partition in runner.held)
        go_on.set()
        await until(lambda: len(ended) == 2 * count)
    finally:
        go_on.set()
        stop.set()
        await task
    # What one request brings of a partition, a MiB by default, comes on top.
    assert 2 << 20 <= most <= (2 << 20) + 2 * ((1 << 20) + size)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_what_a_broker_takes_slowly_is_bounded_as_well(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, exactly_once: bool
) -> None:
    app, most, count = (await made(cluster, topic_prefix, 2))(max_events=400), 400, 1000
    go_on, ended = asyncio.Event(), 0

    async def late(*given: Any) -> Any:
        await go_on.wait()
        return await write_all(*given)

    for module in ("writing", "transactions"):
        monkeypatch.setattr(f"keygrouping_app.kafka.{module}.write_all", late)

    @app.on(f"{topic_prefix}-in", exactly_once=exactly_once)
    async def work(event: Event) -> Output:
        nonlocal ended
        ended += 1
        return Output(f"{topic_prefix}-out", event.value)

    (handler,) = app.handlers
    runner = Runner(app.settings(), {handler.topic.name: (handler, lambda on_end: LoopLanes(handler, work, on_end))})
    stop = asyncio.Event()
    task = asyncio.create_task(runner.run(stop))
    try:
        await until(lambda: len(runner.held) == 2)
        for partition in range(2):
            await cluster.write(f"{topic_prefix}-in", rows(count, 50), partition)
        await until(lambda: [each.paused for each in runner.held] == [True] * 2 or ended == 2 * count)
        assert ended <= most
        go_on.set()
        await until(lambda: ended == 2 * count)
    finally:
        go_on.set()
        stop.set()
        await task
    assert len(await cluster.read(f"{topic_prefix}-out")) == 2 * count


@dataclass(frozen=True)
class Line:
    what: str
    time: int
    process: int
    key: str
    place: tuple[int, int]


def lines_of(log: Path) -> list[Line]:
    found = notes(log.read_text().splitlines()) if log.exists() else []
    lines = [Line(what, int(t), int(pid), key, (int(p), int(o))) for what, t, pid, key, p, o in found]
    return sorted(lines, key=lambda line: line.time)


def thrown_out_of(log: Path) -> dict[int, int]:
    """When each member that lost its partitions, asleep or on a busy machine, lost them for the last time."""
    return {int(process): int(time) for what, time, process, *_ in owned(log) if what == "lost"}


def owned(log: Path) -> list[list[str]]:
    """What members tell of the partitions that they have."""
    path = log.with_suffix(".ownership")
    return notes(path.read_text().splitlines()) if path.exists() else []


async def test_killed_and_joining_members_lose_nothing_keep_the_order_and_redo_only_what_had_not_ended(
    cluster: Cluster, topic_prefix: str, tmp_path: Path, new_member: NewMember
) -> None:
    partitions, count, keys = 4, 1500, 40
    await made(cluster, topic_prefix, partitions)
    log, chance = tmp_path / "log", random.Random(5)
    members = [await new_member() for _ in range(2)]
    told: list[tuple[int, set[tuple[int, int]]]] = []
    killed: dict[int, int] = {}

    def all_have_partitions() -> bool:
        gained = {int(process) for what, _, process, *_ in owned(log) if what == "gain"}
        return gained >= {member.pid for member in members}

    try:
        for progress in (0.2, 0.4, 0.6):
            await until(all_have_partitions)  # or one of them does it all while the other starts
            for partition in range(partitions):
                events = [(b"p%d-%d" % (partition, int(keys * chance.random() ** 2)), b"1") for _ in range(count // 3)]
                await cluster.write(f"{topic_prefix}-in", events, partition)

            def reached(goal: float = progress) -> bool:
                return len({line.place for line in lines_of(log) if line.what == "end"}) > goal * partitions * count

            await until(reached)
            victim = members.pop(0)
            killed[victim.pid] = time.monotonic_ns()
            victim.send_signal(signal.SIGKILL)
            await victim.wait()
            state = await committed(cluster, topic_prefix, partitions)
            done = {(p, o) for p, (first, ended) in state.items() for o in [*range(first), *ended]}
            told.append((time.monotonic_ns(), done))
            members.append(await new_member())

        async def all_committed() -> bool:
            state = await committed(cluster, topic_prefix, partitions)
            return state == {partition: (count, set()) for partition in range(partitions)}

        await until(all_committed)
    finally:
        for member in members:
            member.terminate()
        codes = [await member.wait() for member in members]
    assert codes == [0, 0]
    found = judge(Log(log).read(), partitions * count, killed)
    assert not found.faults, str(found)
    look_at_commits(lines_of(log), told, thrown_out_of(log))
    assert await cluster.read(f"{topic_prefix}-dead") == []


async def test_a_member_that_sleeps_too_long_spoils_nothing_when_it_wakes_up(
    cluster: Cluster, topic_prefix: str, tmp_path: Path, new_member: NewMember
) -> None:
    await made(cluster, topic_prefix, 2)
    log, events = tmp_path / "log", 1500
    for partition in range(2):
        await cluster.write(f"{topic_prefix}-in", rows(events, 30), partition)
    sleeper = await new_member()
    members = [sleeper]
    try:
        await until(lambda: len(lines_of(log)) > 500)
        sleeper.send_signal(signal.SIGSTOP)
        asleep = {line.place for line in lines_of(log)}
        for partition in range(2):  # or it has done all before, on a busy machine
            await cluster.write(f"{topic_prefix}-in", rows(events, 30), partition)
        members.append(await new_member())
        await until(lambda: any(line.process == members[1].pid for line in lines_of(log)))
        sleeper.send_signal(signal.SIGCONT)

        async def all_committed() -> bool:
            return await committed(cluster, topic_prefix, 2) == {0: (2 * events, set()), 1: (2 * events, set())}

        await until(all_committed)
    finally:
        for member in members:
            member.send_signal(signal.SIGCONT)
            member.terminate()
        codes = [await member.wait() for member in members]
    assert codes == [0] * 2
    lines = lines_of(log)
    assert len({line.place for line in lines if line.what == "end"}) == 4 * events
    thrown_out = thrown_out_of(log)
    assert sleeper.pid in thrown_out
    begun = Counter(line.place for line in lines if line.what == "start")
    assert {place for place, times in begun.items() if times > 1} <= asleep | {
        line.place for line in lines if line.what == "start" and line.time < thrown_out.get(line.process, 0)
    }


def look_at_commits(
    lines: list[Line], told: list[tuple[int, set[tuple[int, int]]]], thrown_out: dict[int, int]
) -> None:
    """What was committed never runs again, but in a member that the group had gone on without, as it was about to."""
    assert len({line.process for line in lines}) >= 3
    for now, done in told:
        later = [line for line in lines if line.what == "start" and line.time > now]
        assert not {line.place for line in later if line.time > thrown_out.get(line.process, 0)} & done
