"""What an editor knows of an app: mypy checks this file, so a type that gets lost fails `make lint`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, assert_type

import keygrouping.app
import keygrouping_app
from keygrouping.app import App, Breaker, Event, Failure, Outgoing, Output, Retries, State, Tested


@dataclass
class Account:
    balance: int = 0


def test_a_decorated_function_keeps_its_type() -> None:
    app = App("billing", brokers="localhost:9092", start="latest", max_events=1000)

    @app.lifespan
    async def rates() -> AsyncIterator[dict[str, float]]:
        yield {}

    @app.on("orders", concurrency=64, retries=Retries(times=5), breaker=Breaker(calls=20))
    async def charge(event: Event, rates: dict[str, float]) -> Output:
        return Output("receipts", event.value * rates["EUR"], key=event.key)

    @app.on("clicks", key=lambda event: event.value["page"], order=None, batch=True, processes=2)
    def score(events: list[Event]) -> None: ...

    @app.on("payments", state=Account, exactly_once=True, rate=5.0, rate_per_key=1.0)
    async def book(event: Event, account: Account) -> None: ...

    @app.on("refunds", state=State(Account, ttl=60.0))
    async def refund(event: Event, account: Account) -> list[Output]:
        return [Output("balances", account.balance, key=event.key)]

    assert_type(rates, Callable[[], AsyncIterator[dict[str, float]]])
    takes_charge: Callable[[Event, dict[str, float]], Coroutine[Any, Any, Output]] = charge
    takes_refund: Callable[[Event, Account], Coroutine[Any, Any, list[Output]]] = refund
    takes_score: Callable[[list[Event]], None] = score
    takes_nothing: Callable[[], None] = charge  # type: ignore[assignment]
    assert all(map(inspect.iscoroutinefunction, (takes_charge, takes_refund, takes_nothing, book)))
    assert not inspect.iscoroutinefunction(takes_score)


def test_what_an_event_has_is_known() -> None:
    event = Event.of("orders", {"amount": 3}, key="alice", time=5)
    assert_type(event.topic, str)
    assert_type(event.partition, int)
    assert_type(event.offset, int)
    assert_type(event.time, int)
    assert_type(event.identity, str)
    assert_type(event.tries, int)
    assert event.time == 5


async def test_what_a_test_tells_is_known() -> None:
    app = App("billing")

    @app.on("orders")
    async def charge(event: Event) -> None: ...

    tested = await app.test([Event.of("orders", 1)])
    assert_type(tested, Tested)
    assert_type(tested.handled, list[Event])
    assert_type(tested.dead, list[tuple[Event, Failure]])
    assert_type(tested.outputs, list[Outgoing])
    assert len(tested.handled) == 1


def test_wrong_arguments_are_told_before_anything_runs() -> None:
    """mypy complains of an ignored line that has no error, so each of these has one."""
    app = App("billing")

    def wrong() -> None:
        app.on("orders", order="topic")  # type: ignore[arg-type]
        app.on("orders", concurrency="64")  # type: ignore[arg-type]
        app.on("orders", retires=3)  # type: ignore[call-arg]
        app.on("orders", breaker=3)  # type: ignore[arg-type]
        Output("receipts", headers={"a": b"b"})  # type: ignore[arg-type]
        Event.of("orders", 1).values()  # type: ignore[attr-defined]

    assert callable(wrong)


def test_the_types_are_for_whoever_installs_it() -> None:
    for package in ("keygrouping", "keygrouping_app"):
        assert files(package).joinpath("py.typed").is_file()
    assert set(keygrouping_app.__all__) <= vars(keygrouping.app).keys()
