"""What an outage of Redis costs the routing: a server that hangs, and one that is gone.

    python benchmarks/outage.py [--records 9000000] [--rounds 2] [--grouping level-fill]

One router with a Redis store processes a preloaded topic in equal parts of its records, in turns with the server up,
frozen (it accepts connections and never answers) and killed; measured from outside, by the committed offsets.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from api import PARTITIONS, Part, cost_of, rate_of, running_router
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.redis_server import RedisServer
from router import WORKERS, create_topics, preload

Switch = Callable[[], None]


async def benchmark(servers: str, redis: RedisServer, options: argparse.Namespace) -> None:
    """Measures, and prints the table."""
    await create_topics(servers, PARTITIONS)
    await preload(servers, PARTITIONS, options)
    outages: dict[str, tuple[Switch, Switch]] = {
        "frozen": (redis.freeze, redis.thaw),
        "killed": (redis.kill, redis.start),
    }
    targets = _targets(options.records, 1 + 4 * options.rounds)
    parts: dict[str, list[Part]] = {"up": [], **{name: [] for name in outages}}
    store = {"KEYGROUPING_STORE_URL": f"redis://{redis.address}"}
    async with running_router(servers, options, **store) as router:
        await router.reach(next(targets))
        for _ in range(options.rounds):
            for name, (begin, end) in outages.items():
                parts["up"].append(await router.part(next(targets)))
                begin()
                try:
                    parts[name].append(await router.part(next(targets)))
                finally:
                    end()
    print_table(parts, options)


def _targets(records: int, parts: int) -> Iterator[int]:
    return iter(range(records // parts, records + 1, records // parts))


def print_table(parts: dict[str, list[Part]], options: argparse.Namespace) -> None:
    """Rates of each state of the server, and their ratio to the rate while it is up."""
    print(f"{options.records:,} records of {options.value_bytes} bytes, {PARTITIONS} partitions, {WORKERS} workers")
    for name, measured in parts.items():
        ratio = rate_of(measured) / rate_of(parts["up"])
        single = "  ".join(f"{part.per_second:>9,.0f}" for part in measured)
        cost = f"{cost_of(measured):5.2f} µs of CPU each"
        print(f"{name:<7} {rate_of(measured):>9,.0f} records/s  {ratio:5.2f} of up  {cost}   parts: {single}")


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=9_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--grouping", default="level-fill")
    parser.add_argument("--delivery", default="exactly_once")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--max-batch", type=int, help="of the router, if not its own default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        with EmbeddedBroker(data / "broker") as broker, RedisServer(data / "redis") as redis:
            asyncio.run(benchmark(broker.bootstrap_servers, redis, options))


if __name__ == "__main__":
    main()
