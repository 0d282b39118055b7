"""Laws of kept answers: made once for all who ask at a time, fresh, few, and never a failure."""

from __future__ import annotations

import asyncio

import pytest
from keygrouping_router.api.renderings import Renderings


class Maker:
    """Makes numbered bodies, when it may."""

    def __init__(self) -> None:
        self.made = 0
        self.may = asyncio.Event()
        self.may.set()
        self.error: Exception | None = None

    async def __call__(self) -> bytes:
        self.made += 1
        number = self.made
        await self.may.wait()
        if self.error:
            raise self.error
        return b"%d" % number


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_body_is_kept_for_a_while() -> None:
    clock, make = Clock(), Maker()
    renderings = Renderings(seconds=1, clock=clock)
    assert await renderings.get("a", make) == await renderings.get("a", make) == b"1"
    clock.now += 0.999
    assert await renderings.get("a", make) == b"1"
    clock.now += 0.001
    assert await renderings.get("a", make) == b"2"
    assert await renderings.get("b", make) == b"3"


async def test_all_who_ask_meanwhile_get_the_same() -> None:
    make, renderings = Maker(), Renderings()
    make.may.clear()
    asked = [asyncio.create_task(renderings.get("a", make)) for _ in range(5)]
    await asyncio.sleep(0)
    make.may.set()
    assert await asyncio.gather(*asked) == [b"1"] * 5
    assert make.made == 1


async def test_no_more_than_so_many_are_kept_and_the_oldest_go() -> None:
    make, renderings = Maker(), Renderings(most=2)
    for key in "abc":
        await renderings.get(key, make)
    assert await renderings.get("c", make) == b"3"
    assert await renderings.get("b", make) == b"2"
    assert await renderings.get("a", make) == b"4"


async def test_a_failure_reaches_who_asked_and_is_not_kept() -> None:
    make, renderings = Maker(), Renderings()
    make.error = RuntimeError("no")
    with pytest.raises(RuntimeError):
        await renderings.get("a", make)
    make.error = None
    assert await renderings.get("a", make) == b"2"


async def test_one_who_goes_away_leaves_the_others_served() -> None:
    make, renderings = Maker(), Renderings()
    make.may.clear()
    first, second = (asyncio.create_task(renderings.get("a", make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    make.may.set()
    assert await second == b"2"


async def test_what_was_begun_before_a_change_is_not_kept_after_it() -> None:
    make, renderings = Maker(), Renderings()
    make.may.clear()
    asked = asyncio.create_task(renderings.get("a", make))
    await asyncio.sleep(0)
    renderings.forget()
    make.may.set()
    assert await asked == b"1"
    assert await renderings.get("a", make) == b"2"
