"""One connection of a client and the one to the broker that belongs to it."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from keygrouping_local.ports import HOST
from keygrouping_local.proxy.requests import Api, Request, parse
from keygrouping_local.proxy.rules import Delay, Held, Reset, Rule, Rules

_WHOLE = (Api.METADATA, Api.FIND_COORDINATOR, Api.DESCRIBE_CLUSTER)
"""Answers that hold addresses of brokers."""
_TAIL = (Api.PRODUCE, Api.FETCH)
"""Answers that may end with addresses of brokers, behind everybody's records."""
_TAIL_BYTES = 512


class Gate:
    """One direction of all links to a broker: open or cut, at full speed or throttled."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.bytes_per_second: float | None = None

    async def pass_through(self, size: int) -> None:
        """Waits until so many bytes may go on."""
        await self.open.wait()
        if self.bytes_per_second is not None:
            await asyncio.sleep(size / self.bytes_per_second)
            await self.open.wait()


@dataclass(slots=True)
class Route:
    """How links get to one broker: its port, the gates, the proxy's rules, and what to rewrite in answers."""

    broker: int
    rules: Rules
    addresses: list[tuple[bytes, bytes]]
    saw: Callable[[Request], None]
    to_broker: Gate = field(default_factory=Gate)
    from_broker: Gate = field(default_factory=Gate)


def address_bytes(port: int) -> bytes:
    """Host and port as they stand in every version of every answer: the host's bytes, then the port."""
    return HOST.encode() + struct.pack(">i", port)


@dataclass(slots=True)
class _Exchange:
    request: Request
    frame: bytes
    rule: Rule | None
    answer: bytes | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Link:
    """Carries requests one way and answers the other, as the rules say.

    It outlives its client while a request of it is held: the broker gets that when it is let go.
    """

    def __init__(self, route: Route, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.route = route
        self._number = number
        self._client = reader, writer
        self._order: deque[_Exchange] = deque()
        self._sent: dict[int, _Exchange] = {}
        self._apart: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Returns when both sides are closed."""
        try:
            self._broker = await asyncio.open_connection(HOST, self.route.broker)
        except OSError:
            self._client[1].close()
            return
        answers = asyncio.create_task(self._carry_answers())
        requests = asyncio.create_task(self._carry_requests())
        try:
            await asyncio.wait([answers, requests], return_when=asyncio.FIRST_COMPLETED)
            while self._apart and not answers.done():
                await asyncio.wait([answers, *self._apart], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._end([answers, requests, *self._apart])

    def close(self) -> None:
        """Closes both sides at once."""
        self._client[1].transport.abort()
        if hasattr(self, "_broker"):
            self._broker[1].transport.abort()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError | EOFError):
                raise outcome
        self._client[1].close()
        self._broker[1].close()

    async def _carry_requests(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = await _read(self._client[0])
                request = parse(frame, self.route.broker, self._number)
                self.route.saw(request)
                exchange = _Exchange(request, frame, self.route.rules.take(request))
                if request.answered:
                    self._order.append(exchange)
                await self._begin(exchange)

    async def _begin(self, exchange: _Exchange) -> None:
        rule = exchange.rule
        if rule is None or rule.answer:
            await self._forward(exchange)
        elif isinstance(rule, Held):
            rule.catch(exchange.request)
            self._run_apart(self._forward_later(rule, exchange))
        elif isinstance(rule, Delay):
            await asyncio.sleep(rule.seconds)
            await self._forward(exchange)
        else:
            self.close()

    async def _forward(self, exchange: _Exchange) -> None:
        await self.route.to_broker.pass_through(len(exchange.frame))
        if exchange.request.answered:
            self._sent[exchange.request.correlation_id] = exchange
        await _write(self._broker[1], exchange.frame)

    async def _forward_later(self, held: Held, exchange: _Exchange) -> None:
        try:
            if await held.wait():
                await self._forward(exchange)
                if exchange.request.answered:
                    await exchange.answered.wait()
        except OSError:
            return
        finally:
            held.saw_close()

    async def _carry_answers(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                answer = await _read(self._broker[0])
                exchange = self._sent.pop(struct.unpack_from(">i", answer)[0])
                await self._take_answer(exchange, answer)

    async def _take_answer(self, exchange: _Exchange, answer: bytes) -> None:
        rule = exchange.rule
        if isinstance(rule, Held):
            rule.saw_answer(answer)
        exchange.answered.set()
        self.route.rules.answered(exchange.request)
        if rule is None or not rule.answer:
            await self._give_back(exchange, answer)
        elif isinstance(rule, Held):
            rule.catch(exchange.request)
            self._run_apart(self._give_back_later(rule, exchange, answer))
        elif isinstance(rule, Delay):
            await asyncio.sleep(rule.seconds)
            await self._give_back(exchange, answer)
        elif isinstance(rule, Reset):
            self.close()

    async def _give_back_later(self, held: Held, exchange: _Exchange, answer: bytes) -> None:
        if await held.wait():
            await self._give_back(exchange, answer)

    async def _give_back(self, exchange: _Exchange, answer: bytes) -> None:
        await self.route.from_broker.pass_through(len(answer))
        exchange.answer = self._rewritten(exchange.request, answer)
        while self._order and (ready := self._order[0].answer) is not None:
            self._order.popleft()
            with contextlib.suppress(OSError):  # The client may be gone; the broker may still have a held request.
                await _write(self._client[1], ready)

    def _rewritten(self, request: Request, answer: bytes) -> bytes:
        kept, text = (0, answer) if request.api in _WHOLE else (len(answer), b"")
        if request.api in _TAIL:
            kept = max(0, len(answer) - _TAIL_BYTES)
            text = answer[kept:]
        for real, ours in self.route.addresses:
            text = text.replace(real, ours)
        return answer[:kept] + text

    def _run_apart(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)


async def _read(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)
    await writer.drain()
