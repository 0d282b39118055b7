"""Dead letters on their way back: which are sent again, as what, and what is remembered of it.

What was sent again stands in receipts: records of the dead letters' own topic that name offsets of their partition. A
receipt lies behind what it names, so retention never forgets that a letter was sent while the letter is still there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from keygrouping_app.dead_letters import EVENT_TIME, HEADERS, PREFIX, REDRIVEN
from keygrouping_app.events import Outgoing, Placed

_RECEIPT = f"{PREFIX}redrive"
"""Header of a receipt: the app's name."""

_A_TIME = re.compile("-?[0-9]{1,19}", re.ASCII)
_LATEST = (1 << 63) - 1
TRUNCATED = "without value, as the event was too large for a dead letter: see keygrouping-identity"
DAMAGED = "with headers that don't say where the event came from"
GONE = "from topics that don't exist any more"
NOT_CHOSEN = "not chosen"
DONE = "sent again before"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter of the app: the record, and what its headers say of it."""

    raw: Placed
    told: Mapping[str, str]

    @property
    def topic(self) -> str:
        """Where the event came from."""
        return self.told.get(f"{PREFIX}topic", "")

    @property
    def partition(self) -> int:
        """The partition that it came from; -1 if the headers don't say."""
        text = self.told.get(f"{PREFIX}partition", "")
        return int(text) if text.isascii() and text.isdigit() else -1

    @property
    def time(self) -> int:
        """The event's, ms since the epoch."""
        text = self.told.get(EVENT_TIME, "")
        is_ours = EVENT_TIME in [name for name, _ in self.raw.headers[-2:]]
        is_time = is_ours and _A_TIME.fullmatch(text) and int(text) <= _LATEST
        return int(text) if is_time else self.raw.timestamp

    @property
    def reason(self) -> str:
        """Why it failed, in a word."""
        return self.told.get(f"{PREFIX}reason", "")

    @property
    def digest(self) -> str:
        """The same for failures at the same place of the code."""
        return self.told.get(f"{PREFIX}digest", "")

    def fault(self, topics: Collection[str]) -> str | None:
        """Why it can't be sent again; `topics` are those that there are."""
        if f"{PREFIX}truncated" in self.told:
            return TRUNCATED
        if not self.topic or self.partition < 0:
            return DAMAGED
        return None if self.topic in topics else GONE

    def event(self, partitions: Collection[int]) -> Outgoing:
        """The event as it was, with a header that names this letter; `partitions` are those that its topic has.

        It goes to the partition that it came from, whatever has chosen that.
        """
        own = [(name, value) for name, value in self.raw.headers if name not in HEADERS]
        place = f"{self.raw.topic}/{self.raw.partition}/{self.raw.offset}"
        partition = self.partition if self.partition in partitions else None
        headers = (*own, (REDRIVEN, place.encode()))
        return Outgoing(self.topic, partition, self.time, self.raw.key, self.raw.value, headers)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which dead letters are meant; what is empty chooses all."""

    reasons: Collection[str] = ()
    topics: Collection[str] = ()
    digests: Collection[str] = ()

    def __contains__(self, letter: Letter) -> bool:
        wanted = ((self.reasons, letter.reason), (self.topics, letter.topic), (self.digests, letter.digest))
        return all(not choices or value in choices for choices, value in wanted)


@dataclass(slots=True)
class Report:
    """How many letters are sent, by reason, digest and topic, and how many are left, by why."""

    chosen: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """One detail of each."""
    left: Counter[str] = field(default_factory=Counter)

    def choose(self, letter: Letter) -> None:
        """Counts one that is sent."""
        kind = (letter.reason, letter.digest, letter.topic)
        self.chosen[kind] += 1
        self.examples.setdefault(kind, letter.told.get(f"{PREFIX}detail", ""))


def letter_of(raw: Placed, app: str) -> Letter | None:
    """The record as a dead letter of the app; None if it is none."""
    told = {name: (value or b"").decode(errors="replace") for name, value in raw.headers if name.startswith(PREFIX)}
    return Letter(raw, told) if told.get(f"{PREFIX}app") == app else None


def receipt(app: str, topic: str, partition: int, offsets: Iterable[int]) -> Outgoing:
    """The record that says that the letters at these offsets of its partition were sent again."""
    value = orjson.dumps({"redriven": list(offsets)})
    return Outgoing(topic, partition, -1, None, value, ((_RECEIPT, app.encode()),))


def redriven(raw: Placed, app: str) -> list[int]:
    """The offsets that a record names as a receipt of the app; none if it is no receipt. ValueError if damaged."""
    if (_RECEIPT, app.encode()) not in raw.headers:
        return []
    said = orjson.loads(raw.value or b"")
    offsets = said.get("redriven") if isinstance(said, dict) else None
    if not isinstance(offsets, list) or not all(isinstance(each, int) for each in offsets):
        raise ValueError("it has no offsets")
    return offsets
