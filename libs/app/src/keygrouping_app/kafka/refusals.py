"""What is written in place of outputs that a broker refuses for good: the dead letters of their events."""

from __future__ import annotations

import time
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from aiokafka.errors import (
    InvalidPartitionsError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from keygrouping_app.dead_letters import corrected, dead_letter
from keygrouping_app.events import Event, Outgoing
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.partition import Given, Returned
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.kafka.writing import OF_TOPIC, RefusedError
from keygrouping_app.moves import Step
from keygrouping_app.parts import key_of
from keygrouping_app.scheduler import Failure
from keygrouping_app.states import States
from keygrouping_app.tally import REFUSED, REFUSED_STATE

_MOST_DETAIL = 1000
_PIECES = 64
"""In which what was refused together is tried out, one after another in a transaction that is soon over; the one that
is refused is tried out in as many, until it is a record."""
KNOWN_SECONDS = 60.0
"""For which it is known what is refused; then it is tried again, as settings may have been corrected."""
_CLOCKS_DIFFER_MS = 120_000
_BY_SIZE = (MessageSizeTooLargeError, RecordListTooLargeError)
_BY_BOUND = (*_BY_SIZE, InvalidTimestampError)
_NO_EVENT = (*OF_TOPIC, InvalidPartitionsError, InvalidTimestampError)
"""What refuses records that go to slots, and no event is to blame for: their time is when they are written."""


class RefusedStatesError(RefusedError):
    """Of a transaction, records of states are refused for good. `why`: by their place among these records."""


class RefusedMovesError(RefusedError):
    """Of a transaction, records are refused for good that go to slots, or to changelogs of others. `why`: by their
    place among these."""


async def blamed(
    transactions: Transactions, records: Sequence[Outgoing], refused: RefusedError
) -> tuple[Mapping[int, BaseException], int]:
    """Which of a transaction's records are surely to blame for its end, by their place.

    If none is by itself, as a batch of them was too large, it gives none, and how many of a topic may go together.
    """
    why, places, size = refused.why, refused.together, len(refused.together)
    while not why:
        size = -(-size // _PIECES)
        suspects = [records[place] for place in places]
        error = await _refusal(transactions, suspects, size)
        if error is None:
            return {}, await _most_together(transactions, suspects, size)
        why = {places[number]: each for number, each in error.why.items()}
        places = [places[number] for number in error.together]
    return why, size


async def _refusal(transactions: Transactions, records: Sequence[Outgoing], size: int) -> RefusedError | None:
    """What a broker says of them if so many of a topic go together; None: it takes them."""
    try:
        await transactions.try_out(records, {one.topic: size for one in records})
    except RefusedError as error:
        return error
    return None


async def _most_together(transactions: Transactions, records: Sequence[Outgoing], fine: int) -> int:
    """About how many of these may go together, given that so many may, and all may not."""
    while 4 * fine < len(records) and await _refusal(transactions, records, 4 * fine) is None:
        fine *= 4
    return fine


def other_than_outputs(
    found: Mapping[int, BaseException], outputs: int, moves: int, error: RefusedError
) -> RefusedError:
    """What is raised if records of a transaction are to blame that come behind so many outputs: of moves, or states."""
    of_moves = {place - outputs: each for place, each in found.items() if place < outputs + moves}
    if of_moves:
        return RefusedMovesError(of_moves, [], error.topics, sent=error.sent)
    of_states = {place - outputs - moves: each for place, each in found.items()}
    return RefusedStatesError(of_states, [], error.topics, sent=error.sent)


def records_in(returned: Sequence[Returned]) -> list[Outgoing]:
    """All of them, in their order."""
    return [one for each in returned for one in each.outgoing]


def all_refused(records: Sequence[Outgoing], why: Mapping[int, BaseException]) -> dict[int, BaseException]:
    """With all that bounds refuse as surely, which are found at once so: errors by the place among records."""
    bounds = [
        _Refused.of(records[place], each)
        for place, each in why.items()
        if place < len(records) and isinstance(each, _BY_BOUND)
    ]
    as_bad = {place: bad.why for place, one in enumerate(records) for bad in bounds if bad.is_as_bad(one)}
    return as_bad | dict(why)


def refuse_events(given: Sequence[Given], error: BaseException) -> dict[int, Failure]:
    """Which of the events that go to slots are refused for good by themselves, by their place among what does."""
    if not isinstance(error, RefusedMovesError):
        return {}
    records = [each.record for each in given]
    why = {place: each for place, each in error.why.items() if place < len(given) and not isinstance(each, _NO_EVENT)}
    return {
        place: Failure(REFUSED, _refused_event(records[place], each)[:_MOST_DETAIL], retry=False)
        for place, each in all_refused(records, why).items()
    }


def _refused_event(one: Outgoing, why: BaseException) -> str:
    return f"its key is at a slot, and the broker refuses a record of {one.size} bytes for {one.topic!r}: {why}"


def keys_refused(
    error: BaseException, step: Step, events: int, records: Sequence[Outgoing], states: States
) -> set[Hashable]:
    """Of which keys something is refused that a step writes, or else of the partition's own changelog.

    `events`: how many events come before the step's records; `records`: what goes to that changelog.
    """
    if isinstance(error, RefusedMovesError):
        why = {place - events: each for place, each in error.why.items() if place >= events}
        return {step.groups[place] for place in all_refused(step.records, why)}
    return {states.group_of(key) for key in unwritten_of(error, records)}


def instead_of(
    returned: Sequence[Returned], why: Mapping[int, BaseException], settings: Settings
) -> dict[int, tuple[Failure, Returned]]:
    """What is written instead of those that are refused, and why they are, by their place.

    `why`: errors of records by the place among `records_in`. It is raised of a dead letter that can't be written in
    another form: there is no other place for its event.
    """
    found: dict[int, tuple[Failure, Returned]] = {}
    first = 0
    for number, each in enumerate(returned):
        errors = [why.get(first + place) for place in range(len(each.outgoing))]
        first += len(errors)
        bad = [(one, error) for one, error in zip(each.outgoing, errors, strict=True) if error is not None]
        if not bad:
            continue
        one, error = bad[0]
        detail = f"the broker refuses a record of {one.size} bytes for {one.topic!r}: {error}"[:_MOST_DETAIL]
        failure = Failure(REFUSED, detail, retry=False)
        letters = letters_of(each.events, failure, settings)
        if each.letters:
            letters = [_corrected(*both) for both in zip(each.outgoing, errors, strict=True)]
        found[number] = failure, Returned(each.events, letters, letters=True)
    return found


def _corrected(letter: Outgoing, error: BaseException | None) -> Outgoing:
    if error is None:
        return letter
    better = corrected(letter, is_late=isinstance(error, InvalidTimestampError))
    if better is None:
        raise error
    return better


def spoils_of(
    error: BaseException, records: Sequence[Outgoing], states: States | None, moved: Container[bytes] = ()
) -> dict[int, Failure]:
    """Which events have made what is refused of a transaction's records of states, by offset.

    Empty if it is nothing that an event has made, or if the topic takes nothing at all. `moved`: keys of which the
    records don't have the states, but tell where they are.
    """
    if states is None or not isinstance(error, RefusedStatesError):
        return {}
    found: dict[int, Failure] = {}
    for place, why in error.why.items():
        if isinstance(why, OF_TOPIC):
            continue
        bad = _Refused.of(records[place], why)
        for one in filter(bad.is_as_bad, records):
            assert one.key is not None
            if (key := key_of(one.key)) in moved:
                continue
            detail = told_of_state(one, why)
            made = states.made_by(key, one.time) if bad.side > 0 else states.made_by(key)
            found |= dict.fromkeys(made, Failure(REFUSED_STATE, detail, retry=False))
    return found


def told_of_state(one: Outgoing, why: BaseException) -> str:
    """What the dead letter of an event says whose state would be this record."""
    return (
        f"{_refused_state(one, why)}. If the topic's settings are to blame, correct them, "
        f"and send the event again by keygrouping redrive --reason {REFUSED_STATE}"
    )[:_MOST_DETAIL]


def _refused_state(one: Outgoing, why: BaseException) -> str:
    assert one.key is not None
    return (
        f"the broker refuses the state of key {key_of(one.key)!r:.200} for {one.topic}[{one.partition}], a record of "
        f"{one.size} bytes and the time {one.time}: {why}"
    )


def unwritten_of(error: BaseException, records: Sequence[Outgoing]) -> dict[bytes, str]:
    """Of a transaction's records of states, the keys of all that are refused as surely, and why; empty if the topic
    takes nothing at all."""
    if not isinstance(error, RefusedStatesError):
        return {}
    found = [_Refused.of(records[place], why) for place, why in error.why.items() if not isinstance(why, OF_TOPIC)]
    return {
        key_of(one.key or b""): _refused_state(one, bad.why) for bad in found for one in filter(bad.is_as_bad, records)
    }


class Known:
    """What the changelog of a topic has refused of late: what is as bad need not be tried."""

    def __init__(self) -> None:
        self._found: list[tuple[float, _Refused]] = []
        """Until when it is known, and what was refused."""

    def learn(self, error: BaseException, records: Sequence[Outgoing]) -> None:
        """Takes note of what is refused of a transaction's records of states."""
        if not isinstance(error, RefusedStatesError):
            return
        until = time.monotonic() + KNOWN_SECONDS
        for place, why in error.why.items():
            if not isinstance(why, OF_TOPIC):
                bad = _Refused.of(records[place], why)
                self._found = [each for each in self._found if not bad.is_as_bad(each[1].record)]
                self._found.append((until, bad))

    def __bool__(self) -> bool:
        return bool(self._found)

    def why(self, records: Iterable[Outgoing]) -> str:
        """Why one of these would be refused, as a dead letter says it; empty: as far as it is known, none is."""
        now = time.monotonic()
        self._found = [each for each in self._found if each[0] > now]
        for one in records if self._found else ():
            for until, bad in self._found:
                if bad.is_as_bad(one, after=1000 * (KNOWN_SECONDS - (until - now))):
                    return told_of_state(one, bad.why)
        return ""


class _Refused(NamedTuple):
    """A record that a broker has refused for good."""

    record: Outgoing
    why: BaseException
    side: int
    """1 if it was for a time ahead of the clock, -1 for one behind it; 0 if it was for something else, or if the time
    was so near that a clock which differs would tell otherwise."""

    @classmethod
    def of(cls, record: Outgoing, why: BaseException) -> _Refused:
        """One that has been refused just now."""
        ahead = record.time - 1000 * time.time() if isinstance(why, InvalidTimestampError) else 0
        return cls(record, why, (ahead > _CLOCKS_DIFFER_MS) - (ahead < -_CLOCKS_DIFFER_MS))

    def is_as_bad(self, one: Outgoing, after: float = 0.0) -> bool:
        """Whether a bound of its topic would refuse it as surely, so many ms later: so all are found at once."""
        if one.topic != self.record.topic:
            return False
        if isinstance(self.why, _BY_SIZE):
            return one.size >= self.record.size
        if self.side and one.time >= 0:
            return one.time >= self.record.time + after if self.side > 0 else one.time <= self.record.time
        return (one.partition, one.key) == (self.record.partition, self.record.key)


def letters_of(events: Sequence[Event], failure: Failure, settings: Settings) -> list[Outgoing]:
    """The dead letters of events."""
    return [dead_letter(event, failure, settings.dead_letters, settings.group) for event in events]
