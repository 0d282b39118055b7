"""The windows' side of the proof: what was routed into a window against what is in its results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import orjson
from keygrouping.receipt import NOTHING, Tally

KEPT = 10_000
"""Windows that have been compared and are still known."""

PREFIX = b"window "


@dataclass(slots=True)
class Window:
    """One window's account: `dead` are routed events that the workers could not use, `results` how many there are."""

    start: int
    routed: Tally = NOTHING
    found: Tally = NOTHING
    dead: Tally = NOTHING
    results: int = 0
    verdict: str = "open"

    @property
    def missing(self) -> Tally:
        """What was routed and is neither in results nor a dead letter."""
        return self.routed.minus(self.found).minus(self.dead)

    @property
    def key(self) -> bytes:
        """Key of its record."""
        return PREFIX + str(self.start).encode()

    def encode(self) -> bytes:
        """Value of its record."""
        tallies = {name: getattr(self, name).as_json() for name in ("routed", "found", "dead")}
        return orjson.dumps({"start": self.start, **tallies, "results": self.results, "verdict": self.verdict})

    @classmethod
    def decode(cls, value: bytes) -> Window:
        """Reads a record's value; KeyError, TypeError or ValueError if it is none."""
        data: dict[str, Any] = orjson.loads(value)
        tallies = {name: Tally.from_json(data[name]) for name in ("routed", "found", "dead")}
        return cls(int(data["start"]), **tallies, results=int(data["results"]), verdict=str(data["verdict"]))

    def explain(self) -> str:
        """What differs, in one line."""
        events = self.missing.events
        if events > 0:
            return f"{events} of {self.routed.events} routed events are missing in the {self.results} results"
        if events < 0:
            return (
                f"the {self.results} results hold {-events} events more than the {self.routed.events} that were routed"
            )
        return f"the results hold other events than the {self.routed.events} that were routed, if as many"


class Windows:
    """All windows that are known.

    Of those that start before `since` some accounts may be deleted: they are proven if they add up, else unknown.
    """

    def __init__(self, since: int, forgotten: int) -> None:
        self.since = since
        self.forgotten = forgotten
        """Windows that start before are known no more, but were compared."""
        self._known: dict[int, Window] = {}
        self._open: set[int] = set()
        self._changed: set[int] = set()

    def restore(self, window: Window) -> None:
        """Takes over what was known before a restart."""
        self._known[window.start] = window
        if window.verdict == "open":
            self._open.add(window.start)

    def routed(self, start: int, tally: Tally) -> bool:
        """So much was routed into a window; False if it is known no more."""
        window = self._touch(start)
        if window is not None:
            window.routed = window.routed.plus(tally)
        return window is not None or start < self.since

    def found(self, start: int, tally: Tally) -> bool:
        """A result of a window holds so much; False if it is known no more."""
        window = self._touch(start)
        if window is not None:
            window.found = window.found.plus(tally)
            window.results += 1
        return window is not None or start < self.since

    def dead(self, start: int, tally: Tally) -> None:
        """So much of what was routed into a window became dead letters."""
        window = self._touch(start)
        if window is not None:
            window.dead = window.dead.plus(tally)

    def _touch(self, start: int) -> Window | None:
        if start < self.forgotten:
            return None
        window = self._known.get(start)
        if window is None:
            window = self._known[start] = Window(start)
        window.verdict = "open"
        self._open.add(start)
        self._changed.add(start)
        return window

    def judge(self, before: int) -> Iterator[Window]:
        """Compares the windows that start before this time and have not been compared as they are now."""
        for start in sorted(start for start in self._open if start < before):
            window = self._known[start]
            window.verdict = self._verdict(window)
            self._open.discard(start)
            self._changed.add(start)
            yield window

    def _verdict(self, window: Window) -> str:
        if window.missing == NOTHING:
            return "proven"
        return "unknown" if window.start < self.since else "differs"

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Key and value of the records of all windows that have changed since the last time; None: forgotten."""
        judged = sorted(start for start in self._known if start not in self._open)
        for start in judged[: max(0, len(judged) - KEPT)]:
            self.forgotten = max(self.forgotten, start + 1)
            self._changed.discard(start)
            yield self._known.pop(start).key, None
        for start in self._changed:
            yield self._known[start].key, self._known[start].encode()
        self._changed.clear()

    @property
    def open(self) -> int:
        """Windows that are yet to be compared."""
        return len(self._open)

    @property
    def differing(self) -> list[Window]:
        """Windows whose results are not what was routed, the oldest first."""
        return sorted((w for w in self._known.values() if w.verdict == "differs"), key=lambda window: window.start)

    @property
    def all(self) -> Iterable[Window]:
        """Each that is known."""
        return self._known.values()

    def listed(self, limit: int) -> list[Window]:
        """Windows that differ, then those that are judged, the newest first; then open ones, the oldest first.

        Open are also windows of events whose clocks were ahead, so the newest of all may be long to come.
        """
        order = {"differs": 0, "proven": 1, "unknown": 1, "open": 2}

        def place(window: Window) -> tuple[int, int]:
            return order[window.verdict], window.start if window.verdict == "open" else -window.start

        return nsmallest(limit, self._known.values(), key=place)
