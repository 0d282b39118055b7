"""Laws of Parquet as a source: a row is what the same row would be as a JSON line."""

from __future__ import annotations

import builtins
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow
import pytest
from keygrouping_producer.sources.base import SourceError
from keygrouping_producer.sources.files import File
from pyarrow import parquet

ALL = 10_000
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_704_110_400_000


def written(path: Path, **columns: Any) -> Path:
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_rows_are_json_objects_with_keys_and_times(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.parquet",
        id=["x", None, "z"],
        at=pyarrow.array([NOON, None, NOON], pyarrow.timestamp("us", "Europe/Paris")),
        price=pyarrow.array([Decimal("1.50"), None, Decimal("2.00")]),
        raw=[b"text", b"\xff", None],
        day=[date(2024, 1, 1)] * 3,
        n=[1, 2, 3],
        share=[0.5, float("nan"), None],
        tags=[["a"], [], None],
    )
    source = File(path, "id", "at")
    block = source.read(0, ALL)
    assert source.time_format == "iso"
    assert (list(block.keys), list(block.times)) == ([b"x", None, b"z"], [NOON_MS, None, NOON_MS])
    assert block.value(0) == (
        b'{"id":"x","at":"2024-01-01T12:00:00.000000Z","price":1.50,"raw":"text","day":"2024-01-01","n":1,"share":0.5,'
        b'"tags":["a"]}'
    )
    assert block.faults[1].reason == "invalid-time"
    assert orjson.loads(block.faults[1].raw)["raw"] == "/w=="
    assert source.length == 3


@pytest.mark.parametrize(
    ("unit", "ticks"),
    [("s", 1_704_110_400), ("ms", NOON_MS), ("us", NOON_MS * 1000 + 999), ("ns", NOON_MS * 1_000_000 + 999_999)],
)
def test_times_of_any_unit_are_read_exactly(tmp_path: Path, unit: str, ticks: int) -> None:
    times = pyarrow.array([ticks], pyarrow.int64()).cast(pyarrow.timestamp(unit))
    assert File(written(tmp_path / "a.pq", id=["x"], at=times), "id", "at").read(0, ALL).times == [NOON_MS]
    assert File(written(tmp_path / "b.pq", id=["x"], at=[ticks]), "id", "at").read(0, ALL).times == [NOON_MS]


def test_columns_and_files_that_do_not_fit_are_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no column 'key'; it has id"):
        File(written(tmp_path / "a.parquet", id=["x"]), "key")
    (tmp_path / "b.parquet").write_bytes(b"id\nx\n")
    with pytest.raises(SourceError, match=r"can't read .*b\.parquet"):
        File(tmp_path / "b.parquet", "id")


def test_without_pyarrow_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.parquet", id=["x"])
    imported = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "pyarrow":
            raise ModuleNotFoundError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SourceError, match="install the package pyarrow into this Python, or write the table as CSV"):
        File(path, "id")
