"""States that a slot's changelog refuses, and that the next owner reads from the slot's log."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from aiokafka import TopicPartition
from keygrouping_app import AppError
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.kafka import changelog
from keygrouping_app.kafka.changelog import Copy, Restoring, restore
from keygrouping_app.kafka.moved import MovedPartition
from keygrouping_app.kafka.ranges import split_states
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.kept import Kept
from keygrouping_app.moves import VERSION, Place
from keygrouping_app.states import InputKey
from keygrouping_app.surplus import SOURCE

from .test_moves import IN, INPUT_PLACES, SLOT, Given, Owner, Transactions, World, app_of, new_runner, states_in

TP = TopicPartition(SLOT, 0)


class Refusing(Transactions):
    """Several things are refused."""

    ends: Sequence[str] = ()

    def refuses(self, one: Outgoing) -> bool:
        return any(super(Refusing, self).refuses(one) for self.end in self.ends)


class Reader:
    """A client that reads what a world has, so many records at once. `begins`, `ends`: what it is told of slots."""

    def __init__(self, world: World, begins: int, ends: Sequence[int], size: int) -> None:
        self._world = world
        self._begins = begins
        self._ends = [*ends]
        self._size = size
        self._positions: dict[TopicPartition, int] = {}

    async def beginning_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._begins if tp == TP else 0 for tp in tps}

    async def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if tps == [TP] and self._ends:
            return {TP: self._ends.pop(0)}
        return {tp: self._world.logs[tp][-1].offset + 1 for tp in tps}

    def assign(self, _: Sequence[TopicPartition]) -> None: ...

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._positions[tp] = offset

    async def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    async def getmany(self, tp: TopicPartition, **_: int) -> dict[TopicPartition, list[Record]]:
        await asyncio.sleep(0)
        found = [each for each in self._world.logs[tp] if each.offset >= self._positions[tp]][:2]
        if found:
            self._positions[tp] = found[-1].offset + 1
        return {
            tp: [replace(each, value=bytes(self._size)) if SOURCE in dict(each.headers) else each for each in found]
        }


async def restored(runner: Runner, world: World, *, begins: int = 0, ends: Sequence[int] = (), size: int = 9) -> Copy:
    """What the next owner of the slot begins with. `size`: bytes of events there."""
    (lanes,) = runner.lanes
    copy = Copy.of(lanes.handler, TP)
    reader: Any = Reader(world, begins, ends, size)
    with (
        patch.object(changelog, "started", nullcontext),
        patch.object(changelog, "new_reader", lambda *_, **__: reader),
    ):
        last = split_states(world.committed[TP].metadata)[1]
        await restore(runner._settings, TP, copy, last, Restoring(IN), lanes.handler)
    return copy


async def noted(world: World, runner: Runner, keys: str = "a") -> Owner:
    """The input's owner; the slot's has noted where the states of keys are, and is gone."""
    home, slot = (Owner(runner, world, tp) for tp in (INPUT_PLACES[0], TP))
    home.read(len(keys))
    await asyncio.sleep(0.05)
    await home.commit()
    for key in keys:
        home.order(key, 0)
        await home.commit()
    with patch("keygrouping_app.gaps.CROWDED", 0), patch.object(slot.transactions, "end", "not in a slot"):
        for _ in range(1 + len(keys)):
            slot.read(100)
            await slot.commit()
    assert slot.done
    slot.end()
    return home


def world_of(keys: str) -> tuple[World, Runner]:
    given = [Given(0, key, 0.0, 0, rejected=False) for key in keys]
    return World(given), new_runner(app_of(given))


@pytest.mark.parametrize("size", [7, 1000])
async def test_noted_states_are_found_by_the_next_owner(size: int) -> None:
    """In parts, too."""
    world, runner = world_of("ab")
    with patch("keygrouping_app.kept.PART_BYTES", size):
        home = await noted(world, runner, "ab")
        slot = Owner(runner, world, TP, await restored(runner, world))
        await slot.commit()
    assert not (await restored(runner, world)).found
    assert states_in(world) == {(0, "a"): [0], (0, "b"): [1]}
    for each in (home, slot):
        each.end()


async def test_a_noted_state_that_the_slot_has_lost_has_ended_for_good(caplog: pytest.LogCaptureFixture) -> None:
    """Its note would be found by a later owner, and what it tells of by none or, if offsets were reset, by mistake."""
    world, runner = world_of("a")
    home = await noted(world, runner)
    slot = Owner(runner, world, TP, await restored(runner, world, begins=1))
    assert "has lost its offsets 0 to 0" in caplog.text
    assert slot.partition.dirty.is_set()
    await slot.commit()
    assert [each.value for each in world.changelog(TP)] == [b"", None]
    assert not (await restored(runner, world)).found
    for each in (home, slot):
        each.end()


async def test_a_noted_state_that_is_not_where_it_is_said_to_be_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    world, runner = world_of("a")
    home = await noted(world, runner)
    world.logs[TP][0] = replace(world.logs[TP][0], headers=())
    slot = Owner(runner, world, TP, await restored(runner, world))
    assert "has lost its offsets 0 to 0" in caplog.text
    await slot.commit()
    assert [each.value for each in world.changelog(TP)] == [b"", None]
    for each in (home, slot):
        each.end()


async def test_a_broker_that_does_not_know_of_the_last_records_yet_has_lost_no_noted_state(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, runner = world_of("a")
    home = await noted(world, runner)
    copy = await restored(runner, world, ends=[0, 0])
    assert copy.states.peek(InputKey(0, b"a")) == Kept(b'{"events":[0]}', 0, 1)
    copy.states.close()
    monkeypatch.setattr(changelog, "_BEHIND_SECONDS", 0.2)
    with pytest.raises(AppError, match=r"^group\.in\.moved\[0\] ends at 0, before offset 0, .* lost records") as told:
        await restored(runner, world, ends=[0] * 100)
    assert len(told.value.faults) == 1
    assert "it goes on without" not in caplog.text
    home.end()


async def test_a_noted_state_of_a_newer_program_is_told_with_where_it_is() -> None:
    world, runner = world_of("a")
    home = await noted(world, runner)
    state = world.logs[TP][0]
    newer = [(name, b"2" if name == VERSION else value) for name, value in state.headers]
    world.logs[TP][0] = replace(state, headers=newer)
    with pytest.raises(AppError, match=r"^group\.in\.moved\[0\]: states of version 2 are there, .* run the newer$"):
        await restored(runner, world)
    home.end()


async def test_a_member_that_knows_no_notes_does_not_go_on_without_the_states() -> None:
    """It sees no header of a note, and takes the record for a state."""
    world, runner = world_of("a")
    home = await noted(world, runner)
    (note,) = world.changelog(TP)
    world.changelog(TP)[:] = [replace(note, headers=[each for each in note.headers if each[0] != "keygrouping-at"])]
    with pytest.raises(AppError, match=r"this program has version 1: it is an older one, run the newer$"):
        await restored(runner, world)
    home.end()


async def test_events_between_noted_states_take_no_memory() -> None:
    world, runner = world_of("ab")
    home = await noted(world, runner, "ab")
    first, second = world.logs[TP]
    event = replace(first, headers=((SOURCE, b"0:0"),))
    world.logs[TP][1:] = [*(replace(event, offset=1 + number) for number in range(60)), replace(second, offset=61)]
    note = world.changelog(TP)[-1]
    headers = [(name, b"61:61" if value == b"1:1" else value) for name, value in note.headers]
    world.changelog(TP)[-1] = replace(note, headers=headers)
    tracemalloc.start()
    copy = await restored(runner, world, size=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [kept.data for _, kept in copy.states] == [b'{"events":[0]}', b'{"events":[1]}']
    assert peak < 8 << 20
    copy.states.close()
    home.end()


async def test_a_noted_state_may_be_empty() -> None:
    world, runner = world_of("a")
    home = await noted(world, runner)
    world.logs[TP][0] = replace(world.logs[TP][0], value=b"")
    copy = await restored(runner, world)
    assert copy.states.peek(InputKey(0, b"a")) == Kept(b"", 0, 1)
    copy.states.close()
    home.end()


async def called_back(world: World, runner: Runner, *ends: str) -> tuple[Owner, Owner]:
    """The owners of an input and of a slot that has a key whose state is refused there, and at home, as these are."""
    home, slot = (Owner(runner, world, tp) for tp in (INPUT_PLACES[0], TP))
    transactions = slot.transactions = Refusing(world, TP)
    assert slot.partition.states is not None
    transactions.made_by = slot.partition.states.made_by
    transactions.ends = [*ends, "not at home"]
    home.read(1)
    await asyncio.sleep(0.05)
    await home.commit()
    home.order("a", 0)
    await home.commit()
    slot.read(1)
    await slot.commit()
    home.order("a", None)
    await home.commit()
    slot.read(1)
    with patch("keygrouping_app.gaps.CROWDED", 0):
        for _ in range(5):
            await slot.commit()
    home.hear()
    return home, slot


async def test_a_refused_note_holds_up_no_answer() -> None:
    """In one transaction: the state goes not home, so its key stays, and the slot's changelog has not got it."""
    world, runner = world_of("a")
    home, slot = await called_back(world, runner, "no note")
    assert home.partition.moves is not None and isinstance(slot.partition, MovedPartition)
    assert home.partition.moves.places == {InputKey(0, b"a"): Place(0)}
    assert not slot.partition.visits.unanswered
    assert not world.changelog(TP)
    for each in (home, slot):
        each.end()


async def test_a_refused_answer_holds_up_no_note_and_both_refusals_are_told(caplog: pytest.LogCaptureFixture) -> None:
    world, runner = world_of("a")
    home, slot = await called_back(world, runner, "not in a slot", "no answer")
    assert home.partition.moves is not None and isinstance(slot.partition, MovedPartition)
    assert home.partition.moves.places == {InputKey(0, b"a"): Place(0, -1)}
    assert slot.partition.visits.unanswered
    assert [each.value for each in world.changelog(TP)] == [b""]
    assert caplog.text.count("its input can't be answered, as records for group.in.states are refused") == 1
    assert caplog.text.count("a state is not written, as the broker refuses the state of key b'0:a'") == 1
    assert "the state of key b'0:a' for group.group.in.moved.states" in slot.partition.refusal
    assert "records for group.in.states are refused" in slot.partition.refusal
    slot.transactions.ends = ["not in a slot"]
    slot.partition.visits.try_again()
    await slot.commit()
    assert "the state of key b'0:a'" in slot.partition.refusal
    assert "records for group.in.states are refused" not in slot.partition.refusal
    for each in (home, slot):
        each.end()
