"""The class of docs/aggregates.md, a module in a folder on PYTHONPATH, in a pipeline whose parts are killed."""

import asyncio
import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from keygrouping.job import JobSpec
from keygrouping_local.deployment import Deploy, Event, Shape
from keygrouping_local.records import read_all, read_results, reasons

PAGE = (Path(__file__).parents[1] / "docs" / "aggregates.md").read_text()
SECTION = PAGE.partition("## Your own aggregate")[2]
START = 1_357_000_000_000
COUNT = 12_000
STAGES = {"native": ["worker-0", "worker-1", "aggregator-0"], "spark": ["spark-0"]}
RUNNERS = [pytest.param(runner, marks=pytest.mark.spark) if runner == "spark" else runner for runner in STAGES]
BROKEN = 997
"""One event of so many has a price that has no logarithm."""


def block(language: str) -> str:
    """The section's first block of a language."""
    found = re.search(rf"^```{language}\n(.*?)^```", SECTION, re.S | re.M)
    assert found is not None
    return found[1]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page's job; its module lies in a folder on the path of this process and of all that it starts."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "my_prices.py").write_text(block("python"))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
    yield orjson.dumps(orjson.loads(block("json")) | {"window": "1m", "lateness": "5s"}).decode()
    sys.modules.pop("my_prices", None)
    importlib.invalidate_caches()


def test_the_job_of_the_page_is_one(job: str) -> None:
    _, typical = JobSpec.from_json(job).aggregates
    assert typical.finish(typical.add_many(typical.initial(), [2, None, 8])) == pytest.approx(4)


def events() -> Iterator[Event]:
    """Half of them of one key."""
    for n in range(COUNT):
        key = b"hot" if n % 2 else b"key-%d" % (n % 61)
        price = b"-1" if n % BROKEN == 5 else b"null" if n % 50 == 0 else b"%d.5" % (n % 90)
        yield Event(n % 4, key, b'{"price":%s}' % price, START + n * 20)


@pytest.mark.kafka
@pytest.mark.parametrize("runner", RUNNERS)
async def test_kills_of_every_part_change_nothing(deploy: Deploy, runner: str, job: str) -> None:
    deployment = await deploy(job, Shape(max_workers=4))
    victims = [*STAGES[runner], "router-0"]
    for name in victims:
        settings = {"workers": 4, "grouping": "shuffle", "idle_timeout": 60} if name.startswith("router") else {}
        deployment.start(name, **settings)

    async def write() -> None:
        chunk: list[Event] = []
        for event in events():
            chunk.append(event)
            if len(chunk) == 1000:
                await asyncio.gather(deployment.write(chunk), asyncio.sleep(0.5))
                chunk = []

    await asyncio.gather(write(), deployment.disturb(dict.fromkeys(victims, 1), (0.5, 1.5), 7))
    comparison = await deployment.check()
    assert comparison.equal, comparison
    letters = await reasons(deployment.settings, deployment.settings.dead_letters_topic)
    assert list(letters.values()) == ["aggregate-failed"] * len(range(5, COUNT, BROKEN))
    async for record, *_ in read_all(deployment.settings, deployment.settings.dead_letters_topic):
        detail = dict(record.headers)["keygrouping-detail"] or b""
        assert b"aggregate 'typical' (my_prices:GeometricMean) raises ValueError" in detail
    results = await read_results(deployment.settings)
    assert all(1 < result.aggregates["typical"] < 90 for key, result in results.items() if key[0] == b"hot")
