"""A million damaged documents are taken, or refused, as events are one by one."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from keygrouping.job import Extracted, JobSpec, Rejection, extract_columns
from keygrouping.slices import Slices

JOB = JobSpec.from_json(
    {
        "aggregates": [
            {"name": "total", "op": "sum", "field": "price"},
            {"name": "kinds", "op": "distinct", "field": "kind"},
        ],
        "weight": {"field": "weight"},
    }
)
NOW = 1_700_000_000_000
_BYTES = b'{}[]",:\\ \x00\x7f\x80\xc3\xed\xf0\xff0123456789+-.eEtrufalsn'


class Documents:
    """`EventColumns` whose other parts are good."""

    undecoded_names = False

    def __init__(self, values: Slices, rows: np.ndarray) -> None:
        self.rows = rows
        self.timestamps = rows
        self.values = values
        self.keys = [b"k"] * len(rows)
        self.headers = [()] * len(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, chosen: np.ndarray) -> Documents:
        return Documents(self.values.where(chosen), self.rows[chosen])


def document(chance: random.Random) -> bytes:
    number = chance.choice([chance.random() * 1000, chance.randrange(-(10**19), 10**19), chance.randrange(100), -0.0])
    text = chance.choice(["a", "caf\u00e9", "\u20ac \U0001f600", 'with "quotes"', "", "1"])
    members = {"price": number, "kind": text, "weight": chance.randrange(10), "note": None, "ok": True}
    chosen = dict(chance.sample(list(members.items()), chance.randrange(1, 6)))
    data = bytearray(json.dumps(chosen, ensure_ascii=False, separators=(",", ":")).encode())
    for _ in range(chance.choice([0, 1, 1, 2, 4])):
        where = chance.randrange(len(data))
        kind = chance.randrange(3)
        if kind == 0:
            data[where] = chance.choice(_BYTES)
        elif kind == 1:
            data.insert(where, chance.choice(_BYTES))
        elif len(data) > 1:
            del data[where]
    return bytes(data)


def compare(documents: int, seed: int) -> tuple[int, int]:
    """Compares so many documents; gives how many were taken and how many refused."""
    chance = random.Random(seed)
    taken = refused = 0
    for start in range(0, documents, 1000):
        values = [document(chance) for _ in range(min(1000, documents - start))]
        expected = [JOB.extract(b"k", value, (), row, NOW) for row, value in enumerate(values)]
        found = extract_columns(JOB, Documents(Slices.of(values), np.arange(len(values))), NOW)
        good = [one for one in expected if isinstance(one, Extracted)]
        assert found.rejected == [(row, one) for row, one in enumerate(expected) if isinstance(one, Rejection)]
        assert repr(list(found.fields or ())) == repr([one.fields for one in good])
        assert repr(list(found.weights or ())) == repr([one.weight for one in good])
        taken += len(good)
        refused += len(found.rejected)
    return taken, refused


def test_damaged_documents_are_taken_or_refused_as_events_are() -> None:
    taken, refused = compare(5000, 1)
    assert min(taken, refused) > 500


@pytest.mark.fuzz
def test_a_million_damaged_documents_are_taken_or_refused_as_events_are() -> None:
    taken, refused = compare(1_000_000, 2)
    assert min(taken, refused) > 100_000


@pytest.mark.fuzz
def test_the_kernel_looks_at_no_byte_beyond(tmp_path: Path) -> None:
    """With numba's check of each index, which the kernel is compiled without."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, __file__, "100000"], env=environment, check=True, timeout=3000)


if __name__ == "__main__":
    compare(int(sys.argv[1]), 3)
