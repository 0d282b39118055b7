"""What happens to which request: rules, asked in the order in which they were made; the first that matches decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from keygrouping_local.proxy.requests import Request

Match: TypeAlias = Callable[[Request], bool]
"""Runs on the proxy's thread: it should only look at the request."""

_TIMEOUT = 300.0
"""Ends a test that hangs, and is no bound on how long things may take: other tests run on the same cores."""


class Rule:
    """Something that happens to matching requests, or to their answers, until it is removed or used up."""

    def __init__(self, rules: Rules, match: Match, *, answer: bool = False, once: bool = False) -> None:
        self.match = match
        self.answer = answer
        self.once = once
        self._rules = rules

    def remove(self) -> None:
        """From now on the rule matches nothing more."""
        self._rules.remove(self)


class Delay(Rule):
    """Requests go on later, and what follows them on the same connection behind them."""

    def __init__(self, rules: Rules, match: Match, seconds: float, *, answer: bool) -> None:
        super().__init__(rules, match, answer=answer)
        self.seconds = seconds


class Reset(Rule):
    """The connection of the next match is closed: before the broker sees the request, or in place of the answer."""


class Held(Rule):
    """The next match is kept back; what follows passes it, also on the same connection.

    A client takes answers in the order of its requests, so answers on the same connection wait for the held one's.
    """

    def __init__(self, rules: Rules, match: Match, loop: asyncio.AbstractEventLoop, *, answer: bool) -> None:
        super().__init__(rules, match, answer=answer, once=True)
        self._loop = loop
        self._let_go = asyncio.Event()
        self._caught: Future[Request] = Future()
        self._answer: Future[bytes] = Future()
        self._discarded = False

    @property
    def is_caught(self) -> bool:
        """Whether it has something in its hands, or had."""
        return self._caught.done()

    @property
    def request(self) -> Request | None:
        """What it holds, or has held."""
        return self._caught.result() if self._caught.done() else None

    async def caught(self, timeout: float = _TIMEOUT) -> Request:
        """Waits until something is held; TimeoutError if nothing comes."""
        async with asyncio.timeout(timeout):
            return await asyncio.shield(asyncio.wrap_future(self._caught))

    async def answered(self, timeout: float = _TIMEOUT) -> bytes:
        """Waits for the broker's answer to what was held, and gives it from the correlation id on.

        ConnectionError if the broker closed the connection instead.
        """
        async with asyncio.timeout(timeout):
            return await asyncio.shield(asyncio.wrap_future(self._answer))

    def release(self) -> None:
        """Lets it go on; also before anything is held: then the next match is not kept at all."""
        self._loop.call_soon_threadsafe(self._let_go.set)

    def discard(self) -> None:
        """Lets it vanish."""
        self._discarded = True
        self.release()

    # for the proxy, on its thread

    def catch(self, request: Request) -> None:
        self._caught.set_result(request)

    async def wait(self) -> bool:
        """Returns when it is let go: True if it is to go on, False if it is to vanish."""
        await self._let_go.wait()
        return not self._discarded

    def let_go(self) -> None:
        self._let_go.set()

    def saw_answer(self, answer: bytes) -> None:
        self._answer.set_result(answer)

    def saw_close(self) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionError("the broker's connection was closed before it answered"))


class Rules:
    """The rules in force; all but `remove` belongs to the proxy's thread."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._until: list[tuple[Match, Held]] = []

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def remove(self, rule: Rule) -> None:
        self._rules = [kept for kept in self._rules if kept is not rule]

    def add_until(self, match: Match, held: Held) -> None:
        """Lets `held` go once a request that matches has been answered."""
        self._until.append((match, held))

    def take(self, request: Request) -> Rule | None:
        """The rule for a request that has come."""
        for rule in self._rules:
            if rule.match(request):
                if rule.once:
                    self.remove(rule)
                return rule
        return None

    def answered(self, request: Request) -> None:
        """Notes that the broker has answered a request."""
        for match, held in self._until[:]:
            if held.is_caught and match(request):
                self._until.remove((match, held))
                held.let_go()
