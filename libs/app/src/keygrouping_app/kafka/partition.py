"""One partition in a member's hands: what was read of it, what has ended, and what is to be written first."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from keygrouping_app.codecs import Topic
from keygrouping_app.events import Event, Outgoing, Raw, Source, events_of
from keygrouping_app.gaps import MOST_METADATA, Ended, Gaps, GapsError, decode
from keygrouping_app.kafka.ranges import MOST_END, MOST_STATES, End, split_end, split_states, with_end, with_states
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.moves import BusyError, Moves, Step, Waiting
from keygrouping_app.scheduler import Failure
from keygrouping_app.states import InputKey, States

log = logging.getLogger(__name__)

_TOLD_SECONDS = 60.0
STATE_WITHHELD = (
    "%s[%d]: a state is not written, as %s. Correct the topic's settings: all else goes on, and nothing is "
    "lost meanwhile, but events that change it are dead letters as long as the result is refused, too"
)
ANSWER_WITHHELD = (
    "%s[%d]: a key is called, and its input can't be answered, as %s. Correct the topic's settings: all else goes on, "
    "and nothing is lost meanwhile, but the events of that key are held until then"
)


@dataclass(frozen=True, slots=True)
class Returned:
    """What a call has returned, or the dead letters of its events."""

    events: Sequence[Event]
    outgoing: Sequence[Outgoing]
    letters: bool = False
    """Whether they are dead letters."""

    @property
    def count(self) -> int:
        """How many events it is held for, or records if it is more of them."""
        return max(len(self.events), len(self.outgoing))

    @property
    def size(self) -> int:
        """Bytes of all that is held until it is written."""
        return sum(one.size for one in self.outgoing) + sum(event.size for event in self.events)


@dataclass(frozen=True, slots=True)
class Given:
    """An event that is to be written to a slot instead of being handled here, and its record there."""

    event: Event
    record: Outgoing
    slot: int

    @property
    def size(self) -> int:
        """Bytes that are held until it is written."""
        return self.record.size + self.event.size


class _Commit(NamedTuple):
    """`is_cut`: whether the metadata has no room for all that has ended."""

    first: int
    metadata: str
    is_cut: bool = False


class Partition(Source):
    """An owned partition from the commit on that it was found with, up to its end if it has one."""

    moves: Moves | None = None
    """Where its keys are, if they may be handed over."""
    names_record = False
    """Whether commits name a record that was written with one of them, as they always do if there are states."""
    marks: Sequence[Outgoing] = ()
    """Records that are to be written with a commit that names the last of them, until one does."""
    urgent: asyncio.Event | None = None
    """Set when the next transaction is for a key that is held, and waits for no interval."""
    _refusal = ""
    """Why nothing of it is committed, as a broker refuses for good what belongs to it; empty: it refuses nothing."""
    _withheld: Mapping[str, str] = MappingProxyType({})
    """Why something is not written, by the line that tells it."""
    _try_at = -math.inf
    """When that is tried again, by the event loop's clock."""
    _told_at: Mapping[str, float] = MappingProxyType({})
    """When each line was told last."""
    _again: asyncio.TimerHandle | None = None

    def __init__(
        self,
        tp: TopicPartition,
        topic: Topic,
        found: OffsetAndMetadata,
        dirty: asyncio.Event,
        end: End | None = None,
        transactions: Transactions | None = None,
        states: States | None = None,
    ) -> None:
        super().__init__(topic, states, tp.partition)
        self.tp = tp
        self.dirty = dirty
        """Wakes who commits for it."""
        self.transactions = transactions
        """None: at least once."""
        self.names_record |= states is not None
        taken = (MOST_END if end else 0) + (MOST_STATES if self.names_record else 0)
        self.gaps = Gaps(found.offset, _ended(tp, found), MOST_METADATA - taken)
        self.refused: dict[int, Failure] = {}
        """Events that are dead letters without being handled, by offset: their outputs were refused for good."""
        self._returned: list[Returned] = []
        self._given: list[Given] = []
        self.giving = 0
        """How many events are on their way to slots: they have not ended until they are there."""
        self.unshared: set[int] = set()
        """Events that no slot has taken, by offset: they are handled here."""
        self.unwritten = 0
        """How many events have outputs, dead letters or records of slots that are to be written."""
        self.unwritten_bytes = 0
        self.lost = False
        """Whether it went to another member without our doing: nothing of it is committed any more."""
        self.spoilt = False
        """Whether it begins again from what is committed: nothing of this one is committed any more."""
        self.paused = False
        """Whether it is not read any further for now, as memory or its gap is full."""
        self.read_at = -math.inf
        """When records of it were read last, by the event loop's clock."""
        self.log_end: int = found.offset
        """Behind the last record that it was seen to have in Kafka."""
        self._committed = found
        self._now = _Commit(found.offset, found.metadata)
        self._changed = True
        """Whether something has been read or has ended since it was told last what is to be committed."""
        self._end = end

    @property
    def is_half_read(self) -> bool:
        """Whether parts of states were read, and not yet their records: only when these are read there is room."""
        return False

    @property
    def read(self) -> bool:
        """Whether all up to its end was read."""
        return self._end is not None and self.gaps.position >= self._end.offset

    @property
    def place(self) -> tuple[str, int]:
        """Topic and number."""
        return self.tp.topic, self.tp.partition

    @property
    def span(self) -> int:
        """Offsets between what is committed and the last that is known of."""
        return self.gaps.span

    @property
    def gap_room(self) -> int:
        """How many further offsets may be read before the commit's metadata is full."""
        return self.gaps.offsets_left

    @property
    def lag(self) -> int:
        """Records that have not ended, as far as it was seen in Kafka: held ones and those still to be read."""
        end = self.log_end if self._end is None else min(self.log_end, self._end.offset)
        return len(self.gaps) + max(0, end - self.gaps.position)

    def take(self, records: Sequence[Raw], position: int) -> list[Event]:
        """The events among records that have not ended already; reading goes on at `position`, or at the end.

        Or earlier: at the first record for which a commit may have no room.
        """
        wants = self.gaps.wants
        if self._end is not None and position > (end := max(self._end.offset, self.gaps.position)):
            records, position = [raw for raw in records if raw.offset < end], end
        if not records or records[0].offset <= self.gaps.known:
            records = [raw for raw in records if wants(raw.offset)]
        offsets = _offsets(records)
        if not self.is_half_read and (fitting := self.gaps.fitting(offsets)) < len(records):
            records, offsets, position = records[:fitting], offsets[:fitting], offsets[fitting]
        self._changed |= position != self.gaps.position
        self.gaps.take(offsets, position)
        return self._events(records)

    def _events(self, records: Iterable[Raw]) -> list[Event]:
        return events_of(records, self)

    def group_of(self, event: Event) -> Hashable:
        """See `Source`."""
        return event.group if self.moves is None else InputKey(self.tp.partition, event.group)

    def is_held(self, group: Hashable) -> bool:
        """Whether a key is to be handed over, so its state must stay as it is."""
        return self.moves is not None and self.moves.is_held(group)

    def here(self, events: list[Event]) -> list[Event]:
        """See `Source`. The others are held until the state of their key is where it is to be, or forwarded."""
        if self.moves is None:
            return events
        here, held = self.moves.here(events)
        self.hold(held)
        return here

    def room(self, events: int, size: int) -> int:
        """How many records may be read of it, given how many events and bytes of it may be held.

        What is to be written counts as held, too: a broker may take it more slowly than handlers make it.
        """
        if self.bytes + self.unwritten_bytes >= size:
            return 0
        return min(self.gaps.room(), events - self.events - self.unwritten)

    def end(self, events: Sequence[Event], outgoing: Sequence[Outgoing], *, letters: bool = False) -> None:
        """Events have ended, and this is to be written: what the handler has returned, or dead letters."""
        if outgoing:
            returned = Returned(events, outgoing, letters)
            self._returned.append(returned)
            self.unwritten += returned.count
            self.unwritten_bytes += returned.size
        self._end_offsets([event.raw.offset for event in events])

    def _end_offsets(self, offsets: Sequence[int]) -> None:
        self.gaps.end(offsets)
        if self.unshared:
            self.unshared.difference_update(offsets)
        self._changed = True

    def give(self, given: Given) -> None:
        """An event that waits for no call any more is to be written to a slot."""
        self._given.append(given)
        self.giving += 1
        self.unwritten += 1
        self.unwritten_bytes += given.size

    def give_again(self, given: list[Given]) -> None:
        """These were not written: they are to be, before all others."""
        self._given = given + self._given

    def take_given(self) -> list[Given]:
        """What is to be written to slots now. It is held until `gave` or `keep_here`."""
        taken, self._given = self._given, []
        return taken

    def gave(self, given: Sequence[Given]) -> None:
        """These are in their slots: here they have ended."""
        self._let_go(given)
        self._end_offsets([each.event.raw.offset for each in given])

    def drop_given(self, given: Sequence[Given]) -> None:
        """These, which were taken, are not written to slots: they are to end in another way."""
        self._let_go(given)

    def keep_here(self, given: Sequence[Given]) -> list[Event]:
        """These are not in their slots: gives those to be handled here, none of a partition that is to be another's."""
        self._let_go(given)
        if self.closed or self.lost:
            return []
        self.unshared.update(each.event.raw.offset for each in given)
        return [each.event for each in given]

    def _let_go(self, given: Sequence[Given]) -> None:
        self.giving -= len(given)
        self.unwritten -= len(given)
        self.unwritten_bytes -= sum(each.size for each in given)

    def take_returned(self) -> list[Returned]:
        """What is to be written now. It is held until `wrote`; `keep` has it written again."""
        taken, self._returned = self._returned, []
        return taken

    def keep(self, returned: list[Returned]) -> None:
        """These were not written, or not all of them."""
        self._returned = returned + self._returned

    def wrote(self, returned: Sequence[Returned]) -> None:
        """These are written, or the dead letters of their events."""
        self.unwritten -= sum(each.count for each in returned)
        self.unwritten_bytes -= sum(each.size for each in returned)
        for event in [event for each in returned if each.letters for event in each.events] if self.refused else ():
            self.refused.pop(event.raw.offset, None)

    def due(self, given: Sequence[Given] = (), step: Step | None = None) -> OffsetAndMetadata | None:
        """What is to be committed now; None if nothing has changed since the last commit, or if not all that has ended
        has room in a transaction's commit: it has some when others have ended, too.

        `given`: what is written to slots in the same transaction. `step`: what it does for keys that move, if anything.
        """
        if self._changed:
            self._now = self._commit_of(self.gaps)
            self._changed = False
        commit = self._now
        offsets = [*(each.event.raw.offset for each in given), *(() if step is None else step.ended)]
        if offsets:
            commit = self._commit_of(self.gaps.once_ended(offsets))
        if commit.is_cut and self.transactions is not None:
            return None
        metadata = commit.metadata
        if self.names_record:
            metadata = with_states(metadata, split_states(self._committed.metadata)[1])
        now = OffsetAndMetadata(commit.first, metadata)
        if now == self._committed and not step:
            self._refusal = ""  # It was of what needs no commit any more.
            return None
        return now

    def _commit_of(self, gaps: Gaps) -> _Commit:
        metadata = with_end(gaps.encode(), self._end)
        return _Commit(gaps.first, metadata, gaps.cut)

    def committed(self, what: OffsetAndMetadata) -> None:
        """A commit was answered."""
        self._committed = what
        self._refusal = ""
        self._look_at_withheld()
        if self.marks and split_states(what.metadata)[1] is not None:
            self.marks = ()

    @property
    def refusal(self) -> str:
        """Why nothing of it is committed, or why a state of it is not written; empty: a broker refuses neither."""
        return self._refusal or "; ".join(self._withheld.values())

    def refuse(self, why: str) -> None:
        """A commit is refused for good, and no event is to blame; tells it, but not more often than once a minute."""
        self._refusal = why
        self._tell(
            "%s[%d]: nothing of it is committed, as %s. Give the app the right to write there, or correct the topic's "
            "settings (kafka-acls, kafka-configs): it is tried again until that is done, and nothing is lost. If a "
            "topic was deleted, restart the member, which says what to do",
            why,
        )

    def withhold(self, why: str, seconds: float, line: str = STATE_WITHHELD) -> None:
        """Something is not written for so many seconds, as it is refused, and no event is to blame; tells it by this
        line, too."""
        self._withheld, clock = {**self._withheld, line: why}, asyncio.get_running_loop()
        if self._try_at <= clock.time():
            self._try_at = clock.time() + seconds
            clock.call_later(seconds, self.dirty.set)
        self._tell(line, why)

    @property
    def withholds(self) -> set[str]:
        """The lines that tell of what is not written for now, as it is refused."""
        return {STATE_WITHHELD} if self.states is not None and self.states.withheld else set()

    def _look_at_withheld(self) -> None:
        lines = self.withholds
        self._withheld = {line: why for line, why in self._withheld.items() if line in lines}
        self._told_at = {line: at for line, at in self._told_at.items() if line in lines}

    def write_withheld(self) -> None:
        """Has tried again what was refused long enough ago."""
        if self.withholds and self._try_at <= asyncio.get_running_loop().time():
            self._write_withheld()

    def _write_withheld(self) -> None:
        if self.states is not None:
            self.states.write_withheld()

    def _tell(self, line: str, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._told_at.get(line, -math.inf) + _TOLD_SECONDS:
            self._told_at = {**self._told_at, line: now}
            log.error(line, *self.tp, why)

    @property
    def changelog_end(self) -> int:
        """Behind the last record of the changelog that belongs to what is committed; 0 if none does."""
        last = split_states(self._committed.metadata)[1]
        return 0 if last is None else last + 1

    def step(self, lanes: Waiting) -> Step:
        """What the next transaction does for keys that move."""
        if self.moves is None or self.closed:
            return Step()
        step, held = self.moves.step(lanes)
        self.hold(held)
        return step

    def movable(self, key: bytes) -> list[Hashable]:
        """What orders the events of a key that is written so, if it may be handed over. BusyError if it is to be."""
        if self.moves is None or self.states is None or self.closed:
            return []
        found = [group for group in self.states.groups_written(key) if self.moves.knows(group)]
        if any(self.moves.is_held(group) for group in found):
            raise BusyError
        return found

    def ask(self, group: Hashable, target: int) -> None:
        """Has a key go to a slot, or HOME. BusyError."""
        if self.moves is not None and self.moves.ask(group, target):
            self.hurry()

    def hurry(self) -> None:
        """Has the next transaction begin at once."""
        self.dirty.set()
        if self.urgent is not None:
            self.urgent.set()

    def look_again(self, seconds: float) -> None:
        """Has a transaction begin after a while."""
        clock = asyncio.get_running_loop()
        if self._again is None or self._again.when() <= clock.time():
            self._again = clock.call_later(seconds, self.dirty.set)

    async def rest(self, seconds: float) -> None:
        """Between two transactions."""
        if self.urgent is None:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.urgent.wait()
        self.urgent.clear()

    @property
    def waits_to_move(self) -> bool:
        """Whether keys are to be handed over."""
        return self.moves is not None and bool(self.moves.asked)

    def stepped(self, step: Step) -> None:
        """That is committed."""
        for done in step.done:
            done()
        self._look_at_withheld()
        self._end_offsets(step.ended)


def _offsets(records: Sequence[Raw]) -> Sequence[int]:
    if records and (first := records[0].offset) + len(records) - 1 == (last := records[-1].offset):
        return range(first, last + 1)
    return [raw.offset for raw in records]


def _ended(tp: TopicPartition, found: OffsetAndMetadata) -> Ended:
    try:
        return decode(found.offset, split_end(found.metadata)[0])
    except GapsError as error:
        log.warning("%s[%d]: %s; every event from the committed offset on is handled", tp.topic, tp.partition, error)
        return Ended()
