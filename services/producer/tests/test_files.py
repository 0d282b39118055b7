"""Laws of the file source: every line is an event or a fault that names its place, whatever stands in it."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping_producer.sources.base import Block, SourceError
from keygrouping_producer.sources.files import File

ALL = 10_000


def events_of(block: Block) -> list[tuple[bytes | None, int | None, bytes]]:
    return [(block.keys[i], block.times[i], block.value(i)) for i in range(len(block)) if i not in block.faults]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_lines_pass_as_they_stand(tmp_path: Path, name: str) -> None:
    lines = [b'{"id": "x",  "n":1.50}', b'{"id":7}', b'{"id":null}', b'{"other":1}', b'{"id":""}']
    block = File(written(tmp_path / name, b"\n".join(lines) + b"\r\n\n"), "id").read(0, ALL)
    assert events_of(block) == list(zip([b"x", b"7", None, None, b""], [None] * 5, lines, strict=True))


@pytest.mark.parametrize("name", ["a.csv", "a.CSV.gz"])
def test_csv_rows_become_objects_with_numbers_and_nulls(tmp_path: Path, name: str) -> None:
    content = '\ufeffid,n,text\r\nx,1.50,"a,""b"""\r\n,007,\r\n'.encode()
    block = File(written(tmp_path / name, content), "id").read(0, ALL)
    assert events_of(block) == [
        (b"x", None, b'{"id":"x","n":1.50,"text":"a,\\"b\\""}'),
        (None, None, b'{"id":null,"n":"007","text":null}'),
    ]


@pytest.mark.parametrize(
    ("time_format", "text", "ms"),
    [
        ("iso", '"2024-01-01T00:00:01.5Z"', 1_704_067_201_500),
        ("iso", '"2024-01-01T02:00:00+02:00"', 1_704_067_200_000),
        ("iso", '"2024-01-01"', 1_704_067_200_000),
        ("epoch_ms", "1704067200123", 1_704_067_200_123),
        ("epoch_s", "1704067200.5", 1_704_067_200_500),
        ("epoch_s", '"1704067200"', 1_704_067_200_000),
        ("iso", '"2024-01-01T01:59:59.9996Z"', 1_704_074_399_999),
        ("iso", '"2024-01-01T01:59:59.999999999Z"', 1_704_074_399_999),
        ("iso", '"2024-01-01T01:59:59.9999999-07:30"', 1_704_101_399_999),
        ("epoch_ms", "1704074399999.9999", 1_704_074_399_999),
        ("epoch_s", "1704074399.9996", 1_704_074_399_999),
        ("epoch_s", "1704074399.99999999999", 1_704_074_399_999),
        ("epoch_s", "1704067201.001", 1_704_067_201_001),
        ("epoch_s", '"1704074399.999999999"', 1_704_074_399_999),
        ("%Y-%m-%dT%H:%M:%S.%f", '"2024-01-01T01:59:59.999900"', 1_704_074_399_999),
        ("%d.%m.%Y %H:%M", '"01.01.2024 00:01"', 1_704_067_260_000),
    ],
)
def test_times_are_read_in_their_format(tmp_path: Path, time_format: str, text: str, ms: int) -> None:
    path = written(tmp_path / "a.jsonl", f'{{"id":"x","at":{text}}}'.encode())
    assert File(path, "id", "at", time_format).read(0, ALL).times == [ms]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id":', "invalid-json"),
        (b"[1]", "not-an-object"),
        (b'{"id":"\xff"}', "invalid-json"),
        (b'{"id":NaN}', "invalid-json"),
        (b'{"id":[1],"at":1}', "invalid-key"),
        (b'{"id":true,"at":1}', "invalid-key"),
        (b'{"id":"x"}', "invalid-time"),
        (b'{"id":"x","at":"soon"}', "invalid-time"),
        (b'{"id":"x","at":-1}', "invalid-time"),
        (b'{"id":"x","at":1e300}', "invalid-time"),
        (b'{"id":"x","at":true}', "invalid-time"),
    ],
)
def test_a_bad_line_is_a_fault_with_its_place_and_the_others_are_events(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    good = b'{"id":"g","at":1}'
    block = File(written(tmp_path / "a.jsonl", b"\n".join([good, b"", line, good])), "id", "at", "epoch_ms").read(0, 9)
    assert len(block) == 3
    assert events_of(block) == [(b"g", 1, good)] * 2
    fault = block.faults[1]
    assert (fault.reason, fault.place, fault.raw) == (reason, "a.jsonl:3", line)


@pytest.mark.parametrize(
    ("row", "reason"), [(b"x", "wrong-number-of-fields"), (b"x,\xff", "invalid-utf8"), (b"\xff,1", "invalid-utf8")]
)
def test_a_bad_row_of_csv_is_a_fault(tmp_path: Path, row: bytes, reason: str) -> None:
    block = File(written(tmp_path / "a.csv", b"id,n\n" + row + b"\ny,2\n"), "id").read(0, ALL)
    assert block.faults[0].reason == reason
    assert block.faults[0].place == "a.csv:2"
    assert block.faults[0].raw == row
    assert events_of(block) == [(b"y", None, b'{"id":"y","n":2}')]


def test_a_huge_csv_field_is_a_fault(tmp_path: Path) -> None:
    content = b'id,n\n"' + b"x" * (csv.field_size_limit() + 1) + b'",1\ny,2\n'
    block = File(written(tmp_path / "a.csv", content), "id").read(0, ALL)
    assert [fault.reason for fault in block.faults.values()] == ["invalid-csv"]
    assert events_of(block)[-1] == (b"y", None, b'{"id":"y","n":2}')


def test_a_cut_gzip_ends_with_a_fault_after_its_events(tmp_path: Path) -> None:
    lines = b"".join(orjson.dumps({"id": str(i)}) + b"\n" for i in range(50_000))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines)[:-2000])
    source = File(path, "id")
    block = source.read(0, 100_000)
    assert source.length == len(block) > 10_000
    assert list(block.faults) == [len(block) - 1]
    assert block.faults[len(block) - 1].reason == "unreadable-file"


def test_what_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="can't read"):
        File(tmp_path / "missing.jsonl", "id")
    with pytest.raises(SourceError, match="no column 'id'; it has a, b"):
        File(written(tmp_path / "a.csv", b"a,b\n1,2\n"), "id")
    (tmp_path / "plain.csv.gz").write_bytes(b"id,n\nx,1\n")
    with pytest.raises(SourceError, match="can't read"):
        File(tmp_path / "plain.csv.gz", "id")


def test_length_and_span_are_known_after_the_end_and_cover_the_file(tmp_path: Path) -> None:
    lines = b"\n".join(orjson.dumps({"id": "x", "at": at}) for at in (50, 10, 90, 40))
    source = File(written(tmp_path / "a.jsonl", lines), "id", "at", "epoch_ms")
    assert len(source.read(2, 2)) == 2
    assert source.length is None, "the end has not been met"
    assert len(source.read(4, 2)) == 0
    assert source.length == 4
    assert source.span_ms == 80


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=20).filter(lambda b: b.strip() and b"\n" not in b), max_size=20),
    cuts=st.lists(st.integers(0, 25), max_size=6),
)
def test_random_bytes_never_stop_the_reading_and_any_order_of_reads_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int]
) -> None:
    path = written(tmp_path_factory.mktemp("random") / "a.jsonl", b"\n".join(lines))
    whole = File(path, "id").read(0, ALL)
    assert len(whole) == len(lines)
    assert [whole.faults[i].raw if i in whole.faults else whole.value(i) for i in range(len(whole))] == [
        line.rstrip(b"\r") for line in lines
    ]
    source = File(path, "id")
    for cut in cuts:
        piece = source.read(cut, 3)
        assert list(piece.keys) == list(whole.keys)[cut : cut + 3]
        assert [piece.faults.get(i) for i in range(len(piece))] == [
            whole.faults.get(i) for i in range(cut, min(cut + 3, len(whole)))
        ]


@pytest.mark.parametrize("text", ["true", "1e99", '"nan"', '"Infinity"', "[1]", '"2024-01-01T23:59:60Z"', "-0.001"])
def test_what_is_no_time_is_a_fault(tmp_path: Path, text: str) -> None:
    for time_format in ("iso", "epoch_s", "epoch_ms"):
        path = written(tmp_path / "a.jsonl", f'{{"id":"x","at":{text}}}'.encode())
        assert [f.reason for f in File(path, "id", "at", time_format).read(0, ALL).faults.values()] == ["invalid-time"]
