"""What a split of hot keys would give: measured seconds, and the formula against what then happens in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from keygrouping_app import App, Event, Failure, Outgoing, Topic, costs
from keygrouping_app.events import Record, Source, event_of
from keygrouping_app.handlers import Order
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.overview import keys_at_work, load_of
from keygrouping_app.split import Load, Split, split_of
from keygrouping_app.virtual_time import VirtualTime

USUAL = 100.0
SECONDS = {"h": 500.0, "w": 200.0}
"""What events of a key take in virtual time, and all others."""
LOOK = 2500.0
"""When it is looked: all keys have been seen, and of most cases much is left."""
SLACK = 60.0
"""Real time that passes meanwhile at most."""


@pytest.fixture(autouse=True)
def endless_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is of late, however slow calls are."""
    monkeypatch.setattr(costs, "WINDOW", 1e9)


class Member:
    """Lanes of a member that has all its events at once."""

    def __init__(self, keys: str, lanes: int, order: Order = "key") -> None:
        self.keys = keys
        self.done = asyncio.Event()
        self._ended = 0
        app = App("billing")

        @app.on("orders", concurrency=lanes, order=order, timeout=3600)
        async def work(event: Event) -> None:
            await asyncio.sleep(SECONDS.get(event.key, USUAL))

        (handler,) = app.handlers
        self.lanes = LoopLanes(handler, handler.function, self._end)
        source = Source(Topic("orders"))
        self.lanes.offer(event_of(Record("orders", 0, n, 0, key.encode(), b"1"), source) for n, key in enumerate(keys))

    def _end(self, ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        assert not outputs and failure is None
        self._ended += len(ended)
        if self._ended == len(self.keys):
            self.done.set()

    def load(self) -> Load:
        now = asyncio.get_running_loop().time()
        return load_of(self.lanes, keys_at_work(self.lanes, now), now)


async def run(*members: Member) -> float:
    """Virtual seconds until the last of them is done."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await asyncio.gather(*(each.done.wait() for each in members))
    for each in members:
        each.lanes.close()
    return loop.time() - begun


CASES = [
    ("h" * 40 + "abcdefg" * 3 + "w" * 10, 8),
    ("".join(f"h{chr(0x100 + n)}" for n in range(60)), 4),
    ("abcd" * 20, 2),
    ("h" * 8, 16),
]


@pytest.mark.parametrize(("keys", "lanes"), CASES)
async def test_the_time_of_a_split_is_what_was_said(keys: str, lanes: int) -> None:
    longest = max(SECONDS.get(key, USUAL) for key in keys)
    with VirtualTime():
        member = Member(keys, lanes)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(LOOK)
        load = member.load()
        split = split_of([load])
        await run(member)
        took = asyncio.get_running_loop().time() - began
        apart = await run(Member(keys, lanes, order=None))
    worth = sum(SECONDS.get(key, USUAL) for key in keys)
    assert load.seconds == pytest.approx(worth, rel=0.01)
    assert load.hottest == pytest.approx(max(keys.count(key) * SECONDS.get(key, USUAL) for key in set(keys)), rel=0.01)
    assert split.now - SLACK <= took <= load.hottest + load.even + SLACK
    assert split.members - SLACK <= apart <= split.members + longest + SLACK


async def test_members_wait_for_the_one_with_the_hot_key() -> None:
    loads = [("h" * 40 + "abcde" * 4, 4), ("fgkij" * 4, 4)]
    with VirtualTime():
        members = [Member(*each) for each in loads]
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(LOOK)
        split = split_of([each.load() for each in members])
        await run(*members)
        took = asyncio.get_running_loop().time() - began
        within = await run(*(Member(*each, order=None) for each in loads))
        apart = await run(Member("".join(keys for keys, _ in loads), 8, order=None))
    for said, was in ((split.now, took), (split.lanes, within), (split.members, apart)):
        assert said - SLACK <= was <= said + SECONDS["h"] + SLACK
    assert split.gain == pytest.approx(20 / (24 / 8), rel=0.01)


@pytest.mark.parametrize(
    ("loads", "split"),
    [
        ([], Split(0, 0, 0)),
        ([Load(0, 0, 4)], Split(0, 0, 0)),
        ([Load(8, 1, 4)], Split(2, 2, 2)),
        ([Load(8, 6, 4)], Split(6, 2, 2)),
        ([Load(8, 6, 4), Load(4, 4, 4)], Split(6, 2, 1.5)),
        ([Load(40, 1, 4), Load(0, 0, 4)], Split(10, 10, 5)),
    ],
)
def test_the_formula(loads: Sequence[Load], split: Split) -> None:
    assert split_of(loads) == split
    assert split.gain >= 1 and split.now >= split.lanes >= split.members
