"""Every dump format is read, from every compression; bad lines are counted and never stop the reading."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest
from keygrouping.hashing import hash_key
from keygrouping.workload import Dump, WorkloadError, describe_format, formats, open_dump
from keygrouping.workload.stream import CHUNK

Seen = list[tuple[bytes, float, int]]
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress}

TWEET = {"created_at": "Tue Nov 08 12:00:00 +0000 2016", "text": "so it is"}


def tweet(*tags: str) -> bytes:
    return orjson.dumps({**TWEET, "entities": {"hashtags": [{"text": tag, "indices": [0, 3]} for tag in tags]}})


def read(dump: Dump) -> Seen:
    """Key, weight and source of every event, without weights 1, without sources 0."""
    seen: Seen = []
    for chunk in dump.chunks():
        weights = np.ones(len(chunk)) if chunk.weights is None else chunk.weights
        sources = np.zeros(len(chunk), np.int64) if chunk.sources is None else chunk.sources
        names = map(dump.table.name, chunk.keys.tolist())
        seen += zip(names, weights.tolist(), sources.tolist(), strict=True)
    return seen


def plain(*keys: bytes) -> Seen:
    return [(key, 1.0, 0) for key in keys]


SAMPLES: list[tuple[str, dict[str, object], bytes, Seen, int, int | None, str]] = [
    (
        "twitter-election",
        {},
        b"\n".join(
            [
                tweet("Vote2016", "Cats", "İstanbul"),
                orjson.dumps({"limit": {"track": 3}}),
                b'{"text": "cut',
                tweet(),
                tweet("MakeAmericaGreatAgain", "wh?t", "abdSeçimleri", "music"),
                orjson.dumps({"text": "no entities"}),
                b"[]",
            ]
        ),
        plain(b"ElectionDay", b"Cats", "İstanbul".encode(), b"ElectionDay", b"ElectionDay", b"ElectionDay"),
        3,
        3,
        "not JSON",
    ),
    ("twitter-election", {"rewrite": False}, tweet("Vote", "music"), plain(b"Vote", b"music"), 0, None, ""),
    (
        "ticker",
        {},
        b"1383264000\tAAPL\n1383264001 GOOG\n\n1383264002\t\nx\tMSFT\r\n1383264003\tAAPL\r\n",
        plain(b"AAPL", b"AAPL"),
        3,
        2,
        "a time, a tab and a key",
    ),
    (
        "wikipedia-visits",
        {},
        b"1200000000\thttp://en.wikipedia.org/wiki/Main_Page\n1200000001\thttp://en.wikipedia.org/wiki/\n"
        b"1200000001\thttp://de.wikipedia.org/wiki/Wien\n",
        plain(b"Main_Page", b"http://de.wikipedia.org/wiki/Wien"),
        1,
        2,
        "the key is empty",
    ),
    (
        "wikipedia-pageviews",
        {},
        b"en Main_Page 242332 4737756101\nfr.b Recherche/Andr%C3%A9 1 737\nen Two Words 3 4\nen.m Main_Page x 0\n"
        b"de  1 0\nen \xff\xfe 2 0\nen 5 6",
        [(b"en Main_Page", 242332, 0), (b"fr.b Recherche/Andr%C3%A9", 1, 0), (b"en \xff\xfe", 2, 0)],
        4,
        3,
        "4 fields are wanted, not 5",
    ),
    (
        "pageviews-by-language",
        {},
        b"en Main_Page 10 0\nen.m Main_Page 20 0\nde.voy Wien 3 0\nde Wien -1 0\n",
        [(b"en", 10, 0), (b"en", 20, 0), (b"de", 3, 0)],
        1,
        4,
        "the count is no whole number: b'-1'",
    ),
    (
        "wikibench",
        {},
        b"929840853 1190146243.303 http://upload.wikimedia.org/a.png -\n"
        b"929840854 1190146243.31 http://x.org/wiki/A save\n"
        b"929840855 1190146243.4 -\n929840856 1190146243.4 nowhere -\n",
        plain(b"http://upload.wikimedia.org/a.png", b"http://x.org/wiki/A"),
        2,
        3,
        "4 fields are wanted, not 3",
    ),
    (
        "clickstream",
        {},
        b"prev\tcurr\ttype\tn\nother-search\tWien\texternal\t120\nLinz\tWien\tlink\tmany\nGraz\t\tlink\t3\nWien\tLinz\tlink\t11\n",
        [(b"Wien", 120, 0), (b"Linz", 11, 0)],
        2,
        3,
        "the count is no whole number",
    ),
    (
        "clickstream",
        {},
        b"prev_id\tcurr_id\tn\tprev_title\tcurr_title\ttype\n3632887\t255\t121\tother-google\tWien\texternal\n"
        b"\t\t12\tother-empty\tRed_Link\tredlink\n",
        [(b"Wien", 121, 0), (b"Red_Link", 12, 0)],
        0,
        None,
        "",
    ),
    (
        "clickstream",
        {},
        b"prev_id\tcurr_id\tn\tprev_title\tcurr_title\n1\t2\t33\tLinz\tWien\n1\t2\t33\n",
        [(b"Wien", 33, 0)],
        1,
        3,
        "4 to 6 fields are wanted, not 3",
    ),
    (
        "edges",
        {},
        b"# Directed graph: Slashdot0811.txt\n# FromNodeId\tToNodeId\n0\t1\n0 2\r\n5\n5\tx\n   \n2\t1\t-1\n",
        [(b"1", 1.0, hash_key(b"0")), (b"2", 1.0, hash_key(b"0")), (b"1", 1.0, hash_key(b"2"))],
        2,
        5,
        "an edge is two numbers of vertices",
    ),
    (
        "words",
        {},
        "to be  or\tnot\n\nto bé".encode(),
        plain(b"to", b"be", b"or", b"not", b"to", "bé".encode()),
        0,
        None,
        "",
    ),
    (
        "csv",
        {"key": "city", "weight": "visits"},
        b'\xef\xbb\xbfid,city,visits\n1,"Wien, Austria",2\n\n2,"two\nlines",0.5\n3,,1\n'
        b'4,Graz\n5,Graz,-2\n6,"Graz"x,1\n7,Linz,1e2\n',
        [(b"Wien, Austria", 2, 0), (b"two\nlines", 0.5, 0), (b"Linz", 100, 0)],
        4,
        6,
        "the key is empty",
    ),
    (
        "csv",
        {"key": "2", "header": False, "separator": "tab"},
        b"a\tx\nb\ty\nc\nd\tx\n",
        plain(b"x", b"y", b"x"),
        1,
        3,
        "2 fields are wanted, not 1",
    ),
    (
        "ndjson",
        {"key": "user.id", "weight": "n"},
        b'{"user":{"id":7},"n":2}\n{"user.id":"seven","n":"3"}\n{"user":{},"n":2}\n{"user":{"id":null},"n":1}\n'
        b'{"user":{"id":1},"n":true}\n{"user":{"id":2.5},"n":0}\n7\n{"n":1}\n{"user":{"id":"\xff"}}\n',
        [(b"7", 2, 0), (b"seven", 3, 0), (b"2.5", 0, 0)],
        6,
        3,
        "there is no field id",
    ),
    ("ndjson", {}, b'{"key":"a"}\n{"key":""}\n', plain(b"a"), 1, 2, "the key is empty"),
    (
        "nasdaq",
        {"volume": True},
        b"Time,Symbol,Price,Volume\n09:30:00.1,AAPL,141.2,300\n09:30:00.2,MSFT,65.1,lots\n09:30:00.3,AAPL,141.3,100\n",
        [(b"AAPL", 300, 0), (b"AAPL", 100, 0)],
        1,
        3,
        "the weight is no number",
    ),
    ("nasdaq", {"volume": True}, b"Time,Symbol,Price,Volume\n1,AAPL,1,1_000\n", [], 1, 2, "the weight is no number"),
    ("nasdaq", {}, b"ticker,size\nAAPL,lots\nMSFT,1\n", plain(b"AAPL", b"MSFT"), 0, None, ""),
]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(("format", "settings", "content", "expected", "bad", "line", "reason"), SAMPLES)
def test_a_format_is_read(
    tmp_path: Path,
    compression: str,
    format: str,
    settings: dict[str, object],
    content: bytes,
    expected: Seen,
    bad: int,
    line: int | None,
    reason: str,
) -> None:
    path = tmp_path / "dump"
    path.write_bytes(COMPRESSIONS[compression](content))
    dump = open_dump(path, format, settings)
    assert dump.events is None
    for _ in range(2):
        assert read(dump) == expected
        assert (dump.bad.count, dump.bad.first_line) == (bad, line)
        assert dump.bad.first_reason is None if line is None else reason in str(dump.bad.first_reason)
    assert dump.events == len(expected)
    assert [dump.table.name(i) for i in range(len(dump.table))] == list(dict.fromkeys(key for key, _, _ in expected))


def test_every_format_has_a_sample_and_a_description() -> None:
    assert {sample[0] for sample in SAMPLES} == set(formats())
    for name in formats():
        assert all(setting.meaning for setting in describe_format(name))


@pytest.mark.parametrize("format", formats())
@pytest.mark.parametrize("content", [b"", b"\n", b"\x00\xff\xfe\n" * 3])
def test_no_content_stops_the_reading(tmp_path: Path, format: str, content: bytes) -> None:
    path = tmp_path / "dump"
    path.write_bytes(content)
    try:
        assert len(read(open_dump(path, format))) == (3 if format == "words" and content.strip() else 0)
    except WorkloadError as error:
        assert format in ("csv", "nasdaq") and content.strip() and "there is no column" in str(error)


@pytest.mark.parametrize("join", [gzip.compress, bz2.compress])
def test_archives_may_have_several_parts(tmp_path: Path, join: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "dump"
    path.write_bytes(join(b"a b\nc") + join(b"d\ne\n"))
    assert read(open_dump(path, "words")) == plain(b"a", b"b", b"cd", b"e")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_archive_is_read_as_far_as_it_goes(
    tmp_path: Path, compress: Callable[[bytes], bytes], damage: str
) -> None:
    random = np.random.default_rng(1)
    lines = b"".join(b"%d\n" % number for number in random.integers(0, 10**9, 150_000))
    content = bytearray(compress(lines))
    if damage == "cut":
        del content[-len(content) // 4 :]
    else:
        place = len(content) * 7 // 8
        content[place : place + 64] = bytes(64)
    path = tmp_path / "dump"
    path.write_bytes(content)
    dump = open_dump(path, "words")
    seen = read(dump)
    assert 40_000 < len(seen) < 150_000
    assert dump.events == len(seen)
    assert dump.bad.count == 1 and "cut or damaged" in str(dump.bad.first_reason)
    certain = len(seen) - 1 if damage == "cut" else len(seen) // 2
    assert lines.startswith(b"\n".join(key for key, _, _ in seen[:certain]))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_progress_goes_to_the_size_of_the_file(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "dump"
    path.write_bytes(COMPRESSIONS[compression](b"".join(b"word%d " % (i % 5_000) for i in range(3 * CHUNK)) + b"\n"))
    told: list[tuple[int, int]] = []
    dump = open_dump(path, "words", progress=lambda read, total: told.append((read, total)))
    sizes = [len(chunk) for chunk in dump.chunks()]
    assert sizes == [CHUNK] * 3 and len(dump.table) == 5_000
    size = path.stat().st_size
    assert [read for read, _ in told] == sorted(read for read, _ in told)
    assert {total for _, total in told} == {size}
    assert len(told) == 4 and told[-1] == (size, size)


def test_a_limit_ends_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "dump.csv"
    path.write_bytes(b"a b c\nd e f\n")
    dump = open_dump(path, "words", events=4)
    assert (read(dump), dump.events, dump.name) == (plain(b"a", b"b", b"c", b"d"), 4, "dump.csv")
    assert read(open_dump(path, "words", events=0)) == []


@pytest.mark.parametrize(
    ("format", "settings", "message"),
    [
        ("wrods", {}, "unknown format 'wrods'; choose from twitter-election, ticker, .* csv, ndjson"),
        ("csv", {"column": "a"}, "format 'csv': unknown setting column; choose from key, weight, separator, header"),
        ("csv", {"separator": "x"}, "separator must be one of comma, semicolon, tab, space, bar"),
        ("csv", {"key": "city"}, "there is no column city; choose from a, b"),
        ("csv", {"key": "a", "weight": "n"}, "there is no column n; choose from a, b"),
        ("nasdaq", {}, "there is no column symbol or ticker or sym or stock; choose from a, b"),
    ],
)
def test_an_error_is_one_line_that_names_the_choices(
    tmp_path: Path, format: str, settings: dict[str, object], message: str
) -> None:
    path = tmp_path / "dump"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(WorkloadError, match=message) as raised:
        read(open_dump(path, format, settings))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"can't read file '.*none.gz': No such file or directory"):
        open_dump(tmp_path / "none.gz", "words")
    with pytest.raises(WorkloadError, match=r"Is a directory"):
        open_dump(tmp_path, "words")
    with pytest.raises(WorkloadError, match="events must not be negative"):
        open_dump(tmp_path / "none", "words", events=-1)
