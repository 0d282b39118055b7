"""Laws of batches as columns: whatever is cut, chosen or put together, the records stay what they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_service.records.columns import Columns, Row
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import Record

binary = st.none() | st.binary(max_size=5)
headers = st.lists(st.tuples(st.text(max_size=2), binary), max_size=2)
rows = st.lists(st.tuples(st.integers(0, 2**62), st.integers(-1, 2**43), binary, binary, headers), max_size=12)


def batch_of(given_rows: list[Row]) -> RecordBatch:
    return Columns.of("t", 3, given_rows)


def records_of(given_rows: list[Row]) -> list[Record]:
    return [Record("t", 3, *row) for row in given_rows]


def content_of(record: Record) -> int:
    """Bytes of key, value and headers."""
    headers = (part for name, value in record.headers for part in (name.encode(errors="surrogateescape"), value))
    return sum(len(part or b"") for part in (record.key, record.value, *headers))


@given(rows)
def test_a_batch_is_its_records_one_by_one_and_column_by_column(given_rows: list[Row]) -> None:
    batch, records = batch_of(given_rows), records_of(given_rows)
    assert len(batch) == len(records) and bool(batch) == bool(records)
    assert list(batch) == [batch.record(row) for row in range(len(batch))] == records
    assert batch.offsets.tolist() == [record.offset for record in records]
    assert batch.timestamps.tolist() == [record.timestamp for record in records]
    assert batch.sizes().tolist() == list(map(content_of, records))
    assert all(type(number) is int for record in batch for number in (record.offset, record.timestamp))


@given(rows, st.data())
def test_parts_of_a_batch_are_parts_of_its_records(given_rows: list[Row], data: st.DataObject) -> None:
    batch, records = batch_of(given_rows), records_of(given_rows)
    at = data.draw(st.integers(0, len(records)))
    head, tail = batch.cut(0, at), batch.cut(at, len(batch))
    assert (list(head), list(tail)) == (records[:at], records[at:])
    assert list(head.followed_by([tail])) == records and list(head.followed_by([])) == records[:at]
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records))), np.bool_)
    assert list(batch.where(chosen)) == [record for record, kept in zip(records, chosen, strict=True) if kept]


def test_there_is_no_record_beyond_the_end() -> None:
    batch = batch_of([(1, 2, None, b"", ())])
    assert batch.record(-1).offset == 1
    with pytest.raises(IndexError):
        batch.record(1)


def test_one_part_with_undecoded_names_makes_the_whole_one() -> None:
    plain, odd = Columns.of("t", 0, [(0, 0, None, None, ())]), Columns.of("t", 0, [(1, 0, None, None, ())], True)
    assert plain.followed_by([odd]).undecoded_names and not plain.followed_by([plain]).undecoded_names
    assert odd.cut(0, 1).undecoded_names and odd.where(np.array([True])).undecoded_names
