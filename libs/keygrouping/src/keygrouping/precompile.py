"""Compiles the kernels of all groupings and formats into numba's cache: `python -m keygrouping.precompile`.

For an installation whose programs can't write there later, such as a container image; NUMBA_CACHE_DIR says where.
"""

from argparse import ArgumentParser
from collections.abc import Iterable

import numpy as np

from keygrouping.aggregate import Aggregate, Count, Min, Sum, Variance, Vwap
from keygrouping.folds import Batch, fold_of
from keygrouping.grouped import Groups, Runs
from keygrouping.grouping import Grouping, Offline, Planned, create, names, shared_settings
from keygrouping.hashing import hash_keys
from keygrouping.identity import Routed, Sums, WindowSums, partition_seeds, tally
from keygrouping.job.field_columns import FieldColumn
from keygrouping.job.members import read_members
from keygrouping.open_groups import OpenGroups
from keygrouping.partial import Partial
from keygrouping.partial_columns import PartialReader
from keygrouping.slices import Slices
from keygrouping.version import add_version

_WORKERS = 4
_KEYS = [b"key-%d" % (n % 50 if n % 2 else 0) for n in range(400)]
"""One of them is hot."""


def precompile(groupings: Iterable[str]) -> None:
    """Does with each grouping all that a router does: routes by itself and by plans, is asked, stored, resized."""
    for name in groupings:
        _use(create(name, _WORKERS))
        shared = shared_settings(name)
        if shared is not None:
            grouping = create(name, _WORKERS, shared)
            _plan(grouping)
            create(name, _WORKERS, shared).adopt(grouping)


def precompile_formats() -> None:
    """Reads a document, as router and worker do."""
    read_members(Slices.of([b"{}"]), ["name"])


def precompile_accounts() -> None:
    """Adds up the hashes of an event's places, as router and worker do."""
    one, seeds = np.zeros(1, np.int64), partition_seeds("A" * 22, 0)
    tally(one, seeds)
    for groups in (1, 2):  # One row lies in one piece, several that are part of a wider table don't.
        Sums(seeds).add(one, Runs(one, one + 1, one), np.zeros((groups, 3), np.int64)[:, 1:])
    Routed(seeds, "A" * 22, 1, 0).account(one, one, np.zeros(1, np.int32), np.array([[0, 0, 1]]))
    WindowSums(seeds, 1, 0).of(one, one)


def precompile_folds() -> None:
    """Groups an event and adds its numbers up, as the worker does."""
    runs = Groups().add(Slices.of([b"key"]), np.zeros(1, np.int64))
    batch = Batch(runs, [FieldColumn.of([1])] * 2, 1)
    for aggregate in (Sum(name="a", field="x"), Variance(name="a", field="x"), Vwap(name="a", field="x", weight="y")):
        fold_of(aggregate).add(batch, (0, 1)[: len(aggregate.inputs)])


def precompile_partials() -> None:
    """Reads partials, merges them, and forgets them, as the aggregator does."""
    kinds: tuple[type[Sum | Count | Min | Variance], ...] = (Sum, Count, Min, Variance)
    job: list[Aggregate] = [kind(name=kind.op, field="x") for kind in kinds]
    job.append(Vwap(name="vwap", field="x", weight="y"))
    states = {each.name: each.encode(each.initial()) for each in job}
    partials = PartialReader(job).read(Slices.of([Partial(0, 0, 1, 1, 1, 0, 0, 0, states).encode()]))
    partials.judge(np.ones(1, np.bool_), 0)
    groups, row = OpenGroups(job), np.zeros(1, np.int64)
    groups.add(partials, row, Slices.of([b"key"]), row)
    groups.cut(row)


def _use(grouping: Grouping) -> None:
    hashes = hash_keys(_KEYS, grouping.seeds)
    weights = np.ones(len(_KEYS))
    if isinstance(grouping, Offline):
        distinct = np.unique(hashes, axis=0)
        grouping.learn(distinct, np.ones(len(distinct)))
    for now, given in enumerate((None, weights, None)):
        grouping.route_batch(hashes, given, float(now * 3600))
    grouping.one_by_one(0.0)(_KEYS[0])
    grouping.explain(_KEYS[0])
    grouping.restore(grouping.snapshot())
    grouping.resize(grouping.workers + 1)
    grouping.resize(grouping.workers - 1)


def _plan(grouping: Grouping) -> None:
    _use(grouping)
    if isinstance(grouping, Planned):
        grouping.apply(grouping.plan([grouping.statistics(7200.0)] * 2))
        _use(grouping)


def main() -> None:
    """Command `python -m keygrouping.precompile`."""
    parser = ArgumentParser(prog="python -m keygrouping.precompile", description=__doc__)
    add_version(parser)
    parser.parse_args()
    precompile(names())
    precompile_formats()
    precompile_accounts()
    precompile_folds()
    precompile_partials()


if __name__ == "__main__":
    main()
