"""How many events one member may write to each slot: nothing to one that does not answer, or has not taken any."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aiokafka import TopicPartition
from keygrouping_kafka.calls import given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.kafka.board import SlotsBoard
from keygrouping_app.kafka.overflow import SlotPartition
from keygrouping_app.kafka.partition import Given, Partition
from keygrouping_app.leveling import Slot
from keygrouping_app.windows import Window

log = logging.getLogger(__name__)

_ASK_SECONDS = 0.1
"""Seconds between questions for the ends of slots."""
_ANSWER_SECONDS, _SILENT_SECONDS = 2.0, 10.0
"""For which an answer is waited for, and between questions to a slot that gives none, as it has no leader."""


class SlotRooms:
    """Of all slots. `topic`: theirs; `partitions`: what the member has, slots among them."""

    def __init__(self, topic: str, partitions: Mapping[TopicPartition, Partition]) -> None:
        self._topic = topic
        self._partitions = partitions
        self._clock = asyncio.get_running_loop().time
        self._windows: defaultdict[int, Window] = defaultdict(Window)
        self._dealt: dict[Partition, Counter[int]] = {}
        """What is to be written to slots, by the input that it is from."""
        self._found: dict[SlotPartition, int] = {}
        """Slots with their ends when they came to us, or later."""
        self._suspects: dict[int, float] = {}
        """Slots that have not answered, and when they are asked again: nothing is given to them."""
        self._not_before: dict[int, float] = {}
        """When something may be given again to slots that have not taken what was written."""

    def of(self, slot: int, inputs: Iterable[int]) -> int:
        """How many events the slot takes from us; `inputs` are the partitions that are ours."""
        held = slot in self._suspects or self._clock() < self._not_before.get(slot, -math.inf)
        return 0 if held else self._windows[slot].room(inputs)

    def deal(self, partition: Partition, slot: int) -> None:
        """An event of a partition is to be written to a slot."""
        self._windows[slot].deal()
        self._dealt.setdefault(partition, Counter())[slot] += 1

    def count(self, partition: Partition, given: Sequence[Given]) -> None:
        """Whatever has become of them: more than there is may stand in a window, but not less."""
        for each in given:
            if self._dealt.get(partition, Counter())[each.slot] > 0:
                self._dealt[partition][each.slot] -= 1
                self._windows[each.slot].wrote()

    def hold(self, slots: Iterable[int], seconds: float) -> None:
        """Nothing is given to these for so many seconds."""
        self._not_before |= dict.fromkeys(slots, self._clock() + seconds)

    def take_over(self) -> None:
        """We have another input: nobody knows here what its former owner has written."""
        for window in self._windows.values():
            window.take_over()

    def hear(self, slots: Mapping[int, Slot], member: str) -> None:
        """What the owners of slots have told last; `member` is who we are to them."""
        for number, slot in slots.items():
            grant = max(slot.grants.get(member, 0), slot.idle)
            self._windows[number].hear(slot.position, slot.open, grant)
        for number in self._windows.keys() - slots.keys():
            self._windows[number].revoke()

    def is_known(self, slot: SlotPartition) -> bool:
        """Whether all was read that a slot of ours had when it came to us."""
        return slot.gaps.position >= self._found.get(slot, 1 << 62)

    async def keep_asking(self, board: SlotsBoard) -> None:
        """Asks for the ends of slots until it is cancelled; raises what can't be retried."""
        while True:
            for partition in [each for each in self._dealt if self._partitions.get(each.tp) is not each]:
                for slot, count in self._dealt.pop(partition).items():
                    for _ in range(count):
                        self._windows[slot].wrote()
            await self._ask_ends(board)
            await asyncio.sleep(_ASK_SECONDS)

    async def _ask_ends(self, board: SlotsBoard) -> None:
        slots = {slot.tp.partition: slot for slot in slots_in(self._partitions)}
        self._found = {slot: end for slot, end in self._found.items() if slots.get(slot.tp.partition) is slot}
        fresh = {number: slot for number, slot in slots.items() if slot not in self._found}
        asked = [number for number, window in self._windows.items() if window.needs_end]
        # One that was silent is asked by itself, until it answers.
        due = {each for each in {*asked, *fresh} if self._suspects.get(each, 0.0) <= self._clock()}
        usual = sorted(due - self._suspects.keys())
        groups = [usual, *([each] for each in sorted(due & self._suspects.keys()))]
        questioned = due.intersection(asked)
        for number in questioned:
            self._windows[number].ask()

        async def ask(numbers: Sequence[int]) -> None:
            ends = await self._ends_of(board, numbers)
            for number, end in ends.items():
                self._suspects.pop(number, None)
                if number in questioned:
                    self._windows[number].answer(end)
                if number in fresh:
                    self._found[fresh[number]] = end

        await asyncio.gather(*(ask(group) for group in groups if group))

    async def _ends_of(self, board: SlotsBoard, numbers: Sequence[int]) -> dict[int, int]:
        """None of them, if one does not answer: then each is asked by itself."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                with given_up_calls():
                    ends = await board.ends([TopicPartition(self._topic, number) for number in numbers])
        except Exception as error:
            if not can_be_retried(error):
                raise
            again = self._clock()
            if len(numbers) == 1:
                again += _SILENT_SECONDS
                log.warning("%s[%d] does not answer, so nothing is given to it: %r", self._topic, *numbers, error)
            self._suspects |= dict.fromkeys(numbers, again)
            return {}
        return {tp.partition: end for tp, end in ends.items()}


def slots_in(partitions: Mapping[TopicPartition, Partition]) -> Iterator[SlotPartition]:
    """The slots of shared keys among a member's partitions."""
    return (each for each in partitions.values() if isinstance(each, SlotPartition))
