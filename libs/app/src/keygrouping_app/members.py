"""What the members of an app tell at `/keys`, put together."""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson

from keygrouping_app.split import Load, Split, split_of

_SECONDS = 5.0
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Answers:
    """What was told by those members that answered, and by their addresses why the others did not."""

    told: list[dict[str, Any]]
    silent: dict[str, str]


@dataclass(slots=True)
class Key:
    """One key: see `/keys`. `needs` are seconds of its calls; None as name: what has no order and is not told apart."""

    name: str | None
    ordered: bool = True
    needs: float = 0.0
    waiting: int = 0
    wait: float = 0.0
    what: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """One handler in all members; sums but for `span`, `oldest`, the ages in seconds, and `gap`, the largest."""

    topic: str
    handler: str
    parts: Sequence[dict[str, Any]]

    def sum(self, name: str) -> float:
        """Of all members."""
        total: float = sum(part[name] for part in self.parts)
        return total

    @property
    def seconds(self) -> float:
        """Of handlers, that all keys need."""
        return sum(load.seconds for load in self.loads)

    @property
    def span(self) -> float:
        """Seconds of time that is told of, at most."""
        longest: float = max(part["span"] for part in self.parts)
        return longest

    @property
    def oldest(self) -> float:
        """Age of the oldest event that waits."""
        oldest: float = max(part["oldest_event_age"] for part in self.parts)
        return oldest

    @property
    def gap(self) -> int:
        """The largest of all partitions, in offsets."""
        return max((span for part in self.parts for span in part["gaps"].values()), default=0)

    @property
    def breakers(self) -> list[str]:
        """The states that members' breakers are in."""
        return sorted({part["breaker"] for part in self.parts})

    @property
    def loads(self) -> list[Load]:
        """Of each member."""
        return [Load(part["load"]["seconds"], part["load"]["hottest"], part["lanes"]) for part in self.parts]

    @property
    def split(self) -> Split:
        """What a split of hot keys would give."""
        return split_of(self.loads)

    @property
    def sharing(self) -> list[dict[str, Any]]:
        """What members tell of the hot keys that they share; empty if they don't."""
        return [told for part in self.parts if (told := part.get("sharing")) is not None]

    @property
    def moves(self) -> list[dict[str, Any]]:
        """What members tell of keys that they hand over; empty if they don't."""
        return [told for part in self.parts if (told := part.get("moves")) is not None]

    @property
    def restoring(self) -> list[dict[str, Any]]:
        """What members tell of partitions that wait for their states; empty if none does."""
        return [told for part in self.parts if (told := part.get("restoring")) is not None]

    @property
    def refused(self) -> int:
        """Partitions of which nothing is committed, as a broker refuses it; members of earlier versions tell none."""
        return sum(len(part.get("refused", ())) for part in self.parts)

    def by_need(self) -> list[Key]:
        """Those that need most first."""
        found: dict[str | None, Key] = {}
        for told in (each for part in self.parts for each in part["keys"]):
            key = found.setdefault(told["key"], Key(told["key"], told["ordered"]))
            key.needs += told["needs"]
            key.waiting += told["waiting"]
            if told["for"] is not None and told["wait"] >= key.wait:
                key.wait, key.what = told["wait"], told["for"]
        return sorted(found.values(), key=lambda key: -key.needs)


def ask(urls: Sequence[str]) -> Answers:
    """Asks members, all at once; within seconds."""
    with ThreadPoolExecutor(len(urls)) as threads:
        found = dict(zip(urls, threads.map(_told, urls), strict=True))
    return Answers(
        [told for told in found.values() if not isinstance(told, str)],
        {url: told for url, told in found.items() if isinstance(told, str)},
    )


def groups_of(told: Iterable[dict[str, Any]]) -> list[Group]:
    """The handlers, by topic."""
    parts: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for member in told:
        for part in member["handlers"]:
            parts[part["topic"], part["handler"]].append(part)
    return [Group(topic, handler, found) for (topic, handler), found in sorted(parts.items())]


def _told(url: str) -> dict[str, Any] | str:
    """What a member tells, or why it does not."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/keys", timeout=_SECONDS) as answer:
            found = orjson.loads(answer.read(_MOST_BYTES))
    except (OSError, ValueError) as error:
        return str(error)
    return found if isinstance(found, dict) and "handlers" in found else "what is there is no app of this version"
