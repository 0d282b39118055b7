"""Members with state are killed, sleep, come and go: states, outputs and dead letters are those of one program's.

The oracle shares no code with the app: it goes once through what was written, and reads the rest from the broker.
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
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka

log_it = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("state_program.py")
PARTITIONS = 4
STUCK_SECONDS = 240.0
Member = asyncio.subprocess.Process
NewMember = Callable[[float, str, int], Awaitable[Member]]


@pytest.fixture
async def new_member(cluster: Cluster, topic_prefix: str, tmp_path: Path) -> AsyncIterator[NewMember]:
    """Starts a member; those that are left are killed."""
    started: list[Member] = []

    async def start(seconds: float, store: str, standbys: int) -> Member:
        arguments = (cluster.bootstrap_servers, topic_prefix, str(tmp_path / "log"), str(seconds), store, str(standbys))
        member = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), *arguments, env={**os.environ}, stdout=asyncio.subprocess.PIPE
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


class Truth:
    """What comes of events, by one pass over them."""

    def __init__(self, topic: str, events: int) -> None:
        chance = random.Random(5)
        self.rows: dict[int, list[tuple[bytes, bytes]]] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.outputs: defaultdict[str, list[list[Any]]] = defaultdict(list)
        self.dead: list[str] = []
        for partition in range(PARTITIONS):
            self.rows[partition] = [
                (b"p%d-%d" % (partition, int(40 * chance.random() ** 2)), b"%d" % chance.randint(-1, 30))
                for _ in range(events // PARTITIONS)
            ]
            for offset, (key, value) in enumerate(self.rows[partition]):
                self._add(key.decode(), int(value), f"{topic}/{partition}/{offset}")

    def _add(self, key: str, value: int, identity: str) -> None:
        if value < 0:
            self.dead.append(identity)
            return
        before = self.states.get(key, {"count": 0, "total": 0, "digest": ""})
        digest = hashlib.sha256(f"{before['digest']} {identity} {value}".encode()).hexdigest()
        self.states[key] = {"count": before["count"] + 1, "total": before["total"] + value, "digest": digest}
        self.outputs[key].append([identity, before["count"] + 1, digest])


def text(data: bytes | None) -> str:
    return (data or b"").decode()


async def compare(cluster: Cluster, prefix: str, truth: Truth) -> None:
    """What the broker holds with the truth; the order within each key, too."""
    changelog = f"{prefix}-group.{prefix}-in.states"
    states = {text(record.key): json.loads(text(record.value)) for record in await cluster.read(changelog)}
    assert states == truth.states
    outputs: defaultdict[str, list[list[Any]]] = defaultdict(list)
    for record in await cluster.read(f"{prefix}-out"):
        outputs[text(record.key)].append(json.loads(text(record.value)))
    assert outputs == truth.outputs
    letters = [dict(record.headers) for record in await cluster.read(f"{prefix}-dead")]
    assert Counter(text(each["keygrouping-identity"]) for each in letters) == Counter(truth.dead)
    assert {text(each["keygrouping-reason"]) for each in letters} <= {"rejected"}


def shuffled(kills: int, rebalances: int, sleeps: int) -> list[str]:
    """In random order. A rebalance is a member that comes or one that leaves."""
    found = ["kill"] * kills + ["join", "leave"] * (rebalances // 2) + ["sleep"] * sleeps
    random.Random(7).shuffle(found)
    return found


def part(name: str, store: str, standbys: int) -> Any:
    """A tenth of the whole form, of this name."""
    marks = [pytest.mark.fault, pytest.mark.timeout(3600)]
    return pytest.param(20_000, shuffled(12, 6, 2), 0.01, store, standbys, marks=marks, id=name)


@pytest.mark.parametrize(
    ("events", "faults", "seconds", "store", "standbys"),
    [
        pytest.param(1_200, ["kill", "join", "leave"], 0.005, "memory", 0, id="short"),
        pytest.param(1_200, ["kill", "join", "leave"], 0.005, "memory", 1, id="short-standbys"),
        part("part-memory", "memory", 0),
        part("part-standbys", "memory", 2),
        part("part-disk", "disk", 1),
        pytest.param(
            200_000,
            shuffled(100, 30, 10),
            0.01,
            "memory",
            1,
            marks=[pytest.mark.fault, pytest.mark.timeout(0)],
            id="whole",
        ),
    ],
)
async def test_states_and_outputs_are_exact_under_kills_and_rebalances(
    cluster: Cluster,
    topic_prefix: str,
    tmp_path: Path,
    new_member: NewMember,
    events: int,
    faults: list[str],
    seconds: float,
    store: str,
    standbys: int,
) -> None:
    topic, chance, handled = f"{topic_prefix}-in", random.Random(9), tmp_path / "log"
    await cluster.create(**{topic: PARTITIONS, f"{topic_prefix}-out": 2, f"{topic_prefix}-dead": 1})
    truth = Truth(topic, events)
    for partition, rows in truth.rows.items():
        await cluster.write(topic, rows, partition)
    members = [await new_member(seconds, store, standbys) for _ in range(2)]

    def calls() -> int:
        return handled.stat().st_size if handled.exists() else 0

    tps = [TopicPartition(topic, each) for each in range(PARTITIONS)]
    each_has = events // PARTITIONS

    async def reach(part: float) -> None:
        wanted = part * sum(map(len, truth.outputs.values()))
        await until(lambda: calls() >= wanted, timeout=STUCK_SECONDS)

    for number, fault in enumerate(faults):
        await reach(0.9 * number / len(faults))
        log_it.info("%d calls: fault %d of %d: %s", calls(), number, len(faults), fault)
        if fault == "join" or len(members) == 1:
            members.append(await new_member(seconds, store, standbys))
            continue
        member = members.pop(chance.randrange(len(members)))
        if fault == "sleep":
            member.send_signal(signal.SIGSTOP)
            await asyncio.sleep(15)
            member.send_signal(signal.SIGCONT)
            members.append(member)
        elif fault == "leave":
            member.terminate()
            assert await member.wait() == 0
        else:
            member.kill()
            await member.wait()
            members.append(await new_member(seconds, store, standbys))

    async def all_committed() -> bool:
        found = await cluster.admin.list_consumer_group_offsets(f"{topic_prefix}-group", partitions=tps)
        return [found[tp].offset for tp in tps if tp in found] == [each_has] * PARTITIONS

    await until(all_committed, timeout=STUCK_SECONDS)
    for member in members:
        member.terminate()
    assert [await member.wait() for member in members] == [0] * len(members)
    await compare(cluster, topic_prefix, truth)
    log_it.warning("%d calls for %d events", calls(), events)
