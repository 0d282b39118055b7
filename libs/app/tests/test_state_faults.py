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
import urllib.request
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping_app.kafka.clients import started
from keygrouping_local.ports import free_ports
from keygrouping_service.records.record import Record
from keygrouping_service.testing import Cluster, until

from .strikes import Member, shuffled, strike

pytestmark = pytest.mark.kafka

log_it = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("state_program.py")
PARTITIONS, SLOTS = 4, 8
STUCK_SECONDS = 240.0
NONE, ORDERED, PLANNED = "none", "ordered", "mixed"
"""How keys move."""
NewMember = Callable[..., Awaitable[Member]]


@pytest.fixture
async def new_member(cluster: Cluster, topic_prefix: str, tmp_path: Path, ports: set[int]) -> AsyncIterator[NewMember]:
    """Starts a member; those that are left are killed."""
    started: list[Member] = []

    async def start(seconds: float, store: str, standbys: int, moves: str, *struck: str) -> Member:
        (port,) = free_ports(1)
        ports.add(port)
        log, options = str(tmp_path / "log"), (str(seconds), store, str(standbys), moves, str(port))
        arguments = (cluster.bootstrap_servers, topic_prefix, log, *options, *struck)
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


@pytest.fixture
def ports() -> set[int]:
    """Those of all members that were started."""
    return set()


class Mover:
    """Has keys handed over at random, by any member that takes it."""

    def __init__(self, ports: set[int], keys: list[str]) -> None:
        self._ports = ports
        self._keys = keys
        self._chance = random.Random(3)
        self._there: set[int] = set()
        self.taken = 0

    async def keep(self) -> None:
        """Goes on until it is cancelled, several at once: an order waits for members that start or have been killed."""
        await asyncio.gather(*(self._keep() for _ in range(4)))

    async def _keep(self) -> None:
        while True:
            key, slot = self._chance.choice(self._keys), self._chance.choice([None, *range(SLOTS)])
            for port in list(self._ports):
                taken = await asyncio.to_thread(self._ask, port, key, slot)
                self.taken += taken

    def _ask(self, port: int, key: str, slot: int | None) -> bool:
        body = json.dumps({"slot": slot}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/keys/{key}/slot", body, method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self._there.add(port)
                return bool(answer.status == HTTPStatus.ACCEPTED)
        except OSError as error:
            assert getattr(error, "code", HTTPStatus.CONFLICT) in {404, 409, 503}
            if port in self._there and isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                self._ports.discard(port)  # It was killed.
            return False


class Watcher:
    """Counts the keys that members hand over by plan."""

    def __init__(self, ports: set[int]) -> None:
        self._ports = ports
        self._done: dict[int, int] = {}

    @property
    def taken(self) -> int:
        return sum(self._done.values())

    async def keep(self) -> None:
        """Goes on until it is cancelled; what a member has done since it was asked last is lost when it is killed."""
        while True:
            for port in list(self._ports):
                with suppress(OSError):
                    self._done[port] = await asyncio.to_thread(self._ask, port)
            await asyncio.sleep(0.5)

    def _ask(self, port: int) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/keys", timeout=60) as answer:
            (handler,) = json.load(answer)["handlers"]
        done: int = handler["moves"]["done"]
        return done


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
        count = before["count"] + 1
        ballast = count % 4 * 200_000 if key in {"p0-39", "p1-38"} else 0
        digest = hashlib.sha256(f"{before['digest']} {identity} {value}".encode()).hexdigest()
        self.states[key] = {
            "count": count,
            "total": before["total"] + value,
            "digest": digest,
            "ballast": "x" * ballast,
        }
        self.outputs[key].append([identity, count, digest])


def text(data: bytes | None) -> str:
    return (data or b"").decode()


PART = b"\0keygrouping-part:"


def whole(records: Sequence[Record]) -> dict[tuple[int, str], bytes | None]:
    """What the last record of each partition and key says, with the parts of its state."""
    last = {(each.partition, each.key): each for each in records}
    parts: defaultdict[tuple[int, bytes], dict[int, bytes]] = defaultdict(dict)
    for partition, key in [place for place in last if (place[1] or b"").startswith(PART)]:
        _, number, of = (key or b"").split(b":", 2)
        if (value := last.pop((partition, key)).value) is not None:
            parts[partition, of][int(number)] = value
    found: dict[tuple[int, str], bytes | None] = {}
    for (partition, key), each in last.items():
        mine = parts.pop((partition, key or b""), {})
        is_place = any(header == "keygrouping-place" for header, _ in each.headers)
        value = None if is_place or each.value is None else each.value + b"".join(mine[n] for n in sorted(mine))
        assert value is not None or not mine
        found[partition, text(key)] = value
    assert not parts
    return found


async def states_in(cluster: Cluster, name: str) -> dict[str, Any]:
    """What changelogs say at the end, of inputs and of slots; each key has a state in one of them."""
    states = [(key, value) for (_, key), value in whole(await cluster.read(f"{name}.states")).items()]
    group, _, _ = name.partition(".")
    if (of_slots := f"{group}.{name}.moved.states") in await cluster.admin.list_topics():
        found = whole(await cluster.read(of_slots))
        states += [(key.split(":", 1)[1], value) for (_, key), value in found.items()]
    states = [(key, value) for key, value in states if value is not None]
    assert len(dict(states)) == len(states)
    return {key: json.loads(value or b"") for key, value in states}


async def compare(cluster: Cluster, prefix: str, truth: Truth) -> None:
    """What the broker holds with the truth; the order within each key, too."""
    assert await states_in(cluster, f"{prefix}-group.{prefix}-in") == truth.states
    outputs: defaultdict[str, list[list[Any]]] = defaultdict(list)
    for record in await cluster.read(f"{prefix}-out"):
        outputs[text(record.key)].append(json.loads(text(record.value)))
    assert outputs == truth.outputs
    letters = [dict(record.headers) for record in await cluster.read(f"{prefix}-dead")]
    assert Counter(text(each["keygrouping-identity"]) for each in letters) == Counter(truth.dead)
    assert {text(each["keygrouping-reason"]) for each in letters} <= {"rejected"}


async def end(cluster: Cluster, prefix: str, tps: list[TopicPartition], members: list[Member]) -> None:
    """Waits until all of these is committed, then ends the members."""

    async def all_committed() -> bool:
        found = await cluster.admin.list_consumer_group_offsets(f"{prefix}-group", partitions=tps)
        async with started(AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)) as reader:
            ends = await reader.end_offsets(tps)
        return all(tp in found and max(0, found[tp].offset) >= ends[tp] for tp in tps)

    await until(all_committed, timeout=STUCK_SECONDS)
    for member in members:
        member.terminate()
    assert [await member.wait() for member in members] == [0] * len(members)


def part(
    name: str,
    store: str,
    standbys: int,
    *,
    moves: str = NONE,
    events: int = 20_000,
    seconds: float = 0.01,
    faults: Sequence[str] = tuple(shuffled(12, 6, 2)),
) -> Any:
    """A form that takes long, of this name: a tenth of the whole one if nothing else is said."""
    marks = [pytest.mark.fault, pytest.mark.timeout(0)]
    return pytest.param(events, faults, seconds, store, standbys, moves, marks=marks, id=name)


@pytest.mark.parametrize(
    ("events", "faults", "seconds", "store", "standbys", "moves"),
    [
        pytest.param(1_200, ["kill", "join", "leave"], 0.005, "memory", 0, NONE, id="short"),
        pytest.param(1_200, ["kill", "join", "leave"], 0.005, "memory", 1, NONE, id="short-standbys"),
        pytest.param(4_000, [], 0.005, "memory", 0, ORDERED, id="calm-moves"),
        pytest.param(4_000, ["kill", "join", "leave"], 0.005, "memory", 0, ORDERED, id="short-moves"),
        part("part-moves", "memory", 0, moves=ORDERED),
        part("part-planned", "memory", 0, moves=PLANNED, events=60_000, seconds=0.02),
        part("part-moves-disk-standbys", "disk", 1, moves=ORDERED),
        part("part-memory", "memory", 0),
        part("part-standbys", "memory", 2),
        part("part-disk", "disk", 1),
        part("whole", "memory", 1, moves=ORDERED, events=200_000, faults=shuffled(100, 30, 10)),
        part("longest", "memory", 1, moves=ORDERED, events=800_000, faults=shuffled(500, 100, 20)),
    ],
)
async def test_states_and_outputs_are_exact_under_kills_and_rebalances(
    cluster: Cluster,
    topic_prefix: str,
    tmp_path: Path,
    new_member: NewMember,
    ports: set[int],
    events: int,
    faults: Sequence[str],
    seconds: float,
    store: str,
    standbys: int,
    moves: str,
) -> None:
    topic, chance, handled = f"{topic_prefix}-in", random.Random(9), tmp_path / "log"
    await cluster.create(**{topic: PARTITIONS, f"{topic_prefix}-out": 2, f"{topic_prefix}-dead": 1})
    truth = Truth(topic, events)
    for partition, rows in truth.rows.items():
        await cluster.write(topic, rows, partition)
    members = [await new_member(seconds, store, standbys, moves) for _ in range(2)]

    mover = Watcher(ports) if moves == PLANNED else Mover(ports, list(truth.states))
    moving = asyncio.create_task(asyncio.sleep(0) if moves == NONE else mover.keep())

    def calls() -> int:
        return handled.stat().st_size if handled.exists() else 0

    tps = [TopicPartition(topic, each) for each in range(PARTITIONS)]

    async def reach(part: float) -> None:
        wanted = part * sum(map(len, truth.outputs.values()))
        await until(lambda: calls() >= wanted, timeout=STUCK_SECONDS)

    for number, fault in enumerate(faults):
        await reach(0.9 * number / len(faults))
        log_it.info("%d calls: fault %d of %d: %s", calls(), number, len(faults), fault)
        await strike(fault, members, chance, partial(new_member, seconds, store, standbys, moves))

    if moves != NONE:
        await reach(0.95)
        tps += [TopicPartition(f"{topic_prefix}-group.{topic}.moved", each) for each in range(SLOTS)]
        moving.cancel()

    await end(cluster, topic_prefix, tps, members)
    await compare(cluster, topic_prefix, truth)
    log_it.warning("%d calls for %d events, %d keys handed over", calls(), events, mover.taken)
    if moves == ORDERED:  # or faults met too few of them to say anything
        assert mover.taken > 10 * max(4, len(faults))
    elif moves == PLANNED:
        assert mover.taken > len(faults)


STEPS = ("sends", "forwards", "handles-at-slot", "calls", "sends-on", "sends-home")
"""Of a hand-over, see `state_program.step_of`."""


@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["before", "open", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_states_and_outputs_are_exact_whoever_dies_at_which_step_of_a_hand_over(
    cluster: Cluster,
    topic_prefix: str,
    tmp_path: Path,
    new_member: NewMember,
    ports: set[int],
    step: str,
    moment: str,
) -> None:
    """Three members one after another, beside one that lives: as the model has it in `model/hand_over.py`."""
    topic, handled = f"{topic_prefix}-in", tmp_path / "log"
    await cluster.create(**{topic: PARTITIONS, f"{topic_prefix}-out": 2, f"{topic_prefix}-dead": 1})
    truth = Truth(topic, 16_000)
    for partition, rows in truth.rows.items():
        await cluster.write(topic, rows, partition)
    start = partial(new_member, 0.05, "memory", 0, ORDERED)
    members = [await start(step, moment), await start()]
    mover = Mover(ports, list(truth.states))
    moving = asyncio.create_task(mover.keep())
    for more in ((step, moment), (step, moment), ()):
        assert await asyncio.wait_for(members[0].wait(), STUCK_SECONDS) == -signal.SIGKILL
        members[0] = await start(*more)
    outputs = sum(map(len, truth.outputs.values()))
    await until(lambda: handled.exists() and handled.stat().st_size >= 0.95 * outputs, timeout=STUCK_SECONDS)
    moving.cancel()
    tps = [TopicPartition(topic, each) for each in range(PARTITIONS)]
    tps += [TopicPartition(f"{topic_prefix}-group.{topic}.moved", each) for each in range(SLOTS)]
    await end(cluster, topic_prefix, tps, members)
    await compare(cluster, topic_prefix, truth)
