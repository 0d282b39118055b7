"""How long a key is held while it is handed over with its state, and what other keys notice of it.

    python benchmarks/hand_over.py [--bytes 1000 10000000] [--rate 5000] [--rounds 6] [--pause 1.5]

An embedded broker, a topic of two partitions, and an app of two members, each a process, exactly once. Events of 1,000
keys come at the rate, with states of 100 bytes, and 50 events per second of one key with a state of so many bytes.
In each round nothing moves for some seconds, then that key goes to a slot of the other member, to one of its own, and
home again, and once more: what the machine does besides is in both parts alike. Told is how long the key was held, from
the order on until its events could go on, and the latency from an event's write to its handler: of the key in the
second after each order, be it held or at a slot, to which its events are written first, and of all others while nothing
moves and while the key does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from asyncio.subprocess import Process
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain, pairwise
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from asked import first_slot, is_ready, metric
from keygrouping.app import App, Event, State
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import free_ports
from keygrouping_service.testing import until

_KEYS = 1000
_MOVED = b"moved"
_MOVED_RATE = 50
_TICK_SECONDS = 0.01
_FIRST_SECONDS = 10.0
"""In which nothing is looked at: all has just begun."""
_MOVES = 6
"""Of a round; the last one goes home."""
_MOVE_SECONDS = 1.4
"""After an order, in which events of the key are looked at."""
_LONGEST = 300.0


class Blob:
    """A state of so many bytes."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data


class BlobCodec:
    """Its bytes as they are: a handler that parses 10 MB for each event would be told of otherwise."""

    def encode(self, blob: Blob) -> bytes:
        return blob.data

    def decode(self, data: bytes) -> Blob:
        return Blob(data)


def member(brokers: str, name: str, port: int, size: int, log: str) -> None:
    """A member of the app, until it is ended: then it writes down what it has seen."""
    app = App(name, brokers=brokers, dead_letters=f"{name}.dead", port=port)
    seen: list[tuple[bool, int, int]] = []

    state = State(Blob, codec=BlobCodec(), largest=max(1_000_000, size + 1000), moves="ordered")

    @app.on(f"{name}.in", state=state)
    async def take(event: Event, blob: Blob) -> None:
        now, is_moved = time.monotonic_ns(), event.raw.key == _MOVED
        seen.append((is_moved, now, now - event.value))
        # Both kinds are written once in a while, as states that change are.
        if not blob.data or event.offset % 100 == 0:
            blob.data = os.urandom(8) + bytes((size if is_moved else 100) - 8)

    app.run()
    Path(log).write_text(json.dumps(seen))


@dataclass(frozen=True)
class Round:
    """Nanoseconds of the clock: when its calm part began, when each move was ordered, and when it ended. `held`: for
    how many milliseconds each move held the key."""

    calm_from: int
    orders: list[int]
    until: int
    held: list[float]


class Run:
    """One app and its two members."""

    def __init__(self, arguments: argparse.Namespace, brokers: str, size: int, folder: Path) -> None:
        self._arguments, self._brokers, self._size, self._folder = arguments, brokers, size, folder
        self._name = f"moves-{size}"
        self._ports: list[int] = []
        self._slots: list[int] = []
        """One of each member."""

    async def measure(self) -> None:
        """Prints the latencies."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._brokers)
        await admin.start()
        await admin.create_topics([NewTopic(f"{self._name}.in", 2, 1), NewTopic(f"{self._name}.dead", 1, 1)])
        await admin.close()
        members = [await self._begin(number) for number in range(2)]
        for port in self._ports:
            await until(lambda port=port: asyncio.to_thread(is_ready, port), timeout=_LONGEST)  # type: ignore[misc]
        async with AIOKafkaProducer(bootstrap_servers=self._brokers, linger_ms=2) as producer:
            writing = asyncio.create_task(self._keep_writing(producer))
            await asyncio.sleep(_FIRST_SECONDS)
            self._slots = [await asyncio.to_thread(first_slot, port) for port in self._ports]
            rounds = [await self._round() for _ in range(self._arguments.rounds)]
            writing.cancel()
        await asyncio.sleep(self._arguments.pause)
        for each in members:
            each.terminate()
        assert [await each.wait() for each in members] == [0, 0]
        self._tell(rounds)

    async def _begin(self, number: int) -> Process:
        (port,) = free_ports(1)
        self._ports.append(port)
        given = (self._brokers, self._name, port, self._size, self._folder / f"{self._size}-{number}")
        return await asyncio.create_subprocess_exec(sys.executable, __file__, "member", *map(str, given))

    async def _keep_writing(self, producer: AIOKafkaProducer) -> None:
        began, written, of_moved = time.monotonic(), 0, 0
        while True:
            passed = time.monotonic() - began
            while written < passed * self._arguments.rate:
                await producer.send(f"{self._name}.in", b"%d" % time.monotonic_ns(), b"k%d" % (written % _KEYS))
                written += 1
            while of_moved < passed * _MOVED_RATE:
                await producer.send(f"{self._name}.in", b"%d" % time.monotonic_ns(), _MOVED)
                of_moved += 1
            await asyncio.sleep(_TICK_SECONDS)

    async def _round(self) -> Round:
        calm_from = time.monotonic_ns()
        await asyncio.sleep(_MOVES * self._arguments.pause)
        orders, held = [], [self._held()]
        for number in range(_MOVES):
            orders.append(await self._move(number))
            held.append(self._held())
        return Round(calm_from, orders, time.monotonic_ns(), [1000 * (b - a) for a, b in pairwise(held)])

    async def _move(self, number: int) -> int:
        """Gives when it was ordered."""
        slot = [*self._slots, None][number % 3]

        async def is_taken() -> bool:
            for port in self._ports:
                if await asyncio.to_thread(_ordered, port, slot):
                    return True
            return False

        at = time.monotonic_ns()
        await until(is_taken, timeout=_LONGEST)
        await asyncio.sleep(self._arguments.pause)
        return at

    def _held(self) -> float:
        """For how many seconds keys have been held until now."""
        return sum(metric(port, "move_held_seconds_total") for port in self._ports)

    def _tell(self, rounds: list[Round]) -> None:
        seen = [each for path in self._folder.glob(f"{self._size}-*") for each in json.loads(path.read_text())]
        others = [(at, latency / 1e6) for is_moved, at, latency in seen if not is_moved]
        calm = [[lat for at, lat in others if each.calm_from <= at < each.orders[0]] for each in rounds]
        moving = [[lat for at, lat in others if each.orders[0] <= at < each.until] for each in rounds]
        mine = [(at, latency / 1e6) for is_moved, at, latency in seen if is_moved]
        span = int(1e9 * _MOVE_SECONDS)
        orders = [order for each in rounds for order in each.orders]
        waits = [max(latency for at, latency in mine if order <= at < order + span) for order in orders]
        held = [ms for each in rounds for ms in each.held]
        all_calm, all_moving = [*chain(*calm)], [*chain(*moving)]
        ratios = [_quantile(m, 0.99) / _quantile(c, 0.99) for c, m in zip(calm, moving, strict=True)]
        rate, pause = self._arguments.rate, self._arguments.pause
        print(
            f"{self._size:,} bytes, {rate:,} events/s, {len(orders)} moves, one each {pause:g} s: the key was held for "
            f"{statistics.median(held):.0f} ms in the middle, {max(held):.0f} in the worst, and its events waited "
            f"{statistics.median(waits):.0f} ms at most in the middle, {max(waits):.0f} in the worst; others "
            f"p50 and p99 {_quantile(all_calm, 0.5):.1f} and {_quantile(all_calm, 0.99):.1f} ms in the calm, "
            f"{_quantile(all_moving, 0.5):.1f} and {_quantile(all_moving, 0.99):.1f} ms meanwhile; p99 meanwhile over "
            f"calm by round: {', '.join(f'{each:.2f}' for each in ratios)}",
            flush=True,
        )


def _quantile(values: list[float], part: float) -> float:
    return sorted(values)[int(part * len(values))]


def _ordered(port: int, slot: int | None) -> bool:
    body = json.dumps({"slot": slot}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/keys/{_MOVED.decode()}/slot", body, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == HTTPStatus.ACCEPTED)
    except OSError:
        return False


async def _measure_all(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        for size in arguments.bytes:
            await Run(arguments, broker.bootstrap_servers, size, Path(folder)).measure()


def main() -> None:
    """Run the benchmark, or one of its members."""
    if sys.argv[1:2] == ["member"]:
        brokers, name, port, size, log = sys.argv[2:]
        member(brokers, name, int(port), int(size), log)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, nargs="+", default=[1000, 10_000_000], help="of the key's state")
    parser.add_argument("--rate", type=int, default=5000, help="events per second of the other keys")
    parser.add_argument("--rounds", type=int, default=6, help="each of some calm seconds and as many with moves")
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between two moves")
    asyncio.run(_measure_all(parser.parse_args()))


if __name__ == "__main__":
    main()
