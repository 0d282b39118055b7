"""Events with whatever may stand in one, and jobs that look at all parts of them: what every reading is tested with."""

from __future__ import annotations

import random
from typing import Any

from keygrouping.job import MAX_KEY_BYTES, JobSpec
from keygrouping_service.records.record import Record

NOW_MS = 1_800_000_000_000
"""The wall clock that they are judged by."""

_ODD = (
    *b'0 -0 -0.0 3 3.0 1e2 1E40 1e-400 0.1 true null [] {} {"b":1} 1e400 -1e400 NaN Infinity 01 +1 .5 1. 0x1'.split(),
    *b"9223372036854775807 9223372036854775808 -9223372036854775809 18446744073709551616 1e19".split(),
    *b"1700000000 1700000000000 -1".split(),
    *(b"1" * 400, b"1" * 400 + b".5", b"[" * 900 + b"]" * 900, b"[" * 2000),
    *rb'"" "3" "NaN" "\u0000" "\ud800" "\ud83d\ude00"'.split(),
    *(b'"\xff"', b'"' + b"k" * 70_000 + b'"'),
    *b'"2026-01-31T12:00:00Z" "2026-01-31T12:00:60Z" "1969-12-31T23:59:59Z" "2026-02-30T00:00:00Z"'.split(),
    *b'"9999-12-31T23:59:59Z" "2026-01-31t12:00:00.5-23:59" "2024-02-29T23:59:59.9999999+19:30"'.split(),
    *b'"1970-01-01T00:00:00.0019z" "2026-01-31T01:59:59.000999-00:01" "2026-1-31T01:59:59Z" "2026-01-31"'.split(),
)
_VALUES = (
    *(None, b"", b" ", b"{} x", b"\xef\xbb\xbf{}"),
    *b"""5 "text" [] null { {} {"x":1,} {'x':1}""".split(),
    *(b'{"x":%b}' % odd for odd in _ODD),
    *(b'{"a":%b,"x":1}' % odd for odd in _ODD),
    *(b'{"a":{"b":%b},"w":1,"t":5}' % odd for odd in _ODD),
    *(b'{"w":%b,"x":2}' % odd for odd in _ODD),
    *(b'{"t":%b,"k":"z"}' % odd for odd in _ODD),
    *(b'{"k":%b,"w":2,"t":7}' % odd for odd in _ODD),
    *(b'{"x":1,"x":%b}' % odd for odd in _ODD),
    *(b'{"X":1,"x ":2,"a.b":3,"/a/b":4,"a/b":5,"~1":6}', b'\n{"x" : 3 }\t', b'{"\\u0078":7}'),
)
_KEYS = (b"k", None, b"", b"\xff\x00", b"k" * MAX_KEY_BYTES, b"k" * (MAX_KEY_BYTES + 1))
_TIMES = (0, 1, NOW_MS, -1, -(2**62), NOW_MS + 3_600_000, NOW_MS + 3_600_001, 2**62)
_HEADERS: tuple[list[tuple[str, bytes | None]], ...] = (
    [],
    [("h", b"1")],
    [("h", b"1"), ("h", None)],
    [("h", None), ("h", b"\xfe"), ("g", b"2")],
    [("caf\udce9", b"1"), ("h", b"1")],
)
_X_AND_AB = [
    {"name": "n", "op": "count"},
    {"name": "total", "op": "sum", "field": "x"},
    {"name": "kinds", "op": "distinct", "field": "x"},
    {"name": "there", "op": "count", "field": "/a/b"},
    {"name": "price", "op": "vwap", "field": "/a/b", "weight": "w"},
]
_JOBS: dict[str, dict[str, Any]] = {
    "plain": {"aggregates": _X_AND_AB[:1]},
    "fields": {"aggregates": _X_AND_AB},
    "own-aggregate": {
        "aggregates": [*_X_AND_AB[:2], {"name": "mean", "op": "keygrouping_local.picky:GeometricMean", "field": "x"}]
    },
    "own-aggregate-of-members": {
        "aggregates": [_X_AND_AB[0], {"name": "mean", "op": "keygrouping_local.picky:GeometricMean", "field": "x"}]
    },
    "size-and-header": {"aggregates": _X_AND_AB[:1], "weight": "size", "key": {"header": "h"}},
    "key-and-weight-of-fields": {"aggregates": _X_AND_AB[:2], "key": {"field": "/a/b"}, "weight": {"field": "w"}},
    "key-of-a-field": {"aggregates": _X_AND_AB[:1], "key": {"field": "k"}},
    "seconds": {"aggregates": _X_AND_AB[:1], "time": {"field": "t", "unit": "s"}},
    "ms": {"aggregates": _X_AND_AB[:1], "time": {"field": "t"}},
    "iso": {"aggregates": _X_AND_AB[:1], "time": {"field": "t", "unit": "iso"}},
}
JOBS = {name: JobSpec.from_json(job) for name, job in _JOBS.items()}
"""Jobs by what is special about them."""


def hostile_events() -> list[Record]:
    """Every value with a good record around it, and every odd key, time and headers with some values."""
    chance = random.Random(1)
    parts: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]] = [
        (_KEYS[0], value, _TIMES[2], _HEADERS[1]) for value in _VALUES
    ]
    for _ in range(400):
        value = chance.choice((chance.choice(_VALUES), b'{"x":1,"a":{"b":2},"w":1,"t":5,"k":"z"}'))
        parts.append((chance.choice(_KEYS), value, chance.choice(_TIMES), chance.choice(_HEADERS)))
    return [
        Record("events", 0, offset, time, key, value, headers)
        for offset, (key, value, time, headers) in enumerate(parts)
    ]
