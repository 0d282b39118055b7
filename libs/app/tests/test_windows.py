"""A member never has more open events in a slot than it was granted, whatever it hears late, and whoever takes over."""

from __future__ import annotations

import random

import pytest
from keygrouping_app.windows import Window

GRANT = 5


class Log:
    """A slot as it is: the input of each event, which of them are open, and how far its owner has read."""

    def __init__(self) -> None:
        self.inputs: list[int] = []
        self.open: set[int] = set()
        self.position = 0

    def write(self, source: int) -> None:
        self.open.add(len(self.inputs))
        self.inputs.append(source)

    def told(self) -> tuple[int, dict[int, int]]:
        """What the owner tells: position, and open events among those that it has read."""
        found: dict[int, int] = {}
        for offset in self.open:
            if offset < self.position:
                found[self.inputs[offset]] = found.get(self.inputs[offset], 0) + 1
        return self.position, found

    def open_of(self, source: int) -> int:
        return sum(self.inputs[offset] == source for offset in self.open)


class Play:
    """Two inputs whose owners change, and which hear late. `most`: open events of one of them at the same time."""

    def __init__(self, seed: int, *, asks_first: bool = True) -> None:
        self.log, self.most = Log(), 0
        self._asks_first = asks_first
        self._chance = random.Random(seed)
        self._windows = [Window(), Window()]
        self._dealt = [0, 0]
        self._asked: list[int | None] = [None, None]
        self._heard = self.log.told()
        steps = (self.deal, self.deal, self.write, self.ask, self.answer, self.hear, self.read, self.end, self.end)
        for _ in range(600):
            self._chance.choice([*steps, self.take_over])(self._chance.randrange(2))
            self.most = max(self.most, self.log.open_of(0), self.log.open_of(1))

    def deal(self, source: int) -> None:
        if self._windows[source].room([source]) > 0:
            self._windows[source].deal()
            self._dealt[source] += 1

    def write(self, source: int) -> None:
        if self._dealt[source]:
            self._dealt[source] -= 1
            self.log.write(source)
            self._windows[source].wrote()

    def ask(self, source: int) -> None:
        if self._windows[source].needs_end:
            self._windows[source].ask()
            self._asked[source] = len(self.log.inputs)

    def answer(self, source: int) -> None:
        if (end := self._asked[source]) is not None:
            self._windows[source].answer(end)
            self._asked[source] = None

    def hear(self, source: int) -> None:
        self._windows[source].hear(*self._heard, GRANT)
        self._heard = self.log.told()  # somebody hears this later

    def read(self, _: int) -> None:
        self.log.position = self._chance.randint(self.log.position, len(self.log.inputs))

    def end(self, _: int) -> None:
        if read := [offset for offset in self.log.open if offset < self.log.position]:
            self.log.open.remove(self._chance.choice(read))

    def take_over(self, source: int) -> None:
        """The former owner is fenced: what it had not written it does not write any more."""
        if self._chance.random() < 0.2:
            self._windows[source], self._dealt[source], self._asked[source] = Window(), 0, None
            if not self._asks_first:
                self._windows[source].ask()
                self._windows[source].answer(0)
            self._windows[source].hear(*self._heard, GRANT)


@pytest.mark.parametrize("seed", range(50))
def test_no_more_is_open_than_was_granted(seed: int) -> None:
    play = Play(seed)
    assert play.most <= GRANT
    assert len(play.log.inputs) > 3


def test_a_successor_that_does_not_ask_first_overfills_it() -> None:
    assert max(Play(seed, asks_first=False).most for seed in range(50)) > GRANT


def test_all_of_a_grant_can_be_used_and_what_is_lowered_is_refused() -> None:
    window = Window()
    window.ask()
    window.answer(0)
    window.hear(0, {}, 3)
    for room in (3, 2, 1):
        assert window.room([0]) == room
        window.deal()
        window.wrote()
    assert window.room([0]) == 0
    window.ask()
    window.answer(3)
    window.hear(3, {0: 1, 7: 9}, 3)
    assert window.room([0]) == 2
    assert window.room([0, 7]) == 0
    window.hear(3, {}, 0)
    assert window.room([0]) == 0


def test_an_input_that_comes_later_waits_until_all_that_is_there_was_read() -> None:
    window = Window()
    window.ask()
    window.answer(10)
    window.hear(9, {}, 3)
    assert window.room([0]) == 0
    window.hear(10, {0: 1}, 3)
    assert window.room([0]) == 2
    window.take_over()
    assert window.room([0]) == 0
