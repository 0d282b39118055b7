"""What an image is built with compiles what a router needs later."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from keygrouping.grouping import names
from keygrouping.precompile import precompile


@pytest.mark.parametrize("name", names())
def test_every_grouping_goes_through(name: str) -> None:
    precompile([name])


PRECOMPILE = "from keygrouping.precompile import precompile; precompile(['potc'])"
USE = """
from keygrouping.grouping import create

grouping = create("potc", 3)
grouping.route(b"a")
grouping.explain(b"a")
grouping.resize(4)
create("potc", 3).restore(grouping.snapshot())
"""
PRECOMPILE_FORMATS = "from keygrouping.precompile import precompile_formats; precompile_formats()"
READ = """
from keygrouping.job.members import read_members
from keygrouping.slices import Slices

first, second = Slices.of([b'{"x":1}', b'{"y":""}']), Slices.of([b"{}"])
for documents in (first, first[::2], first[1:], first.followed_by([second]), Slices.of([]), Slices.of([None])):
    read_members(documents, ["x"])
    read_members(documents, ["x", "y"])
"""
PRECOMPILE_FOLDS = "from keygrouping.precompile import precompile_folds; precompile_folds()"
FOLD = """
import numpy as np
from keygrouping.aggregate import Mean, Sum, Variance, Vwap
from keygrouping.folds import Batch, fold_of
from keygrouping.grouped import Groups
from keygrouping.job.field_columns import FieldColumn
from keygrouping.slices import Slices

names = {"name": "a", "field": "x"}
for aggregate in (Sum(**names), Mean(**names), Variance(**names), Vwap(**names, weight="y")):
    fold, groups = fold_of(aggregate), Groups()
    for column in (FieldColumn.of([1, 2.5, None, 3] * 50), FieldColumn.of([1] * 400)[::2]):
        runs = groups.add(Slices.of([b"%d" % i for i in range(200)]), np.arange(200)[::-1])
        fold.add(Batch(runs, [column] * 2, len(groups)), (0, 1)[: len(aggregate.inputs)])
    fold.encoded()
"""
PRECOMPILE_PARTIALS = "from keygrouping.precompile import precompile_partials; precompile_partials()"
MERGE = """
import numpy as np
from keygrouping.aggregate import Count, Distinct, Max, Mean, Min, Sum, Variance, Vwap
from keygrouping.open_groups import OpenGroups
from keygrouping.partial import Partial
from keygrouping.partial_columns import PartialReader
from keygrouping.slices import Slices

job = [kind(name=kind.op, field="x") for kind in (Count, Distinct, Max, Mean, Min, Sum, Variance)]
job.append(Vwap(name="vwap", field="x", weight="y"))
value = Partial(0, 0, 1, 1, 1, 0, 0, 0, {each.name: each.encode(each.initial()) for each in job}).encode()
first, second = Slices.of([value] * 200), Slices.of([value.replace(b'"v"', b'"\\u0076"')])
groups = OpenGroups(job)
for values in (first, first[::2], first[1:], first.followed_by([second]), Slices.of([]), Slices.of([None])):
    partials, rows = PartialReader(job).read(values), np.arange(len(values) and 100)
    partials.judge(np.ones(len(values), bool), 0)
    if values[:1] and values[0]:
        keys = Slices.of([b"%d" % row for row in rows])
        for number in range(3):
            groups.add(partials, rows, keys, rows + number)
        assert len(groups.cut(rows[::-1])) == len(list(groups.taken(rows)))
"""


@pytest.mark.parametrize(
    ("precompile", "use"),
    [(PRECOMPILE, USE), (PRECOMPILE_FORMATS, READ), (PRECOMPILE_FOLDS, FOLD), (PRECOMPILE_PARTIALS, MERGE)],
)
def test_a_later_process_finds_the_kernels_and_compiles_none(tmp_path: Path, precompile: str, use: str) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic"}

    def kernels(program: str) -> dict[Path, int]:
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")}

    first = kernels(precompile)
    assert first
    assert kernels(precompile) == first
    assert kernels(use) == first
