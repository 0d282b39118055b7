"""keygrouping beside other ways to do the same on Kafka: same broker, same input, in turn, in several rounds.

    make bench-peers ARGS="[NAME ...] [--records 1000000] [--rounds 3] [--skew 0.8]"

NAME is a system, a work, `WORK:SYSTEM`, or a full name. `route`: each record to the partition of its key, of ten;
keygrouping sends it where the grouping says. `count`: number and two sums per key and window of 10 s. The input
has 8 partitions, each with all keys, and values of 100 bytes of JSON. Rates go from a contestant's first record to its
last output, so start-up does not count; CPU seconds are those of its processes, and the broker's in the same time. What
comes out is read and compared with the truth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.paths import data_dir, tools_dir
from keygrouping_local.process import last_lines, spawn, terminate

from peers.contestants import CONTESTANTS, SYSTEMS, Contestant, command
from peers.installation import Installation
from peers.meter import Meter
from peers.report import Run, table
from peers.verification import TARGETS, ends, verify
from peers.workload import CLOSING, PARTITIONS, Truth, fill

LIMIT_SECONDS = 300.0
_QUIET_SECONDS = 5.0
"""Without a new output for so long after enough of them, it is looked whether a contestant is done."""
_STALL_SECONDS = 100.0
"""Without one for so long it is, whatever it has written: Kafka Streams writes what has changed every 30 s."""
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Place:
    """What a contestant runs on."""

    servers: str
    broker: int
    folder: Path
    installation: Installation


async def create(servers: str, name: str, partitions: int) -> None:
    """A topic whose records of any time stay."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    settings = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
    await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
    await admin.close()


async def remove(servers: str, kept: Iterable[str]) -> None:
    """Deletes all topics but those and the broker's own."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    doomed = [name for name in await admin.list_topics() if name not in kept and not name.startswith("__")]
    if doomed:
        await admin.delete_topics(doomed)
    await admin.close()


def environment(contestant: Contestant, place: Place, source: str, target: str) -> dict[str, str]:
    """What the programs read."""
    return {
        **os.environ,
        "PEER_BROKERS": place.servers,
        "PEER_SOURCE": source,
        "PEER_TARGET": target,
        "PEER_WORK": contestant.work,
        "PEER_MODE": contestant.mode,
        "PEER_APPLICATION": f"peer-{uuid.uuid4().hex[:8]}",
        "PEER_FOLDER": str(place.folder),
        "PEER_THREADS": str(contestant.threads),
        "PEER_SPARK_JARS": place.installation.spark_jars,
        "PYTHONPATH": str(SYSTEMS),
    }


async def outputs(
    servers: str, target: str, process: subprocess.Popen[bytes], needed: int, is_right: Callable[[], Awaitable[bool]]
) -> tuple[str, float]:
    """Waits until a contestant has written all it will; how that ended, and when its last output came.

    One that has written enough and pauses may still be at it, such as in a rebalance: what is there decides.
    """
    began = changed = time.time()
    written = judged = 0
    while True:
        now = time.time()
        if (found := await ends(servers, target)) != written:
            written, changed = found, now
        quiet = now - changed > _QUIET_SECONDS
        if quiet and written >= needed and written != judged:
            judged = written
            if await is_right():
                return "ok", changed
        if now - changed > _STALL_SECONDS and written >= needed:
            return "ok", changed
        if quiet and process.poll() is not None:
            return f"ended with code {process.returncode}", changed
        if now - began > LIMIT_SECONDS:
            return f"not done within {LIMIT_SECONDS:.0f} s", changed
        await asyncio.sleep(_LOOK_SECONDS)


@contextmanager
def running(contestant: Contestant, place: Place, source: str, target: str) -> Iterator[subprocess.Popen[bytes]]:
    """The contestant's processes; at the end all are gone."""
    names = environment(contestant, place, source, target)
    process = spawn(command(contestant, place.installation, place.folder), place.folder / "log", names)
    try:
        yield process
    finally:
        terminate(process, 15)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def measure(contestant: Contestant, place: Place, source: str, truth: Truth, round_: int, skew: float) -> Run:
    """One run, from nothing to the verdict."""
    target = f"target-{uuid.uuid4().hex[:8]}"
    await create(place.servers, target, TARGETS)
    needed = truth.records + CLOSING if contestant.work == "route" else len(truth.sums)
    started = time.time()

    async def is_right() -> bool:
        return (await verify(place.servers, target, contestant.work, truth)).right == truth.records

    with running(contestant, place, source, target) as process:
        meter = Meter(process.pid, place.broker)
        meter.start()
        state, end = await outputs(place.servers, target, process, needed, is_right)
        meter.end()
    mark = place.folder / "first"
    first = float(mark.read_text()) if mark.exists() else started
    verdict = await verify(place.servers, target, contestant.work, truth)
    if state != "ok" or verdict.right != truth.records:
        print("\n".join(last_lines(place.folder / "log", 15)), flush=True)
    before, after = meter.at(first), meter.at(end)
    millions = truth.records / 1e6
    return Run(
        name=contestant.name,
        round=round_,
        records=truth.records,
        skew=skew,
        state=state,
        rate=verdict.right / max(1e-3, end - first),
        seconds=end - first,
        start_seconds=first - started,
        cpu=(after.cpu - before.cpu) / millions,
        broker_cpu=(after.broker - before.broker) / millions,
        peak_mib=meter.peak_bytes / 2**20,
        right=verdict.right,
        extra=verdict.extra,
        largest_share=verdict.largest_share,
        load=os.getloadavg()[0],
    )


def chosen(names: list[str]) -> list[Contestant]:
    """The contestants that one of the names means; all without names. SystemExit if a name means none."""
    named = {one: {one.system, one.work, f"{one.work}:{one.system}", one.name} for one in CONTESTANTS}
    if unknown := set(names) - set().union(*named.values()):
        known = ", ".join(one.name for one in CONTESTANTS)
        raise SystemExit(f"no contestant is called {', '.join(sorted(unknown))}; there are {known}")
    return [one for one, its in named.items() if not names or its & set(names)]


async def main(options: argparse.Namespace) -> None:
    """Runs, prints and keeps all."""
    contestants = chosen(options.names)
    installation = Installation(tools_dir() / "peers")
    installation.install()
    results = data_dir() / "peers.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    options_of_broker = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
    runs: list[Run] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(Path(folder) / "broker", heap="1g", java_options=options_of_broker) as broker,
    ):
        assert broker.pid is not None
        truths: dict[str, Truth] = {}
        for round_ in range(options.rounds):
            # Round by round, so that a slow spell of the machine does not hit one contestant alone.
            for contestant in contestants:
                count = min(options.records, contestant.records or options.records)
                source = f"source-{count}"
                if source not in truths:
                    await create(broker.bootstrap_servers, source, PARTITIONS)
                    truths[source] = await fill(broker.bootstrap_servers, source, count, options.skew)
                own = Path(folder) / "contestant"
                place = Place(broker.bootstrap_servers, broker.pid, own, installation)
                own.mkdir()
                run = await measure(contestant, place, source, truths[source], round_, options.skew)
                shutil.rmtree(own)
                await remove(broker.bootstrap_servers, truths)
                runs.append(run)
                with results.open("a") as file:
                    file.write(json.dumps(asdict(run)) + "\n")
                print(table([run]).splitlines()[-1], flush=True)
    print(table(runs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skew", type=float, default=0.8, help="share of the hottest key")
    asyncio.run(main(parser.parse_args()))
