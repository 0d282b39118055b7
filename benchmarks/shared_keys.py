"""What sharing hot keys gives a group of members: how much of all lanes' work is done, what is written for it, p99.

    python benchmarks/handlers.py --only shared [--seconds 60] [--call 0.005] [--members 12] [--lanes 16]

A member is a process with so many lanes, its handler sleeps for a call of `--call` seconds. Events are written live, by
four laws: one key of 40 %, Zipf 1, uniform, and a new key of 50 % every 30 s. A row is two runs. In the first one a
twentieth more is written than all lanes can do, calls taken as long as they are to sleep: *efficiency* is what was
handled of what they can, calls taken as long as they were measured. *Written* are the events given to other members,
and in brackets this over what evenness needs: what partitions have above the mean, second by second. In the second one
60 % of it is written: p99 is from an event's time to the end of its call. `split` is beside the same lanes without it,
and beside members that handle one event after another. By `--ways merged,state` handlers count in a state of each key:
of hot keys that are shared, with partial states that are merged, or of keys that stay whole. `--ways share` is
Kafka's own share group (KIP-932) beside it, with members in Java (`ShareGroup.java`): it needs a JDK.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_app import App, Event, State
from keygrouping_local.jars import default_jars_dir, require_jars

SHARED = ("split", "merged")
"""Ways by which hot keys are shared."""
JAVA = Path(__file__).with_name("ShareGroup.java")
JVM_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
KEYS = 10_000
UNIFORM_KEYS = 100_000
"""So many that partitions get as good as the same."""
DRIFT_SECONDS = 30.0
OVERLOAD, USUAL = 1.05, 0.6
START_SECONDS = 180.0
STEADY_SECONDS = 8.0
"""After all members have had events, for rebalances and first plans."""
WRITE_SECONDS = 0.02


@dataclass(frozen=True)
class Group:
    """What a run is about; `way`: split, lanes, serial, merged, state or share; `law`: see `LAWS`."""

    servers: str
    topic: str
    folder: str
    members: int
    call: float
    lanes: int
    way: str = "split"
    law: str = "uniform"
    seconds: float = 60.0
    part: float = USUAL

    @property
    def all_lanes(self) -> int:
        """Of all members."""
        return self.members * self.lanes

    @property
    def rate(self) -> float:
        """Events a second that all lanes can do."""
        return self.all_lanes / self.call


@dataclass
class Count:
    """A state."""

    events: int = 0


def merge(left: Count, right: Count) -> None:
    """The events of both."""
    left.events += right.events


OPTIONS: dict[str, dict[str, Any]] = {
    "split": {"split": True},
    "merged": {"split": True, "state": State(Count, merge=merge)},
    "state": {"state": Count},
}
"""What the handler has, but for its lanes; without order if nothing is said."""


def member(group: Group, number: int) -> None:
    """One member, which writes a line each second: time, events, seconds of calls, and waits in ms."""
    app = App(group.topic, brokers=group.servers, dead_letters=f"{group.topic}-dead")
    events, seconds, waits = 0, 0.0, list[int]()
    told = 0

    async def work(event: Event) -> None:
        nonlocal events, seconds, told
        began = time.perf_counter()
        await asyncio.sleep(group.call)
        seconds += time.perf_counter() - began
        events += 1
        now = time.time()
        waits.append(int(1000 * now) - event.time)
        if int(now) > told:
            file.write(json.dumps([now, events, seconds, waits]) + "\n")
            file.flush()
            told, events, seconds = int(now), 0, 0.0
            waits.clear()

    async def count(event: Event, state: Count) -> None:
        await work(event)
        state.events += 1

    given = OPTIONS.get(group.way, {"order": None})
    app.on(group.topic, concurrency=group.lanes, **given)(count if "state" in given else work)
    with (Path(group.folder) / f"{number}.jsonl").open("w") as file:
        app.run()


def _hot(part: float) -> Callable[[random.Random, float], bytes]:
    return lambda chance, _: b"hot" if chance.random() < part else b"k%d" % chance.randrange(UNIFORM_KEYS)


def _zipf() -> Callable[[random.Random, float], bytes]:
    weights = list(accumulate(1 / (rank + 1) for rank in range(KEYS)))
    return lambda chance, _: b"k%d" % bisect_left(weights, chance.random() * weights[-1])


def _drift(chance: random.Random, second: float) -> bytes:
    return b"hot%d" % (second // DRIFT_SECONDS) if chance.random() < 0.5 else b"k%d" % chance.randrange(UNIFORM_KEYS)


LAWS: dict[str, Callable[[random.Random, float], bytes]] = {
    "one key of 40 %": _hot(0.4),
    "Zipf 1": _zipf(),
    "uniform": _hot(0.0),
    "a new key of 50 % every 30 s": _drift,
}


class Source:
    """Writes events at a rate, and counts them by second and partition."""

    def __init__(self, group: Group, producer: AIOKafkaProducer) -> None:
        self._group = group
        self._producer = producer
        self._chance = random.Random(1)
        self.counts: defaultdict[int, Counter[int]] = defaultdict(Counter)

    async def write(self, rate: float, until: Callable[[], bool], law: str) -> None:
        """At this rate, until it says so."""
        key_of, began, number = LAWS[law], time.perf_counter(), 0
        while not until():
            passed = time.perf_counter() - began
            rows: defaultdict[int, list[bytes]] = defaultdict(list)
            for _ in range(int(passed * rate) - number):
                key = key_of(self._chance, passed)
                rows[zlib.crc32(key) % self._group.members].append(key)
                number += 1
            now = time.time()
            for partition, keys in rows.items():
                self.counts[int(now)][partition] += len(keys)
                batch = self._producer.create_batch()
                for key in keys:
                    batch.append(timestamp=int(1000 * now), key=key, value=b"1")
                await self._producer.send_batch(batch, self._group.topic, partition=partition)
            await asyncio.sleep(WRITE_SECONDS)

    def needed(self, since: float, until: float) -> int:
        """Events that partitions had above the mean."""
        found = 0.0
        for second, counts in self.counts.items():
            if since <= second < until:
                mean = counts.total() / self._group.members
                found += sum(max(0.0, count - mean) for count in counts.values())
        return int(found)


@dataclass(frozen=True)
class Told:
    """Of a run: events a second over what all lanes can, ms, events given to others and those that had to be."""

    efficiency: float
    p99: float
    written: int
    needed: int


class Lines:
    """What the members have told."""

    def __init__(self, group: Group) -> None:
        self._paths = [Path(group.folder) / f"{number}.jsonl" for number in range(group.members)]

    def between(self, since: float, until: float) -> Iterator[list[list[float]]]:
        """The lines of each member."""
        for path in self._paths:
            lines = path.read_text().splitlines() if path.exists() else []
            told = [json.loads(line) for line in lines if line.endswith("]")]
            yield [line for line in told if since <= line[0] < until]

    def all_at_work(self) -> bool:
        """Whether all have handled something within the last three seconds."""
        return all(self.between(time.time() - 3, time.time() + 1))


def command_of(group: Group, number: int) -> list[str]:
    """What starts this member."""
    if group.way != "share":
        return [sys.executable, __file__, json.dumps(asdict(group)), str(number)]
    path = ":".join(map(str, require_jars("broker", default_jars_dir())))
    file = Path(group.folder) / f"{number}.jsonl"
    given = (group.servers, group.topic, str(group.call), str(group.lanes), str(file))
    return ["java", *JVM_OPTIONS, "-cp", path, str(JAVA), *given]


@contextmanager
def running(group: Group) -> Iterator[list[subprocess.Popen[bytes]]]:
    """All members."""
    with ExitStack() as stack:
        found = []
        for number in range(group.members):
            found.append(stack.enter_context(subprocess.Popen(command_of(group, number))))
            stack.callback(found[-1].kill)
        yield found
        for each in found:
            each.send_signal(signal.SIGTERM)
        for each in found:
            each.wait(60)


async def run(group: Group) -> Told:
    """Starts the members, writes to them, and tells what they did."""
    admin = AIOKafkaAdminClient(bootstrap_servers=group.servers)
    producer = AIOKafkaProducer(bootstrap_servers=group.servers)
    await admin.start()
    await admin.create_topics([NewTopic(group.topic, group.members, 1), NewTopic(f"{group.topic}-dead", 1, 1)])
    await producer.start()
    source, lines, deadline = Source(group, producer), Lines(group), time.time() + START_SECONDS
    with running(group):
        await source.write(group.rate / 20, lambda: lines.all_at_work() or time.time() > deadline, "uniform")
        if not lines.all_at_work():
            raise TimeoutError(f"not all members of {group.topic} have had events after {START_SECONDS:.0f} s")
        ready = time.time()
        begun = ready + STEADY_SECONDS
        end = begun + group.seconds

        def over() -> bool:
            return time.time() >= end

        writing = asyncio.create_task(source.write(group.part * group.rate, over, group.law))
        await asyncio.sleep(STEADY_SECONDS)
        before = await surplus(group)
        await writing
        after = await surplus(group)
        told = list(lines.between(begun, end))
    await producer.stop()
    await admin.close()
    events = sum(line[1] for each in told for line in each)
    calls = sum(line[2] for each in told for line in each)
    waits = sorted(wait for each in told for line in each for wait in line[3])  # type: ignore[attr-defined]
    able = group.all_lanes * group.seconds / (calls / events)
    return Told(events / able, waits[len(waits) * 99 // 100], after - before, source.needed(begun, end))


def measured(group: Group) -> Told:
    """A run with a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(replace(group, folder=folder)))


async def surplus(group: Group) -> int:
    """Records in all slots."""
    if group.way not in SHARED:
        return 0
    topic = f"{group.topic}.overflow"
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=group.servers)
    await consumer.start()
    ends = await consumer.end_offsets([TopicPartition(topic, slot) for slot in consumer.partitions_for_topic(topic)])
    await consumer.stop()
    return sum(ends.values())


def table(servers: str, options: argparse.Namespace) -> Iterator[str]:
    """Row after row."""
    p99s: dict[str, float] = {}
    for number, law in enumerate(["uniform", *(law for law in LAWS if law != "uniform")]):
        for way in options.ways.split(","):
            topic = f"shared-{number}-{way}"
            lanes = 1 if way == "serial" else options.lanes
            group = Group(servers, topic, "", options.members, options.call, lanes, way, law, options.seconds, OVERLOAD)
            full = measured(group)
            usual = measured(replace(group, topic=f"{topic}-usual", part=USUAL))
            if law == "uniform" and way in SHARED:
                p99s[way] = usual.p99
            ratio = f" ({usual.p99 / p99s[way]:.2f} x uniform)" if way in p99s else ""
            written = (
                f", written {full.written:,} ({full.written / max(1, full.needed):.2f} x)" if way in SHARED else ""
            )
            yield f"{law}, {way}: efficiency {full.efficiency:.3f}{written}, p99 {usual.p99:,.0f} ms{ratio}"


if __name__ == "__main__":
    member(Group(**json.loads(sys.argv[1])), int(sys.argv[2]))
