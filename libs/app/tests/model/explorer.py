"""Explores every state that a protocol can reach, and tells the shortest way into one that must not be.

A model is data: states are hashable, and what can happen next is a function of the state. Breadth first, so a trace is
as short as any. Two things are checked: what every step says is broken, and that no state is a trap, which means that
from each one an end can be reached without further disturbances (crashes, takeovers, new plans).
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """Something that may happen now."""

    what: str
    state: S
    """The state afterwards."""
    disturbs: bool = False
    """Whether it is a disturbance: progress must not depend on it."""
    broken: str = ""
    """The law that the step breaks."""


@dataclass(frozen=True)
class Found:
    """What an exploration has seen."""

    states: int
    steps: int
    depth: int
    """Steps from the beginning to the farthest state."""
    ends: int
    seconds: float
    broken: str = ""
    """The law that does not hold; empty if all do."""
    trace: tuple[str, ...] = ()
    """The steps that lead there."""

    def __str__(self) -> str:
        size = f"{self.states:,} states, {self.steps:,} steps, depth {self.depth}, {self.seconds:.1f} s"
        if not self.broken:
            return f"nothing is broken: {size}"
        lines = (f"{number:3}. {what}" for number, what in enumerate(self.trace, 1))
        return "\n".join([f"{self.broken} ({size})", *lines])


def explore(
    begin: S, steps: Callable[[S], Iterable[Step[S]]], ended: Callable[[S], bool], most: int = 5_000_000
) -> Found:
    """Visits all states, or ends at the first broken law. OverflowError if there are more than `most`."""
    return _Exploration(begin, steps, ended, most).run()


class _Exploration(Generic[S]):
    def __init__(
        self, begin: S, steps: Callable[[S], Iterable[Step[S]]], ended: Callable[[S], bool], most: int
    ) -> None:
        self._steps = steps
        self._ended = ended
        self._most = most
        self._begun = time.perf_counter()
        self._begin = begin
        self._numbers: dict[S, int] = {begin: 0}
        self._parents = array("l", [-1])
        self._ends = [0] if ended(begin) else []
        self._before, self._after = array("l"), array("l")
        """Edges that are no disturbances."""
        self._count = 0
        self._depth = 0

    def run(self) -> Found:
        layer = [self._begin]
        while layer:
            following: list[S] = []
            for state in layer:
                if (step := self._visit(state, following)) is not None:
                    return self._found(step.broken, [*self._trace(self._numbers[state]), step.what])
            self._depth += bool(following)
            layer = following
        return self._trapped()

    def _visit(self, state: S, following: list[S]) -> Step[S] | None:
        here = self._numbers[state]
        for step in self._steps(state):
            self._count += 1
            if step.broken:
                return step
            there = self._numbers.get(step.state)
            if there is None:
                there = self._numbers[step.state] = len(self._parents)
                self._parents.append(here)
                following.append(step.state)
                if self._ended(step.state):
                    self._ends.append(there)
                if there > self._most:
                    raise OverflowError(f"more than {self._most:,} states")
            if not step.disturbs:
                self._before.append(here)
                self._after.append(there)
        return None

    def _trapped(self) -> Found:
        """Goes back from all ends; a state that was not met is a trap."""
        size = len(self._parents)
        first = array("l", bytes((size + 1) * self._after.itemsize))
        for there in self._after:
            first[there + 1] += 1
        for number in range(size):
            first[number + 1] += first[number]
        into, place = array("l", bytes(len(self._after) * self._after.itemsize)), array("l", first)
        for here, there in zip(self._before, self._after, strict=True):
            into[place[there]] = here
            place[there] += 1
        met = bytearray(size)
        waiting = list(self._ends)
        for number in waiting:
            met[number] = 1
        while waiting:
            there = waiting.pop()
            for here in into[first[there] : first[there + 1]]:
                if not met[here]:
                    met[here] = 1
                    waiting.append(here)
        trap = met.find(0)
        if trap < 0:
            return self._found("", [])
        return self._found("no end can be reached any more, even if nothing else fails", self._trace(trap))

    def _trace(self, number: int) -> list[str]:
        """The way to a state: its steps are looked up by making them once more."""
        way = []
        while number >= 0:
            way.append(number)
            number = self._parents[number]
        state, told = self._begin, []
        for target in reversed(way[:-1]):
            step = next(step for step in self._steps(state) if self._numbers.get(step.state) == target)
            told.append(step.what)
            state = step.state
        return told

    def _found(self, broken: str, trace: list[str]) -> Found:
        seconds = time.perf_counter() - self._begun
        return Found(len(self._parents), self._count, self._depth, len(self._ends), seconds, broken, tuple(trace))
