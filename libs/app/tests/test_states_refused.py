"""Which events are to blame for states that a changelog refuses."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any

import pytest
from aiokafka.errors import (
    InvalidTimestampError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from keygrouping_app import State, Topic
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.kafka import refusals
from keygrouping_app.kafka.changelog import records_of
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.refusals import RefusedStatesError, spoils_of
from keygrouping_app.kafka.writing import RefusedError
from keygrouping_app.kept import Kept
from keygrouping_app.scheduler import Failure
from keygrouping_app.states import InputKey, States

AHEAD = int(1000 * time.time()) + 10_000_000


def states_with(*calls: tuple[bytes, int, int, int]) -> States:
    """After calls of keys that left so many bytes, at these times and offsets."""
    states = States(State(dict))
    for key, size, at, offset in calls:
        states.keep(key, states.peek(key), b"x" * size, at, [offset])
    return states


def taken(states: States) -> list[Outgoing]:
    """The records of a transaction."""
    return records_of(states.take(), states, "bank", TopicPartition("in", 0))


def blamed(states: States, records: list[Outgoing], error: Exception, key: bytes) -> set[int]:
    """The offsets of events that are dead letters if the last record of a key is refused."""
    place = max(number for number, each in enumerate(records) if each.key is not None and each.key.endswith(key))
    refused = RefusedStatesError({place: error}, [], frozenset({"bank.in.states"}), sent=True)
    found = spoils_of(refused, records, states)
    assert {each.reason for each in found.values()} <= {"refused_state"}
    return set(found)


@pytest.mark.parametrize(
    ("error", "offsets"),
    [
        (MessageSizeTooLargeError(), {2, 3}),
        (InvalidTimestampError(), {2, 4}),
        (PolicyViolationError(), {2}),
        (TopicAuthorizationFailedError(), set()),
    ],
)
def test_what_one_bound_refuses_as_surely_is_blamed_together(error: Exception, offsets: set[int]) -> None:
    calls = [(b"a", 10, 1000, 1), (b"b", 100, 500, 2), (b"c", 200, 900, 3), (b"d", 5, 400, 4), (b"e", 5, AHEAD, 5)]
    states = states_with(*calls)
    assert blamed(states, taken(states), error, b"b") == offsets


def test_a_time_ahead_is_no_worse_than_those_further_ahead() -> None:
    states = states_with((b"a", 1, 1000, 1), (b"b", 1, AHEAD, 2), (b"c", 1, AHEAD + 1, 3), (b"d", 1, AHEAD - 1, 4))
    assert blamed(states, taken(states), InvalidTimestampError(), b"b") == {2, 3}


def test_all_calls_of_a_transaction_are_blamed_that_have_changed_the_state() -> None:
    states = states_with((b"a", 1, 5, 1), (b"a", 2, 9, 2), (b"a", 3, 7, 3), (b"b", 1, 5, 4))
    records = taken(states)
    assert blamed(states, records, InvalidTimestampError(), b"a") == {1, 2, 3, 4}, "each is as old"
    states.keep(b"a", None, b"later", 99, [6])
    error = PolicyViolationError()
    assert blamed(states, records, error, b"a") == {1, 2, 3}, "what comes after the transaction is not in it"


def test_of_a_time_ahead_the_calls_are_blamed_to_which_the_state_owes_it() -> None:
    states = states_with((b"a", 1, 5, 1), (b"a", 2, AHEAD, 2), (b"a", 3, 7, 3))
    assert blamed(states, taken(states), InvalidTimestampError(), b"a") == {2}
    states.keep(b"a", states.peek(b"a"), b"later", 9, [4])
    assert blamed(states, taken(states), InvalidTimestampError(), b"a") == {4}, "it had that time before"


def test_what_is_not_written_is_blamed_together_with_what_comes_later() -> None:
    states = states_with((b"a", 1, 9, 1))
    states.keep(b"b", None, b"x", 9, [2])
    changed = states.take()
    states.keep(b"a", None, b"later", 7, [3])
    states.keep(b"b", None, b"later", 9, [4])
    states.give_back(changed)
    records = taken(states)
    assert blamed(states, records, PolicyViolationError(), b"a") == {1, 3}
    assert blamed(states, records, PolicyViolationError(), b"b") == {2, 4}


def test_while_transactions_fail_the_latest_calls_are_remembered_and_no_more() -> None:
    states = states_with(*((b"a", number + 1, number, number) for number in range(1000)))
    states.give_back(states.take())
    assert blamed(states, taken(states), PolicyViolationError(), b"a") == set(range(984, 1000))


def test_the_call_with_the_latest_time_is_remembered_however_many_there_were_since() -> None:
    states = states_with((b"a", 1, AHEAD, 0), *((b"a", number + 1, 1000, number) for number in range(1, 40)))
    for _ in range(2):
        states.give_back(states.take())
    assert blamed(states, taken(states), InvalidTimestampError(), b"a") == {0}


def test_what_is_a_dead_letter_once_that_is_written_is_remembered_no_more() -> None:
    failure = Failure("refused_state", "too large", retry=False)
    partition = Partition(TopicPartition("in", 0), Topic("in"), OffsetAndMetadata(0, ""), asyncio.Event())
    partition.refused = {0: failure, 1: failure}
    events = partition.take([Record("in", 0, number, 0, b"a", b"1") for number in range(2)], 2)
    for event, letters, left in ((events[0], True, {1}), (events[1], False, {1})):
        partition.end([event], [Outgoing("dead", None, 0, b"a", b"1")], letters=letters)
        partition.wrote(partition.take_returned())
        assert set(partition.refused) == left


async def test_a_partition_that_has_nothing_to_commit_any_more_is_not_told_to_be_refused() -> None:
    """As when what a slot refused stays at home."""
    partition = Partition(TopicPartition("in", 0), Topic("in"), OffsetAndMetadata(0, ""), asyncio.Event())
    (event,) = partition.take([Record("in", 0, 0, 0, b"a", b"1")], 1)
    partition.refuse("records for app.in.moved are refused")
    assert partition.due() is None
    assert not partition.refusal
    partition.end([event], [])
    partition.refuse("records for bank.in.states are refused")
    assert partition.due() is not None
    assert partition.refusal


def learned(error: Exception, one: Outgoing) -> refusals.Known:
    known = refusals.Known()
    known.learn(RefusedStatesError({0: error}, [], frozenset({"bank.in.states"}), sent=True), [one])
    return known


def test_what_is_as_bad_as_what_was_refused_is_known_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    states = states_with((b"a", 10, 1000, 1), (b"b", 100, 500, 2), (b"c", 200, 900, 3), (b"d", 5, 400, 4))
    a, b, c, d = taken(states)
    for error, bad in (
        (MessageSizeTooLargeError(), [b, c]),
        (InvalidTimestampError(), [b, d]),
        (PolicyViolationError(), [b]),
        (TopicAuthorizationFailedError(), []),
    ):
        known = learned(error, b)
        assert [one for one in (a, b, c, d) if known.why([one])] == bad
        assert all(f"{one.size} bytes" in known.why([a, one]) for one in bad if one is not a)
    known = learned(MessageSizeTooLargeError(), c)
    known.learn(RefusedStatesError({1: MessageSizeTooLargeError()}, [], frozenset({"x"}), sent=True), [a, b])
    assert known.why([b])
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + refusals.KNOWN_SECONDS + 1)
    assert not known.why([c])
    assert not known


def test_of_times_near_the_clock_nothing_is_known_of_other_keys() -> None:
    """A bound may be of seconds, and the broker's clock another."""
    now = int(1000 * time.time())
    states = states_with(*((b"%d" % number, 1, now + 1000 * number, number) for number in range(-5, 20)))
    records = taken(states)
    for refused in records[::6]:
        known = learned(InvalidTimestampError(), refused)
        assert [one for one in records if known.why([one])] == [refused]


def test_a_bound_of_times_ahead_goes_with_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    states = states_with((b"a", 1, AHEAD, 1), (b"b", 1, AHEAD + 10_000, 2), (b"c", 1, AHEAD + 50_000, 3))
    a, b, c = taken(states)
    known = learned(InvalidTimestampError(), a)
    assert known.why([b]) and known.why([c])
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + 20)
    assert [one for one in (a, b, c) if known.why([one])] == [c]


def test_the_end_of_a_state_is_made_by_its_event_too() -> None:
    states = states_with((b"a", 10, 1000, 1))
    states.take()
    states.keep(b"a", states.peek(b"a"), None, 2000, [2])
    assert not states.withhold([b"a"]), "the old state would come back"
    assert blamed(states, taken(states), MessageSizeTooLargeError(), b"a") == {2}
    states = states_with((b"a", 10, 1000, 1))
    states.why_refused = lambda changed: "too large" if b"a" in changed else ""
    assert states.why_not_kept(b"a", states.peek(b"a"), None, 2000)
    assert not states.why_not_kept(b"b", None, None, 2000), "there is nothing to be written"


def test_all_that_is_as_bad_is_left_out_at_once() -> None:
    states = States(State(dict))
    for number in range(50):
        states.arrive(InputKey(0, b"%d" % number), Kept(b"x" * (1 if number % 5 else 100), 1000, 1))
    records = taken(states)
    refused = {0: MessageSizeTooLargeError()}
    found = refusals.unwritten_of(RefusedStatesError(refused, [], frozenset({"x"}), sent=True), records)
    assert found.keys() == {b"%d" % number for number in range(0, 50, 5)}


async def test_what_is_left_out_is_tried_again_however_much_is_refused_meanwhile() -> None:
    states = States(State(dict))
    partition = Partition(TopicPartition("in", 0), Topic("in"), OffsetAndMetadata(0, ""), asyncio.Event())
    partition.states = states
    for key in (b"a", b"b", b"c", b"d"):
        partition.write_withheld()
        states.arrive(InputKey(0, key), Kept(b"x", 1, 1))
        assert states.withhold([key])
        partition.withhold("too large", 0.2)
        await asyncio.sleep(0.08)
    assert states.will_write(b"a")
    assert partition.refusal, "until it is written"


def test_only_what_no_event_has_made_is_left_out_and_only_until_one_has() -> None:
    states = states_with((b"a", 10, 1000, 1), (b"b", 10, 1000, 2))
    states.take()
    states.arrive(InputKey(0, b"a"), Kept(b"come", 1, 1))
    states.keep(b"b", states.peek(b"b"), b"made", 2000, [3])
    assert states.withhold([b"a", b"b", b"none"])
    assert not states.withhold([b"b"])
    assert states.take().keys() == {b"b"}
    assert states.withheld == {b"a"}
    states.write_withheld()
    assert states.will_write(b"a")
    assert states.withhold([b"a"])
    states.keep(b"a", states.peek(b"a"), b"made", 2000, [4])
    assert states.withheld == set()
    assert states.take()[b"a"] == Kept(b"made", 2000, 1)
    assert states.made_by(b"a") == [4]


class Broker:
    """Takes what it is sent in pieces, but for one that has something bad in it."""

    def __init__(self, bad: Container[int], most: int) -> None:
        self.bad, self.most, self.tried = bad, most, 0

    def refusal(self, records: Sequence[Outgoing], pieces: int) -> RefusedError | None:
        for first in range(0, len(records), pieces):
            places = range(first, min(first + pieces, len(records)))
            if len(places) > self.most or any(records[place].time in self.bad for place in places):
                error = PolicyViolationError()
                why = {first: error} if len(places) == 1 else {}
                return RefusedError(why, [], frozenset({"states"}), sent=True, together=[] if why else places)
        return None

    async def try_out(self, records: Sequence[Outgoing], pieces: Mapping[str, int]) -> None:
        self.tried += 1
        if (error := self.refusal(records, pieces["states"])) is not None:
            raise error


@pytest.mark.parametrize("bad", [{0}, {9_999}, {5_000}, {4_711, 4_712, 9_000}, set(range(10_000))])
async def test_what_is_to_blame_of_very_many_is_found_in_few_transactions(bad: set[int]) -> None:
    records = [Outgoing("states", 0, number, b"%d" % number, b"") for number in range(10_000)]
    broker: Any = Broker(bad, 10_000)
    refused = broker.refusal(records, 10_000)
    found, _ = await refusals.blamed(broker, records, refused)
    assert found.keys() == {min(bad)}
    assert broker.tried <= 3 < math.log2(len(records))


async def test_none_is_to_blame_if_only_all_together_are_too_large() -> None:
    records = [Outgoing("states", 0, number, b"%d" % number, b"") for number in range(10_000)]
    broker: Any = Broker(set(), 100)
    found, size = await refusals.blamed(broker, records, broker.refusal(records, 10_000))
    assert (found, broker.refusal(records, size)) == ({}, None)
    assert size > 1


async def test_of_few_that_are_too_large_together_not_each_goes_by_itself() -> None:
    records = [Outgoing("states", 0, number, b"%d" % number, b"") for number in range(60)]
    broker: Any = Broker(set(), 33)
    found, size = await refusals.blamed(broker, records, broker.refusal(records, 60))
    assert (found, broker.refusal(records, size)) == ({}, None)
    assert size > 8


def test_a_part_is_of_its_state_and_what_no_event_has_changed_is_nobody_s_fault() -> None:
    states = states_with((b"large", 600_000, 9, 1))
    records = taken(states)
    assert len(records) == 3
    error = RefusedStatesError({0: MessageSizeTooLargeError()}, [], frozenset({"bank.in.states"}), sent=True)
    assert set(spoils_of(error, records, states)) == {1}
    place = Outgoing("bank.in.states", 0, -1, b"moved", b"")
    error = RefusedStatesError({0: PolicyViolationError()}, [], frozenset({"bank.in.states"}), sent=True)
    assert spoils_of(error, [place], states) == {}
    assert spoils_of(MessageSizeTooLargeError(), records, states) == {}
