"""The aggregate of docs/howto/operation.md, installed as a package beside keygrouping, goes through both runners."""

import importlib
import itertools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from keygrouping.accumulator import Accumulator
from keygrouping.aggregate import laws, registry
from keygrouping.job import JobSpec, Source
from keygrouping.partial import Result
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.kafka.progress import MIN_TIME
from keygrouping_service.records.columns import Columns, Row
from keygrouping_spark.settings import SparkSettings

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "operation.md").read_text()
JOB = """{"window": "10m", "lateness": "30s", "aggregates": [
    {"name": "n", "op": "count"}, {"name": "range", "op": "spread", "field": "x"}]}"""
OURS = re.compile(r"my_aggregates(_spark)?")
EVENTS = 5_000


def block(language: str, said: str) -> str:
    """The block of code of the page that holds this text."""
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)
    return str(next(text for text in found if said in text))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package, as pip installs it into a folder."""
    points = tomllib.loads(block("toml", registry.PLUGINS))["project"]["entry-points"][registry.PLUGINS]
    folder = tmp_path / "site"
    info = folder / "my_aggregates-1.dist-info"
    info.mkdir(parents=True)
    (folder / "my_aggregates.py").write_text(block("python", "class Spread(Aggregate)"))
    (folder / "my_aggregates_spark.py").write_text(block("python", "class SparkSpread(Native)"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-aggregates\nVersion: 1\n")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[{registry.PLUGINS}]\n{lines}\n")
    monkeypatch.syspath_prepend(folder)
    registry._plugins.cache_clear()
    yield folder
    monkeypatch.undo()
    registry._plugins.cache_clear()
    for name in filter(OURS.fullmatch, list(sys.modules)):
        del sys.modules[name]
    importlib.invalidate_caches()


def routed(offset: int, x: object) -> Row:
    """A record of `routed`."""
    return offset, 1000, b"k", b'{"x": %s}' % str(x).encode(), ()


def test_it_keeps_the_laws(installed: Path) -> None:
    del installed
    range_ = JobSpec.from_json(JOB).aggregates[1]
    laws.check(range_, [3, None, 2.5, -7, 1e15, 2**53 + 1, 0, -0.0, 5e-324], rounds=300)


def test_split_over_workers_and_flushes_it_is_what_the_oracle_expects(installed: Path) -> None:
    del installed
    job = JobSpec.from_json(JOB)
    values = [5, "null", 2.25, -3, 40, 7.5, "null", 41]
    windows = OpenWindows(job, MIN_TIME)
    for offset, (worker, part) in enumerate(itertools.product(range(2), range(2))):
        accumulator = Accumulator(job, worker, "x" * 22)
        rows = [routed(i, x) for i, x in enumerate(values) if (i % 2, i // 4) == (worker, part)]
        assert accumulator.add(Columns.of("routed", worker, rows)) == []
        ((key, partial),) = accumulator.partials(epoch=3)
        added = windows.add_all(Columns.of("partials", 0, [(offset, 0, key, partial.encode(), ())]))
        assert added.merged == 1
    (result,) = (Result.decode(one.encode()) for one in windows.close(1 << 40))
    known = [None if x == "null" else x for x in values]
    assert (result.events, result.aggregates) == (8, {"n": 8, "range": 44.0})
    assert job.aggregates[1].expected(known).value == 44.0


def test_sparks_settings_take_it_and_say_what_is_wrong_with_its_half(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings() -> SparkSettings:
        return SparkSettings(bootstrap_servers="none:9", checkpoint="none", job=JobSpec.from_json(JOB))

    assert settings().job.key == Source("record")
    spread = registry.operation("spread")
    for place, fault in {
        "nowhere:SparkSpread": "can't be loaded: No module named 'nowhere'",
        "my_aggregates_spark:Other": "can't be loaded",
        "my_aggregates:Spread": "must be a subclass of keygrouping_spark.native.Native",
        "my_aggregates": "can't be loaded",
    }.items():
        monkeypatch.setattr(spread, "spark", place)
        with pytest.raises(ValueError, match=rf"the Spark half of range \(spread\), {place}, {fault}"):
            settings()
    monkeypatch.undo()
    monkeypatch.setattr(spread, "shape", None)
    with pytest.raises(ValueError, match=r"reads states by the aggregate's shape: Spread must declare one"):
        settings()
    monkeypatch.setattr(spread, "spark", None)
    assert settings().job.aggregates
    del installed


@pytest.mark.kafka
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("runner", ["native", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_whole_run_equals_the_oracle(runner: str, installed: Path, tmp_path: Path, broker: EmbeddedBroker) -> None:
    (tmp_path / "job.json").write_text(JOB)
    rows = (f"{'hot' if i % 2 else f'h{i % 31}'},{i * 37 % 1000 / 8}" for i in range(EVENTS))
    (tmp_path / "readings.csv").write_text("\n".join(["house,x", *rows, ""]))
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    command = [
        *(sys.executable, "-m", "keygrouping_local", "--once", "--runner", runner, "--grouping", "shuffle"),
        *("--workload", str(tmp_path / "readings.csv"), "--key", "house", "--job", str(tmp_path / "job.json")),
        *("--bootstrap-servers", broker.bootstrap_servers),
    ]
    environment = {**os.environ, "PYTHONPATH": path, "KEYGROUPING_LOCAL_DATA_DIR": str(tmp_path / "data")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every window equals the oracle's" in done.stdout
    assert re.search(r"range\W+[1-9]", done.stdout), done.stdout
