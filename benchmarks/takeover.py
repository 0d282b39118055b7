"""How long a partition with states is without a member when its owner goes: with standby copies, and without.

    python benchmarks/takeover.py [--states 1000000] [--bytes 1000] [--standbys 0 1] [--store memory]

An embedded broker, a topic of one partition, and an app of two members, each a process. The first one has all states.
Then it ends by SIGTERM, and hands over; then the other one is killed, which the group notices after `session_timeout`,
the shortest 6 s. Meanwhile an event is written every 50 ms: told is the longest time without an output.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
import urllib.request
from asyncio.subprocess import Process
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping.app import App, Event, Output, State
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import free_ports
from keygrouping_service.testing import until

_PAUSE_SECONDS = 0.05
_OUTPUTS = 100
"""Before the owner goes."""
_LONGEST = 1800.0
"""Seconds that anything may take."""
_FULL = "x" * 10
"""What an event says that fills its state, and gets no answer."""


@dataclass
class Note:
    """A state of so many bytes."""

    text: str = ""


def member(brokers: str, name: str, port: int, standbys: int, store: Any, size: int) -> None:
    """A member of the app, until it is ended."""
    app = App(name, brokers=brokers, dead_letters=f"{name}.dead", session_timeout=6, port=port)

    @app.on(f"{name}.in", state=State(Note, standbys=standbys, store=store))
    async def note(event: Event, kept: Note) -> Output | None:
        if event.value == _FULL:
            kept.text = "x" * size
            return None
        return Output(f"{name}.out", [event.value, len(kept.text)], key=event.key)

    app.run()


class Run:
    """One app and its two members."""

    def __init__(self, arguments: argparse.Namespace, brokers: str, standbys: int) -> None:
        self._arguments, self._brokers, self._standbys = arguments, brokers, standbys
        self._name = f"standbys-{standbys}"

    async def measure(self) -> None:
        """Fills the states, has one member follow the other, and prints how long each takeover takes."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._brokers)
        await admin.start()
        topics = [f"{self._name}.{each}" for each in ("in", "out", "dead")]
        await admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
        await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=self._brokers, linger_ms=5) as producer:
            self._producer = producer
            first, port = await self._begin()
            for number in range(self._arguments.states):
                await producer.send(topics[0], b'"%s"' % _FULL.encode(), b"%d" % number)
            await self._reach(port, "states", self._arguments.states)
            second, other_port = await self._begin()
            await self._follow(other_port)
            await self._measure_gap(first, "ends", first.terminate)
            third, third_port = await self._begin()
            await self._follow(third_port)
            await self._measure_gap(second, "is killed", second.kill)
            third.kill()
            await third.wait()

    async def _begin(self) -> tuple[Process, int]:
        (port,) = free_ports(1)
        given = (self._brokers, self._name, port, self._standbys, self._arguments.store, self._arguments.bytes)
        return await asyncio.create_subprocess_exec(sys.executable, __file__, "member", *map(str, given)), port

    async def _follow(self, port: int) -> None:
        """Until the member has joined, and has its copy if it is to have one."""
        await self._reach(port, "ready", 1)
        if self._standbys:
            await self._reach(port, "standby_partitions", 1)
            await self._reach(port, "standby_left_offsets", 0)

    async def _measure_gap(self, member_: Process, how: str, end: Callable[[], None]) -> None:
        """Ends the member once outputs come as events are written, and reads until they do so again."""
        topic, times, behind = f"{self._name}.out", list[float](), -1
        async with AIOKafkaConsumer(topic, bootstrap_servers=self._brokers) as consumer:
            writing = asyncio.create_task(self._keep_writing())
            ending: asyncio.Task[int] | None = None
            while ending is None or behind or not ending.done():
                record = await asyncio.wait_for(consumer.getone(), _LONGEST)
                number, size = json.loads(record.value)
                assert size == self._arguments.bytes, "a state is lost"
                times.append(time.monotonic())
                behind = self._written - number - 1
                if ending is None and not behind and len(times) > _OUTPUTS:
                    del times[:-1]
                    end()
                    ending = asyncio.create_task(member_.wait())
            writing.cancel()
        gap = max(after - before for before, after in itertools.pairwise(times))
        told = self._arguments.states * self._arguments.bytes / 1e6
        print(f"{told:,.0f} MB, {self._standbys} standby copies, the owner {how}: {gap:.1f} s", flush=True)

    async def _keep_writing(self) -> None:
        self._written = 0
        while True:
            await self._producer.send(f"{self._name}.in", b"%d" % self._written, b"7")
            self._written += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _reach(self, port: int, metric: str, wanted: int) -> None:
        async def is_reached() -> bool:
            return await asyncio.to_thread(_metric, port, metric) == wanted

        await until(is_reached, timeout=_LONGEST)


def _metric(port: int, name: str) -> float | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return None
    values = [line.split()[-1] for line in lines if line.startswith(f"keygrouping_app_{name}{{")]
    return sum(map(float, values)) if values else None


async def _measure_all(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        for standbys in arguments.standbys:
            await Run(arguments, broker.bootstrap_servers, standbys).measure()


def main() -> None:
    """Run the benchmark, or one of its members."""
    if sys.argv[1:2] == ["member"]:
        brokers, name, port, standbys, store, size = sys.argv[2:]
        member(brokers, name, int(port), int(standbys), store, int(size))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=1000, help="of each state")
    parser.add_argument("--standbys", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--store", choices=("memory", "disk"), default="memory")
    asyncio.run(_measure_all(parser.parse_args()))


if __name__ == "__main__":
    main()
