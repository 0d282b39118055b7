"""Laws of the file source: every line is an event or a fault that names its place, whatever stands in it."""

from __future__ import annotations

import gzip
from codecs import BOM_UTF8
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


def test_a_csv_field_is_kept_up_to_the_size_that_an_event_may_have(tmp_path: Path) -> None:
    content = b'id,n\n"' + b"x" * 5_000 + b'",1\ny,2\n"' + b"z" * 5_001 + b'",1\ny,3\n'
    block = File(written(tmp_path / "a.csv", content), "id", most_bytes=5_000).read(0, ALL)
    kept = events_of(block)
    assert (kept[0][0], kept[1][2], kept[-1][2]) == (b"x" * 5_000, b'{"id":"y","n":2}', b'{"id":"y","n":3}')
    assert [fault.reason for fault in block.faults.values()] == ["invalid-csv"]
    long = written(tmp_path / "long.csv", b'id\n"' + b"x" * 200_000 + b'"\n')
    assert len(events_of(File(long, "id").read(0, ALL))[0][0] or b"") == 200_000


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_line_of_any_length_is_a_fault_that_takes_no_memory(tmp_path: Path, name: str) -> None:
    lines = [b'{"id":"x"}', b'{"id":"' + b"y" * 4_990 + b'"}', b"z" * 50_000, b'{"id":"w"}', b"v" * 20_000]
    block = File(written(tmp_path / name, b"\r\n".join(lines)), "id", most_bytes=5_000).read(0, ALL)
    assert [key and key[:1] for key, _, _ in events_of(block)] == [b"x", b"y", b"w"]
    faults = [(i, fault.reason, fault.place) for i, fault in block.faults.items()]
    assert faults == [(2, "too-large", f"{name}:3"), (4, "too-large", f"{name}:5")]
    assert block.faults[2].detail == "the line has 50,002 bytes, at most 5,000 are allowed"
    assert len(block.faults[2].raw) < 5_010


def test_a_block_of_long_events_is_short_and_not_the_end(tmp_path: Path) -> None:
    line = b'{"id":"x","pad":"' + b"y" * 800_000 + b'"}\n'
    source = File(written(tmp_path / "a.jsonl", line * 45), "id")
    sizes: list[int] = []
    while size := len(source.read(sum(sizes), 2_000)):
        assert size * len(line) < (16 << 20) + len(line)
        sizes.append(size)
    assert (sum(sizes), source.length, len(sizes)) == (45, 45, 3)


def test_a_byte_order_mark_costs_no_line(tmp_path: Path) -> None:
    lines = b'{"id":"x"}\n{"id":"y"}\n'
    assert events_of(File(written(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + lines), "id").read(0, ALL)) == [
        (b"x", None, b'{"id":"x"}'),
        (b"y", None, b'{"id":"y"}'),
    ]
    with pytest.raises(SourceError, match="is UTF-16: write it as UTF-8"):
        File(written(tmp_path / "b.csv", "id\nx\n".encode("utf-16")), "id")


def test_fields_may_be_separated_otherwise(tmp_path: Path) -> None:
    wanted = [(b"x", None, b'{"id":"x","n":1}')]
    assert events_of(File(written(tmp_path / "a.csv", b"id;n\nx;1\n"), "id", delimiter=";").read(0, ALL)) == wanted
    assert events_of(File(written(tmp_path / "b.csv", b"id\tn\nx\t1\n"), "id", delimiter="tab").read(0, ALL)) == wanted
    assert events_of(File(written(tmp_path / "a.tsv.gz", b"id\tn\nx\t1\n"), "id").read(0, ALL)) == wanted
    with pytest.raises(SourceError, match="separated by ';', say so by a delimiter"):
        File(tmp_path / "a.csv", "id")
    with pytest.raises(SourceError, match="is no CSV by its name"):
        File(written(tmp_path / "a.jsonl", b"{}"), "id", delimiter=";")


def test_a_header_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has 'n' twice in its header: rename one"):
        File(written(tmp_path / "a.csv", b"id,n,m,n\nx,1,2,3\n"), "id")


def test_a_number_with_a_fraction_is_no_key(tmp_path: Path) -> None:
    lines = b'{"id":1.5}\n{"id":123456789012345678901234567890}\n{"id":7}\n'
    block = File(written(tmp_path / "a.jsonl", lines), "id").read(0, ALL)
    assert [fault.reason for fault in block.faults.values()] == ["invalid-key"] * 2
    assert "send it as text" in block.faults[0].detail
    assert [key for key, _, _ in events_of(block)] == [b"7"]


@pytest.mark.parametrize(
    ("texts", "told", "first"),
    [
        (["1704067200", "1704067201.5"], "epoch_s", 1_704_067_200_000),
        (["1704067200.25", "soon"], "epoch_s", 1_704_067_200_250),
        (["1704067200123", "0", "1704067200124"], "epoch_ms", 1_704_067_200_123),
        (["1704067200123456"], "epoch_us", 1_704_067_200_123),
        (["1704067200123456789"], "epoch_ns", 1_704_067_200_123),
        (['"1704067200"'], "epoch_s", 1_704_067_200_000),
        (['"2024-01-01T00:00:00Z"', "17", '"2024-01-01"'], "iso", 1_704_067_200_000),
        (['"2024-01-01 00:00:00"', "null"], "iso", 1_704_067_200_000),
        (["null", "17", '"20240101"'], "iso", None),
    ],
)
def test_the_format_of_times_is_told_by_the_first_lines(
    tmp_path: Path, texts: list[str], told: str, first: int | None
) -> None:
    lines = "".join(f'{{"id":"x","at":{text}}}\n' for text in texts)
    source = File(written(tmp_path / "a.jsonl", lines.encode()), "id", "at")
    assert source.time_format == told
    assert first is None or source.read(0, 1).times == [first]
    assert len(source.read(0, ALL)) == len(texts)


def test_telling_the_format_leaves_no_trace_in_the_span(tmp_path: Path) -> None:
    lines = b"".join(b'{"id":"x","at":%d}\n' % (1_704_067_200 + i) for i in range(2_000))
    source = File(written(tmp_path / "a.jsonl", lines), "id", "at")
    assert [len(source.read(0, ALL)), source.length, source.span_ms] == [2_000, 2_000, 1_999_000]


def test_one_odd_time_decides_nothing(tmp_path: Path) -> None:
    lines = b'{"id":"x","at":1704067200}\n' + b'{"id":"x","at":1704067200123}\n' * 20
    block = File(written(tmp_path / "a.jsonl", lines), "id", "at").read(0, ALL)
    assert list(block.times)[1:] == [1_704_067_200_123] * 20


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'{"id":"x","at":17}\n{"id":"x","at":"soon"}\n', "can't be told from 17, 'soon' in its first 2 lines: name"),
        (b'{"id":"x","when":1}\n', "has no field 'at' in its first 1 lines to take times from; it has id, when"),
        (b'{"id":"x","at":20240101120000}\n', r"one of strptime such as '%d\.%m\.%Y"),
    ],
)
def test_times_that_cannot_be_told_are_refused_before_the_first_event(
    tmp_path: Path, lines: bytes, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        File(written(tmp_path / "a.jsonl", lines), "id", "at")


def test_a_time_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no column 'at'; it has id, when"):
        File(written(tmp_path / "a.csv", b"id,when\nx,1\n"), "id", "at")


@pytest.mark.parametrize("content", [b"", b"id,at\n", b"\n\n"])
def test_a_file_without_lines_has_no_events_and_no_fault(tmp_path: Path, content: bytes) -> None:
    source = File(written(tmp_path / "a.csv", content), "id", "at")
    assert (len(source.read(0, ALL)), source.length) == (0, 0)


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


def is_line(data: bytes) -> bool:
    """Whether it is one line that is not blank, without the mark of UTF-8 that a file may begin with."""
    return bool(data.strip()) and b"\n" not in data and not data.startswith(BOM_UTF8)


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=20).filter(is_line), max_size=20),
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
