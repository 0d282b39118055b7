"""Laws of kept answers: made once for all who ask at a time, fresh, few, and never a failure."""

from __future__ import annotations

import asyncio

import pytest
from keygrouping_router.api.renderings import RenderedOnce, Rendering, Renderings
from starlette.types import Message, Receive, Scope, Send


class Maker:
    """Makes numbered renderings, when it may."""

    def __init__(self) -> None:
        self.made = 0
        self.may = asyncio.Event()
        self.may.set()
        self.error: Exception | None = None
        self.good = True

    async def __call__(self) -> Rendering:
        self.made += 1
        number = self.made
        await self.may.wait()
        if self.error:
            raise self.error
        return numbered(number, self.good)


def numbered(number: int, good: bool = True) -> Rendering:
    return Rendering(({"type": "http.response.body", "body": b"%d" % number},), good)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_one_is_kept_for_a_while_and_renewed_for_who_asks_often() -> None:
    clock, make = Clock(), Maker()
    renderings = Renderings(seconds=1, clock=clock)
    assert await renderings.get("a", make) == await renderings.get("a", make) == numbered(1)
    clock.now += 0.999
    assert await renderings.get("a", make) == numbered(1)
    clock.now += 0.001
    assert await renderings.get("a", make) == await renderings.get("a", make) == numbered(1)
    await asyncio.sleep(0)
    assert await renderings.get("a", make) == numbered(2)
    clock.now += 2
    assert await renderings.get("a", make) == numbered(3)
    assert await renderings.get("b", make) == numbered(4)
    assert make.made == 4


async def test_a_renewal_that_fails_is_told_to_the_next_who_must_wait(caplog: pytest.LogCaptureFixture) -> None:
    clock, make = Clock(), Maker()
    renderings = Renderings(seconds=1, clock=clock)
    assert await renderings.get("a", make) == numbered(1)
    clock.now += 1.5
    make.error = RuntimeError("no")
    assert await renderings.get("a", make) == numbered(1)
    await asyncio.sleep(0)
    clock.now += 1
    with pytest.raises(RuntimeError):
        await renderings.get("a", make)
    assert not caplog.records


async def test_what_is_not_good_is_given_to_who_asked_only() -> None:
    make, renderings = Maker(), Renderings()
    make.good = False
    assert await renderings.get("a", make) == numbered(1, False)
    assert await renderings.get("a", make) == numbered(2, False)


async def test_all_who_ask_meanwhile_get_the_same() -> None:
    make, renderings = Maker(), Renderings()
    make.may.clear()
    asked = [asyncio.create_task(renderings.get("a", make)) for _ in range(5)]
    await asyncio.sleep(0)
    make.may.set()
    assert await asyncio.gather(*asked) == [numbered(1)] * 5
    assert make.made == 1


async def test_no_more_than_so_many_are_kept_and_the_oldest_go() -> None:
    make, renderings = Maker(), Renderings(most=2)
    for key in "abc":
        await renderings.get(key, make)
    assert await renderings.get("c", make) == numbered(3)
    assert await renderings.get("b", make) == numbered(2)
    assert await renderings.get("a", make) == numbered(4)


async def test_a_failure_reaches_who_asked_and_is_not_kept() -> None:
    make, renderings = Maker(), Renderings()
    make.error = RuntimeError("no")
    with pytest.raises(RuntimeError):
        await renderings.get("a", make)
    make.error = None
    assert await renderings.get("a", make) == numbered(2)


async def test_one_who_goes_away_leaves_the_others_served() -> None:
    make, renderings = Maker(), Renderings()
    make.may.clear()
    first, second = (asyncio.create_task(renderings.get("a", make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    make.may.set()
    assert await second == numbered(2)


async def test_what_was_begun_before_a_change_is_not_kept_after_it() -> None:
    make, renderings = Maker(), Renderings()
    make.may.clear()
    asked = asyncio.create_task(renderings.get("a", make))
    await asyncio.sleep(0)
    renderings.forget()
    make.may.set()
    assert await asked == numbered(1)
    assert await renderings.get("a", make) == numbered(2)


async def test_an_answer_goes_to_all_who_ask_alike_with_the_same_rights() -> None:
    asked: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        asked.append(scope)
        status = 401 if b"wrong" in dict(scope["headers"]).get(b"authorization", b"") else 200
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": b"%d" % len(asked)})

    middleware = RenderedOnce(app, Renderings(), frozenset({"/shown"}))

    async def ask(path: str = "/shown", query: bytes = b"", token: bytes = b"", method: str = "GET") -> bytes:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"authorization", token)] if token else []
        scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
        await middleware(scope, nothing, send)
        return b"".join(message.get("body", b"") for message in sent)

    assert [await ask(), await ask()] == [b"1", b"1"]
    assert [await ask(query=b"a=1"), await ask(query=b"a=1")] == [b"2", b"2"]
    assert [await ask(token=b"right"), await ask(token=b"right")] == [b"3", b"3"]
    assert [await ask(token=b"wrong"), await ask(token=b"wrong")] == [b"4", b"5"]
    assert [await ask(path="/other"), await ask(path="/other"), await ask(method="PUT")] == [b"6", b"7", b"8"]


async def nothing() -> Message:
    return {"type": "http.disconnect"}
