"""The proxy itself: a listener per broker, on a thread of its own, and what a test may ask of it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from keygrouping_local.ports import HOST, free_ports
from keygrouping_local.proxy.link import Gate, Link, Route, address_bytes
from keygrouping_local.proxy.requests import Request
from keygrouping_local.proxy.rules import Delay, Held, Match, Reset, Rule, Rules

Result = TypeVar("Result")

_REMEMBERED = 100_000
_POLL_SECONDS = 0.01


class Cut:
    """Links that carry nothing, in one direction or both; what was sent meanwhile arrives when it heals, as in TCP."""

    def __init__(self, proxy: Proxy, gates: Sequence[Gate]) -> None:
        self._proxy = proxy
        self._gates = gates

    def heal(self) -> None:
        """Lets everything pass again, what has piled up first."""

        def heal() -> None:
            for gate in self._gates:
                gate.open.set()

        self._proxy._do(heal)


class Proxy:
    """Stands between clients and the brokers that listen at `brokers` (ports of 127.0.0.1).

    A context manager. It works on a thread of its own, so it goes on while a test's loop is busy; all methods may be
    called from any thread. `ports` are where it listens, by the brokers' order: with given ones it can be restarted at
    the same addresses. Brokers may go and come; without its broker a connection is closed at once.
    """

    def __init__(self, brokers: Sequence[int], ports: Sequence[int] | None = None) -> None:
        self.brokers = list(brokers)
        self.ports = list(ports or free_ports(len(self.brokers)))
        self._rules = Rules()
        self._seen: deque[Request] = deque(maxlen=_REMEMBERED)
        self._routes: dict[int, Route] = {}
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._numbers = itertools.count()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses for clients."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def __enter__(self) -> Proxy:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka-proxy", daemon=True)
        self._thread.start()
        self._wait(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self, match: Match, *, answer: bool = False, until: Match | None = None) -> Held:
        """Keeps back the next matching request, or its answer; with `until` it is let go by itself.

        That is when a request that matches `until` has been answered after it was caught: the two have changed places.
        """

        def add() -> Held:
            held = Held(self._rules, match, self._loop, answer=answer)
            self._rules.add(held)
            if until is not None:
                self._rules.add_until(until, held)
            return held

        return self._do(add)

    def delay(self, match: Match, seconds: float, *, answer: bool = False) -> Rule:
        """Delays matching requests, or their answers, and what follows them on the same connection."""
        return self._added(Delay(self._rules, match, seconds, answer=answer))

    def reset(self, match: Match, *, answer: bool = False) -> Rule:
        """Closes the connection of the next match: the request is lost, or with `answer` done but unanswered."""
        return self._added(Reset(self._rules, match, answer=answer, once=True))

    def cut(self, broker: int | None = None, *, to_broker: bool = True, from_broker: bool = True) -> Cut:
        """Stops all links to a broker (its port; None: to all), new ones too, until the cut is healed."""
        routes = self._routes_to(broker)
        gates = [route.to_broker for route in routes if to_broker] + [r.from_broker for r in routes if from_broker]

        def close() -> None:
            for gate in gates:
                gate.open.clear()

        self._do(close)
        return Cut(self, gates)

    def throttle(self, bytes_per_second: float | None, broker: int | None = None) -> None:
        """Slows each connection, in each direction; None: full speed again."""

        def set_speed() -> None:
            for route in self._routes_to(broker):
                route.to_broker.bytes_per_second = route.from_broker.bytes_per_second = bytes_per_second

        self._do(set_speed)

    def drop_connections(self, broker: int | None = None) -> None:
        """Closes all connections there are; requests that are held on them are lost."""

        def drop() -> None:
            for link in self._links:
                if broker in (None, link.route.broker):
                    link.close()

        self._do(drop)

    def seen(self, match: Match = lambda _: True) -> list[Request]:
        """The matching requests that have come so far, oldest first, without their bodies."""
        return [request for request in self._do(lambda: list(self._seen)) if match(request)]

    async def came(self, match: Match, timeout: float = 30.0) -> Request:
        """Waits until a matching request has come, and gives the newest; TimeoutError if none comes."""
        async with asyncio.timeout(timeout):
            while True:
                if requests := self.seen(match):
                    return requests[-1]
                await asyncio.sleep(_POLL_SECONDS)

    def _added(self, rule: Rule) -> Rule:
        self._do(lambda: self._rules.add(rule))
        return rule

    def _routes_to(self, broker: int | None) -> list[Route]:
        return list(self._routes.values()) if broker is None else [self._routes[broker]]

    async def _listen(self) -> None:
        addresses = [
            (address_bytes(real), address_bytes(ours)) for real, ours in zip(self.brokers, self.ports, strict=True)
        ]
        self._servers = []
        for broker, port in zip(self.brokers, self.ports, strict=True):
            route = Route(broker, self._rules, addresses, lambda request: self._seen.append(replace(request, body=b"")))
            self._routes[broker] = route
            self._servers.append(await asyncio.start_server(self._accepting(route), HOST, port))

    def _accepting(self, route: Route) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = Link(route, next(self._numbers), reader, writer)
            task = asyncio.create_task(link.run())
            self._links[link] = task
            task.add_done_callback(lambda _: self._links.pop(link))

        return accept

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._links.values())
        for link, task in list(self._links.items()):
            link.close()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wait(self, coroutine: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _do(self, action: Callable[[], Result]) -> Result:
        done: Future[Result] = Future()

        def run() -> None:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result()
