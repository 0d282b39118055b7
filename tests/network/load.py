"""Events with a skew and an identity each, as the lines of files that the producer replays."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

from keygrouping.workload import workload

STEP_MS = 20
WINDOW_MS = 10_000
LATENESS_MS = 2_000
CONFIRMATIONS = 32
"""The job's default."""
START_MS = 1_357_000_000_000
KEYLESS = 500
"""One event in so many has no key, and so is no event that could be counted."""
LATE = 300
"""One event in so many comes too late."""
REJECTED = 97
"""One event in so many is none that an app could handle."""

JOB = json.dumps(
    {
        "window": "10s",
        "lateness": "2s",
        "aggregates": [
            {"name": "events", "op": "count"},
            {"name": "n", "op": "sum", "field": "n"},
            {"name": "least", "op": "min", "field": "n"},
            {"name": "most", "op": "max", "field": "n"},
            # With the count, these two tell which event a result has too many or too few.
            {"name": "ids", "op": "sum", "field": "id"},
            {"name": "squares", "op": "sum", "field": "square"},
        ],
    }
)


class Load:
    """An endless stream in event time, cut into files; the same seed is the same stream."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._seed = seed
        self._next = 0

    def write(self, file: Path, count: int) -> range:
        """Writes the next `count` events; returns their ids."""
        ids = range(self._next, self._next + count)
        self._next += count
        keys = self._keys(count, self._seed + ids.start)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(self._line(number, key) for number, key in zip(ids, keys, strict=True)))
        return ids

    def _keys(self, count: int, seed: int) -> Iterator[str]:
        stream = workload("zipf", count, seed, {"z": 1.2, "keys": 300})
        for chunk in stream.chunks():
            for key in chunk.keys:
                yield stream.table.name(int(key)).decode()

    def _line(self, number: int, key: str) -> str:
        behind = self._chance.choice([0, 0, 0, 500, 1_500])
        if self._chance.randrange(LATE) == 0:
            behind = 30_000
        event = {
            "id": number,
            "square": number * number,
            "key": None if self._chance.randrange(KEYLESS) == 0 else key,
            "at": _text(START_MS + number * STEP_MS - behind),
            "n": self._chance.randrange(-1000, 1000),
        }
        return json.dumps(event) + "\n"


def _text(time_ms: int) -> str:
    seconds, rest = divmod(time_ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03}Z"
