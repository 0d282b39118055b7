"""Memory of open groups: so many keys with one event each, in a window that stays open, by both runners.

    python benchmarks/open_groups.py [--groups 1000000] [--steps 4] [--runners native spark]

After each part of the keys it waits until all their partials are merged, and looks at what each process holds, with its
children. At the end the input is finished, and the results are compared with what a single thread computes. The job
counts, and sums two fields; Spark has its RocksDB state, and the heap that is given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deployment, Event, Shape
from pipeline import PARTITIONS, STAGES, ready, start

JOB = {
    "window": "1d",
    "lateness": "0s",
    "aggregates": [
        {"name": "events", "op": "count"},
        {"name": "a", "op": "sum", "field": "a"},
        {"name": "b", "op": "sum", "field": "b"},
    ],
}
_LIMIT_SECONDS, _REST_SECONDS = 900.0, 15.0


def events(begin: int, end: int, time_ms: int) -> Iterator[Event]:
    """One of each key."""
    for number in range(begin, end):
        yield Event(number % PARTITIONS, b"key-%08d" % number, b'{"a":%d,"b":%d}' % (number, -number), time_ms)


async def merged(deployment: Deployment) -> float:
    """Returns when no stage has committed anything new for a while; gives when one did last.

    The ends of topics say less: what stands there last may be markers of transactions.
    """
    await deployment.until(deployment.is_routed, _LIMIT_SECONDS)
    last, since = None, time.monotonic()
    while time.monotonic() < since + _REST_SECONDS:
        stages = [await deployment.committed(stage) for stage in ("worker", "aggregator")]
        now = [{partition: entry.offset for partition, entry in stage.items()} for stage in stages]
        if now != last:
            last, since = now, time.monotonic()
        await asyncio.sleep(0.2)
    return since


async def measure(broker: EmbeddedBroker, runner: str, options: argparse.Namespace) -> None:
    """Prints a line for each part."""
    step, time_ms = options.groups // options.steps, int(time.time() * 1000)
    with tempfile.TemporaryDirectory() as folder:
        application = f"{runner}-{uuid.uuid4().hex[:6]}"
        shape = Shape(PARTITIONS, options.workers)
        place = Path(folder)
        async with Deployment(broker.bootstrap_servers, application, place, json.dumps(JOB), shape=shape) as deployment:
            await begin(deployment, runner, options)
            show(deployment, runner, 0, 0.0)
            for part in range(options.steps):
                began = time.monotonic()
                await deployment.write(events(part * step, (part + 1) * step, time_ms))
                show(deployment, runner, (part + 1) * step, await merged(deployment) - began)
            began = time.monotonic()
            await deployment.finish()
            await deployment.until(deployment.is_final, _LIMIT_SECONDS)
            show(deployment, f"{runner}, closed", step * options.steps, time.monotonic() - began)
            exact = (await deployment.check()).equal
            print(f"{runner}: results are {'exact' if exact else 'WRONG'}", flush=True)


async def begin(deployment: Deployment, runner: str, options: argparse.Namespace) -> None:
    """Starts all, Spark with this heap."""
    if runner != "spark":
        await start(deployment, runner, options.workers)
        return
    deployment.start("spark-0", driver_memory=options.heap, java_options="-XX:+UseSerialGC")
    await ready(deployment, STAGES[runner])
    deployment.start("router-0", workers=options.workers, grouping="pkg", idle_timeout=3600)
    await ready(deployment, ["router-0"])


def show(deployment: Deployment, what: str, groups: int, seconds: float) -> None:
    """MiB of each process with its children; what several share counts once."""
    found = []
    for name in deployment.names:
        process = psutil.Process(deployment.pid(name))
        held = sum(each.memory_full_info().pss for each in (process, *process.children(recursive=True)))
        found.append(f"{name} {held / 2**20:,.0f}")
    print(f"{what}: {groups:>9,} groups after {seconds:5.0f} s, MiB: {', '.join(found)}", flush=True)


async def main(options: argparse.Namespace) -> None:
    """Measures the runners in turn."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        for runner in options.runners:
            await measure(broker, runner, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--heap", default="1g", help="of Spark's driver")
    parser.add_argument("--runners", nargs="+", default=["native", "spark"], choices=["native", "spark"])
    asyncio.run(main(parser.parse_args()))
