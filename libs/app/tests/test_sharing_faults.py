"""Members that share a hot key are killed, sleep, come and go: no event is lost, and exactly once each counts once.

So it does in states that merge.

The oracle shares no code with the app: it knows what was written, and reads the rest from the broker and from notes of
`what time process identity` of the handlers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping_service.testing import Cluster, notes, until

from .strikes import Member, shuffled, strike

pytestmark = pytest.mark.kafka

log_it = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("sharing_program.py")
PARTITIONS = 4
LANES = 4
HOT = 0.6
BAD = 0.1
STUCK_SECONDS = 240.0
SHORT, LONG = 6.0, 60.0
"""Sessions: the shortest that brokers take, as what a killed member had waits for its end, and one that a busy machine
doesn't end."""
NewMember = Callable[..., Awaitable[Member]]


@pytest.fixture
async def new_member(cluster: Cluster, topic_prefix: str, tmp_path: Path) -> AsyncIterator[NewMember]:
    """Starts a member; those that are left are killed."""
    started: list[Member] = []

    async def start(how: str, session: float, *struck: str) -> Member:
        options = ("0.02", str(LANES), str(session), how, *struck)
        given = (cluster.bootstrap_servers, topic_prefix, str(tmp_path / "log"), *options)
        member = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), *given, env={**os.environ}, stdout=asyncio.subprocess.PIPE
        )
        started.append(member)
        assert member.stdout is not None
        assert await asyncio.wait_for(member.stdout.readline(), 180) == b"up\n"
        return member

    yield start
    for member in started:
        if member.returncode is None:
            member.kill()
            await member.wait()


class Written:
    """The events: their identities, and those that are refused."""

    def __init__(self, topic: str) -> None:
        self._topic, self._chance = topic, random.Random(5)
        self._ends: Counter[int] = Counter()
        self.good: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.states: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        """By key: how many good events it has, and the sum of their digests."""

    @property
    def total(self) -> int:
        return self.good.total() + self.bad.total()

    async def go_on(self, cluster: Cluster, events: int) -> None:
        """Writes so many more."""
        rows: defaultdict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        for number in range(events):
            hot = self._chance.random() < HOT
            partition = 0 if hot else self._chance.randrange(PARTITIONS)
            bad = self._chance.random() < BAD
            identity = f"{self._topic}/{partition}/{self._ends[partition]}"
            self._ends[partition] += 1
            (self.bad if bad else self.good)[identity] += 1
            key = b"hot" if hot else b"p%d-%d" % (partition, number % 50)
            if not bad:
                state = self.states[key.decode()]
                state[0] += 1
                state[1] = (state[1] + int(hashlib.sha256(identity.encode()).hexdigest()[:14], 16)) % 2**61
            rows[partition].append((key, b'"bad"' if bad else b'"good"'))
        for partition, each in rows.items():
            await cluster.write(self._topic, each, partition)


class Runs:
    """What handlers have told: by identity, processes that have begun an event, and such that have ended it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        starts: defaultdict[str, list[int]] = defaultdict(list)
        ends: defaultdict[str, list[int]] = defaultdict(list)
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for what, _, process, identity in notes(lines):
            (starts if what == "start" else ends)[identity].append(int(process))
        return starts, ends


async def is_over(cluster: Cluster, prefix: str, others: Iterable[str]) -> bool:
    """Whether the group has committed all inputs, all slots and all of these topics up to their ends."""
    reader = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    await reader.start()
    try:
        described = await cluster.admin.describe_topics([f"{prefix}-in", f"{prefix}-group.overflow", *others])
        tps = [TopicPartition(each["topic"], part["partition"]) for each in described for part in each["partitions"]]
        found = await cluster.admin.list_consumer_group_offsets(f"{prefix}-group", partitions=tps)
        ends = await reader.end_offsets(tps)
    finally:
        await reader.stop()
    return all(tp in found and max(0, found[tp].offset) >= end for tp, end in ends.items())


def text(data: bytes | None) -> str:
    return (data or b"").decode()


async def shared(cluster: Cluster, prefix: str) -> Counter[str]:
    """The identities of what is in the slots."""
    records = await cluster.read(f"{prefix}-group.overflow")
    return Counter(text(dict(record.headers)["keygrouping-source"]) for record in records)


async def compare(
    cluster: Cluster, prefix: str, written: Written, runs: Runs, *, exactly_once: bool, disturbed: bool
) -> Counter[str]:
    """What the broker holds with what was written; gives what was shared."""
    outputs = Counter(text(record.value) for record in await cluster.read(f"{prefix}-out"))
    letters = [dict(record.headers) for record in await cluster.read(f"{prefix}-dead")]
    dead = Counter(text(each["keygrouping-identity"]) for each in letters)
    in_slots = await shared(cluster, prefix)
    _, ends = runs.read()
    assert {text(each["keygrouping-reason"]) for each in letters} <= {"rejected"}
    assert in_slots.keys() <= (written.good + written.bad).keys()
    if exactly_once or not disturbed:
        assert outputs == written.good
        assert dead == written.bad
        assert not in_slots or max(in_slots.values()) == 1
    else:
        assert outputs.keys() == written.good.keys()
        assert dead.keys() == written.bad.keys()
    if not disturbed:
        assert {identity: each for identity, each in ends.items() if len(each) > 1} == {}
    return in_slots


async def compare_states(cluster: Cluster, prefix: str, partials: str, written: Written) -> None:
    """What was merged, and published of it, with what was written."""
    states = {text(record.key): record.value for record in await cluster.read(f"{prefix}-group.{partials}.states")}
    found = {key: json.loads(value) for key, value in states.items() if value is not None}
    assert {key: [each["count"], each["digest"]] for key, each in found.items()} == written.states
    published: defaultdict[str, list[list[int]]] = defaultdict(list)
    for record in await cluster.read(f"{prefix}-seen"):
        published[text(record.key)].append(json.loads(text(record.value)))
    assert {key: each[-1] for key, each in published.items()} == written.states
    for each in published.values():
        assert all(earlier < later for (earlier, _), (later, _) in pairwise(each))
    in_partials = await cluster.read(partials)
    assert len(in_partials) < written.good.total()
    log_it.warning("%d partial states of %d events", len(in_partials), written.good.total())


@pytest.mark.fault
async def test_who_dies_in_the_first_transaction_of_an_input_has_begun_nothing(
    cluster: Cluster, topic_prefix: str, new_member: NewMember
) -> None:
    topic, partials = f"{topic_prefix}-in", f"{topic_prefix}-group.{topic_prefix}-in.partials"
    outputs = {f"{topic_prefix}-out": 2, f"{topic_prefix}-seen": 2, f"{topic_prefix}-dead": 1}
    await cluster.create(**{topic: PARTITIONS, **outputs})
    written = Written(topic)
    await written.go_on(cluster, 100)
    killed = await new_member("merged", SHORT, "first")
    assert await killed.wait() == -signal.SIGKILL
    member = await new_member("merged", SHORT)
    await until(lambda: is_over(cluster, topic_prefix, [partials]), timeout=STUCK_SECONDS)
    member.terminate()
    assert await member.wait() == 0
    await compare_states(cluster, topic_prefix, partials, written)


FAULTS = [
    pytest.param(4_000, [], id="calm"),
    pytest.param(12_000, ["join", "leave"], id="moved"),
    pytest.param(5_000, ["kill", "join", "leave", "kill"], id="short"),
    pytest.param(20_000, shuffled(12, 6, 2), marks=[pytest.mark.fault, pytest.mark.timeout(3600)], id="part"),
    pytest.param(100_000, shuffled(60, 20, 6), marks=[pytest.mark.fault, pytest.mark.timeout(0)], id="tenth"),
    pytest.param(1_000_000, shuffled(400, 100, 20), marks=[pytest.mark.fault, pytest.mark.timeout(0)], id="whole"),
]


@pytest.mark.parametrize("how", ["exactly-once", "at-least-once", "merged"])
@pytest.mark.parametrize(("events", "faults"), FAULTS)
async def test_each_event_of_a_shared_key_is_handled(
    cluster: Cluster,
    topic_prefix: str,
    tmp_path: Path,
    new_member: NewMember,
    events: int,
    faults: list[str],
    how: str,
) -> None:
    topic, chance, runs = f"{topic_prefix}-in", random.Random(9), Runs(tmp_path / "log")
    outputs = {f"{topic_prefix}-out": 2, f"{topic_prefix}-seen": 2, f"{topic_prefix}-dead": 1}
    await cluster.create(**{topic: PARTITIONS, **outputs})
    partials = [f"{topic_prefix}-group.{topic}.partials"] if how == "merged" else []
    written = Written(topic)
    disturbed = "kill" in faults or "sleep" in faults
    start = partial(new_member, how, SHORT if disturbed else LONG)
    members = [await start() for _ in range(3)]
    await written.go_on(cluster, events)

    async def is_shared() -> bool:
        """However slow members are to come together, there is something to share."""
        if len(runs.read()[1]) > written.total - events / 2:
            await written.go_on(cluster, events // 2)
        return bool(await shared(cluster, topic_prefix))

    async def reach(part: float) -> None:
        await until(lambda: len(runs.read()[1]) >= part * written.total, timeout=STUCK_SECONDS)

    await until(is_shared)
    for number, fault in enumerate(faults, 1):
        await reach(0.9 * number / (len(faults) + 1))
        log_it.info("fault %d of %d: %s", number, len(faults), fault)
        await strike(fault, members, chance, start)
    await until(lambda: is_over(cluster, topic_prefix, partials), timeout=STUCK_SECONDS)
    for member in members:
        member.terminate()
    assert [await member.wait() for member in members] == [0] * len(members)
    exactly_once = how != "at-least-once"
    found = await compare(cluster, topic_prefix, written, runs, exactly_once=exactly_once, disturbed=disturbed)
    for each in partials:
        await compare_states(cluster, topic_prefix, each, written)
    assert found
    starts, _ = runs.read()
    again = sum(len(each) for each in starts.values()) - written.total
    log_it.warning(
        "%d events, %d of them shared, %d records in slots, %d runs more than events",
        written.total,
        len(found),
        found.total(),
        again,
    )
