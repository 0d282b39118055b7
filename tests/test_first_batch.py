"""The kernels of a new process: `make install` compiles all, and they are loaded before it is ready for a first batch.

Compiling takes seconds each, in which a process answers no heartbeat. The cache holds what `make install` has compiled:
whatever other tests have compiled by the way is in that beside the sources.
"""

import random
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from numba.core.caching import UserProvidedCacheLocator

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[1]
START = 1_357_000_000_000
JOB = orjson.dumps(
    {
        "window": "1m",
        "lateness": "5s",
        "weight": {"field": "cost"},
        "aggregates": [
            {"name": "events", "op": "count"},
            {"name": "total", "op": "sum", "field": "n"},
            {"name": "middle", "op": "mean", "field": "n"},
            {"name": "least", "op": "min", "field": "n"},
            {"name": "most", "op": "max", "field": "n"},
            {"name": "spread", "op": "variance", "field": "n"},
            {"name": "price", "op": "vwap", "field": "n", "weight": "cost"},
            {"name": "kinds", "op": "distinct", "field": "kind"},
            {"name": "top", "op": "top-k", "field": "kind", "k": 3},
        ],
    }
).decode()
WATCHED = """
import runpy, sys
from numba.core import event

class Told(event.Listener):
    def on_start(self, found):
        print("COMPILES", found.data["dispatcher"].py_func.__qualname__, found.data["args"], flush=True)

    def on_end(self, found):
        pass

event.register("numba:compile", Told())
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Runs a module, and says what numba compiles; NUMBA_DEBUG_CACHE has it say what it loads."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an installation that has just been made."""
    cache = tmp_path_factory.mktemp("kernels")
    with tarfile.open(ROOT / ".tools/kernels/compiled") as archive:
        for member in archive.getmembers():
            source = str(ROOT / member.name).replace("__pycache__/", "")
            folder = UserProvidedCacheLocator.get_suitable_cache_subpath(source)  # type: ignore[no-untyped-call]
            member.name = f"{folder}/{Path(member.name).name}"
            archive.extract(member, cache, filter="data")
    return {"NUMBA_CACHE_DIR": str(cache), "NUMBA_DEBUG_CACHE": "1"}


def events(count: int) -> Iterator[Event]:
    """Two keys are hot; some events are late, some no JSON, some have a header or a fraction."""
    chance = random.Random(1)
    for n in range(count):
        rank = int(chance.paretovariate(0.7))
        value = b'{"n":%d%s,"kind":"%d","cost":%d}' % (n, b".5" * (n % 2), rank % 7, rank % 3)
        headers = (("h", b"x"),) if n % 10 == 0 else ()
        late = 60_000 if n % 50 == 49 else 0
        yield Event(n % 2, b"key-%d" % min(rank, 200), value if n % 70 else b"no JSON", START + n * 20 - late, headers)


async def ready(deployment: Deployment, name: str) -> None:
    async with httpx.AsyncClient() as client:

        async def is_ready() -> bool:
            found = re.search(r"listening on (http://\S+)", deployment.log(name).read_text())
            return found is not None and (await client.get(f"{found[1]}/readyz")).is_success

        await deployment.until(is_ready)


@pytest.mark.parametrize("stages", ["route", "combine"])
async def test_a_new_process_compiles_nothing_and_its_first_batch_loads_no_kernel(
    deploy: Deploy, kernels: dict[str, str], stages: str
) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=2))
    names = ["worker-0", "aggregator-0", *(["router-0"] if stages == "route" else [])]
    for name in names:
        module = f"keygrouping_{name[:-2]}"
        own = {"workers": 2, "grouping": "level-fill", "interval": 0.3} if name == "router-0" else {"stages": stages}
        deployment.start(name, kernels, ("-c", WATCHED, module), **own)
    for name in names:
        await ready(deployment, name)
    before = {name: deployment.log(name).read_text() for name in names}
    for name, log in before.items():
        assert "data loaded from" in log, f"{name} should have told what it loads"
    stream = events(2000)
    await deployment.write([next(stream)])
    await deployment.until(deployment.is_routed)
    await deployment.write(stream)
    comparison = await deployment.check()
    assert comparison.equal, comparison
    rows = {row.name: row.found for row in comparison.rows}
    assert rows["windows"] and rows["late"]
    logs = {name: deployment.log(name).read_text() for name in names}
    compiled = {name: re.findall(r"^COMPILES .*$", log, re.M) for name, log in logs.items()}
    assert compiled == {name: [] for name in names}
    loaded = {
        name: re.findall(r"data loaded from '.*/(\S+)'", log.removeprefix(before[name])) for name, log in logs.items()
    }
    assert loaded == {name: [] for name in names}
