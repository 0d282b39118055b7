"""What users write, run without Kafka by the scheduler that runs it with Kafka."""

from __future__ import annotations

import asyncio
import functools
import gc
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from keygrouping_app import TEXT, App, AppError, Breaker, Event, Output, Reject, Retries, State, Topic, UndecodableError
from keygrouping_app.codecs import JSON


def orders(*keys: str, **fields: Any) -> list[Event]:
    return [Event.of("orders", {"n": number, **fields}, key=key) for number, key in enumerate(keys)]


async def test_the_events_of_a_key_run_one_after_another_and_keys_side_by_side() -> None:
    app, running, order = App("billing"), set[str](), list[tuple[str, int]]()
    most = 0

    @app.on("orders", concurrency=8)
    async def charge(event: Event) -> None:
        nonlocal most
        assert event.key not in running
        running.add(event.key)
        most = max(most, len(running))
        await asyncio.sleep(10)
        running.remove(event.key)
        order.append((event.key, event.value["n"]))

    began = time.perf_counter()
    tested = await app.test(orders("a", "b", "a", "c", "a"))
    assert time.perf_counter() - began < 20
    assert 30 <= tested.seconds < 45
    assert most == 3
    assert [number for key, number in order if key == "a"] == [0, 2, 4]
    assert len(tested.handled) == 5


async def test_retries_take_virtual_time_and_the_last_failure_says_why() -> None:
    app, tries = App("billing"), list[float]()

    @app.on("orders", retries=Retries(times=4, first=100.0, most=400.0))
    async def charge(event: Event) -> None:
        tries.append(asyncio.get_running_loop().time())
        raise RuntimeError(f"no money for {event.key}")

    tested = await app.test(orders("a"))
    ((event, failure),) = tested.dead
    assert event.identity == "orders/0/0"
    assert failure.reason == "failed"
    assert failure.detail == "RuntimeError: no money for a"
    assert len(failure.digest) == 12
    pauses = [after - before for before, after in pairwise(tries)]
    for pause, middle in zip(pauses, [100, 200, 400, 400], strict=True):
        assert middle * 0.5 <= pause <= middle * 1.5 + 10
    assert tested.retries == 4


def test_pauses_before_tries_double_up_to_the_most_and_differ() -> None:
    """So that what has failed together does not come back together."""
    retries = Retries(times=9, first=0.5, most=8.0)
    for tries, usual in enumerate((0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0), 1):
        pauses = {retries.delay(tries) for _ in range(200)}
        assert len(pauses) > 100
        assert usual / 2 <= min(pauses) < 0.7 * usual
        assert 1.3 * usual < max(pauses) <= 1.5 * usual
    assert retries.delay(10_000) <= 12.0


async def test_failures_at_one_place_have_one_digest() -> None:
    app = App("billing")

    @app.on("orders", retries=0)
    async def charge(event: Event) -> None:
        if event.key == "a":
            raise RuntimeError(f"order {event.value['n']}")
        raise RuntimeError("another place")

    tested = await app.test(orders("a", "a", "b"))
    digests = [failure.digest for _, failure in tested.dead]
    assert len(set(digests)) == 2
    assert len({failure.digest for event, failure in tested.dead if event.key == "a"}) == 1


async def test_a_handler_that_hangs_is_cancelled_at_its_deadline_and_its_lane_goes_on() -> None:
    app, cancelled = App("billing"), list[str]()

    @app.on("orders", concurrency=1, timeout=30, retries=1)
    async def charge(event: Event) -> None:
        if event.key == "hangs":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(event.key)
                raise

    tested = await app.test(orders("hangs", "b", "c"))
    assert [event.key for event in tested.handled] == ["b", "c"]
    ((_, failure),) = tested.dead
    assert failure.reason == "timeout"
    assert cancelled == ["hangs"] * 2
    assert tested.seconds >= 60


async def test_a_handler_may_have_timeouts_of_its_own() -> None:
    app, seen = App("billing"), list[str]()

    @app.on("orders", concurrency=2)
    async def charge(event: Event) -> None:
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(50)
        except TimeoutError:
            seen.append(event.key)

    tested = await app.test(orders("a", "b", "c"))
    assert seen == ["a", "b", "c"]
    assert len(tested.handled) == 3


async def test_what_is_no_use_to_try_again_is_dead_at_once() -> None:
    app = App("billing")

    @app.on("orders")
    async def charge(event: Event) -> Output | None:
        if event.key == "rejected":
            raise Reject("the shop is closed")
        if event.key == "wrong":
            return "a text"  # type: ignore[return-value]
        if event.key == "large":
            return Output("receipts", "x" * 2_000_000)
        return Output("receipts", {"of": event.value["n"]}, key=event.key)

    broken = Event.of("orders", b"{", key="broken")
    tested = await app.test([*orders("rejected", "wrong", "large", "fine"), broken])
    assert {event.raw.key: failure.reason for event, failure in tested.dead} == {
        b"rejected": "rejected",
        b"wrong": "invalid_output",
        b"large": "invalid_output",
        b"broken": "undecodable",
    }
    assert tested.retries == 0
    (output,) = tested.outputs
    assert (output.topic, output.key, output.value) == ("receipts", b"fine", b'{"of":3}')


@pytest.mark.parametrize("key", ["/user/id", lambda event: event.value["user"]["id"]])
async def test_a_key_may_be_a_field_or_what_a_function_says(key: Any) -> None:
    app, order = App("clicks"), list[int]()

    @app.on("clicks", key=key, concurrency=8)
    async def count(event: Event) -> None:
        await asyncio.sleep(10 - event.value["n"])
        order.append(event.value["n"])

    values = [{"n": number, "user": {"id": user}} for number, user in enumerate(["x", "y", "x"])]
    tested = await app.test([*(Event.of("clicks", value) for value in values), Event.of("clicks", {"n": 9})])
    assert order.index(0) < order.index(2)
    assert order[0] == 1
    ((_, failure),) = tested.dead
    assert failure.detail in ("the value of clicks/0/3 has no field /user/id", "KeyError: 'user'")


async def test_a_batch_is_of_one_key_and_only_the_event_to_blame_is_dead() -> None:
    app, batches = App("clicks"), list[tuple[str, int]]()

    @app.on("orders", batch=True, retries=0)
    def write(events: list[Event]) -> None:
        batches.append((events[0].key, len(events)))
        if any(event.value["n"] == 2 for event in events):
            raise ValueError("two")

    tested = await app.test(orders("a", "b", "a", "a"))
    assert batches[:2] == [("a", 3), ("b", 1)]
    assert [event.value["n"] for event, _ in tested.dead] == [2]
    assert sorted(event.value["n"] for event in tested.handled) == [0, 1, 3]


async def test_lifespans_run_around_and_give_what_handlers_ask_for() -> None:
    app, told = App("billing"), list[str]()

    @app.lifespan
    async def url() -> AsyncIterator[str]:
        told.append("url opens")
        yield "http://bank"
        told.append("url closes")

    @app.lifespan
    async def bank(url: str) -> AsyncIterator[list[str]]:
        told.append("bank opens")
        yield [url]
        told.append("bank closes")

    @app.on("orders")
    async def charge(event: Event, bank: list[str]) -> None:
        told.append(f"{event.key} at {bank[0]}")

    await app.test(orders("a"))
    assert told == ["url opens", "bank opens", "a at http://bank", "bank closes", "url closes"]
    told.clear()
    await app.test(orders("a"), bank=["a fake"])
    assert told == ["url opens", "a at a fake", "url closes"]


async def test_values_are_read_when_asked_for_and_by_the_codec_of_the_topic() -> None:
    app, seen = App("log"), list[Any]()

    @app.on(Topic("lines", value=TEXT))
    async def read(event: Event) -> None:
        seen.append((event.value, event.key, event.time, list(event.headers)))

    event = Event.of("lines", b"caf\xc3\xa9", headers=[("a", b"1")], time=5)
    await app.test([event])
    assert seen == [("café", None, 5, [("a", b"1")])]
    bad = Event.of("orders", b"{")
    assert bad.headers == ()
    with pytest.raises(UndecodableError, match="the value of orders/0/-1 can't be read"):
        _ = bad.value


async def test_all_faults_are_told_at_once_each_with_what_to_do() -> None:
    app = App("")

    @app.lifespan
    async def bank(url: str) -> AsyncIterator[str]:
        yield url

    @app.on("orders", concurrency=0, order="value", key="user", timeout=0)  # type: ignore[arg-type]
    async def charge(event: Event, shop: str) -> None:
        assert event and shop

    @app.on("orders")
    def nothing() -> None: ...

    with pytest.raises(AppError) as wrong:
        await app.test([])
    for part in (
        "the app has no name",
        "topic 'orders' has 2 handlers",
        "lifespan bank: parameter 'url' is given by no lifespan before it",
        "concurrency is 0: give a number from 1 to 100000",
        "order is 'value': give 'key' or None",
        "key is 'user': give a JSON pointer",
        "timeout is 0: give seconds",
        "parameter 'shop' is given by no lifespan: write one",
        "it takes no argument",
    ):
        assert part in str(wrong.value), part
    with pytest.raises(AppError, match="has no handlers"):
        App("a").check()


async def test_an_event_of_another_topic_is_a_fault_of_the_test() -> None:
    app = App("a")

    @app.on("orders")
    async def charge(event: Event) -> None: ...

    with pytest.raises(AppError, match="topic 'clicks' has no handler"):
        await app.test([Event.of("clicks")])


def test_importing_it_brings_nothing_but_orjson_and_msgspec() -> None:
    """Whatever takes long to import (Kafka, numbers, web, traces) comes when it is needed: start-up stays quick."""
    script = "import sys; before = set(sys.modules); import keygrouping.app; print(*(set(sys.modules) - before))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    roots = {name.partition(".")[0] for name in shown}
    quick = {"orjson", "msgspec", "typing_extensions"}
    assert roots - sys.stdlib_module_names - {"_posixsubprocess"} - quick == {"keygrouping", "keygrouping_app"}


@pytest.mark.parametrize(("max_events", "threshold"), [(100, 100_000), (50_000, 250_000)])
def test_a_process_that_runs_an_app_collects_garbage_rarely(
    monkeypatch: pytest.MonkeyPatch, max_events: int, threshold: int
) -> None:
    app, thresholds, before = App("a", max_events=max_events), [0], gc.get_threshold()

    async def serve(_: asyncio.Event) -> None:
        thresholds.append(gc.get_threshold()[0])

    monkeypatch.setattr(app, "serve", serve)
    try:
        app.run()
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
    assert thresholds == [0, threshold]


@pytest.mark.parametrize("batch", [False, True])
async def test_a_further_try_sees_the_event_as_it_came(batch: bool) -> None:
    """Whatever the call that failed has done to what it was given."""
    app, calls = App("a"), 0

    async def double(given: Any) -> list[Output]:
        nonlocal calls
        calls += 1
        events = given if batch else [given]
        for event in events:
            event.value["n"] += 100
        if calls < 3:
            raise ConnectionError("the service is away")
        return [Output("doubled", event.value["n"], key=event.key) for event in events]

    app.on("orders", batch=batch)(double)
    tested = await app.test(orders("a", "a", "a"))
    assert sorted(output.value or b"" for output in tested.outputs) == [b"100", b"101", b"102"]


async def test_an_error_in_a_group_of_tasks_is_what_it_would_be_without() -> None:
    app = App("a")

    async def fail(error: Exception) -> None:
        raise error

    @app.on("orders", retries=Retries(2, first=0))
    async def charge(event: Event) -> None:
        async with asyncio.TaskGroup() as group:
            for error in event.value["errors"]:
                group.create_task(
                    fail({"reject": Reject("no"), "value": ValueError("bad")}.get(error, OSError("away")))
                )

    def failing(*errors: str) -> list[Event]:
        return [Event.of("orders", {"errors": errors}, key="a")]

    async def only(*errors: str) -> tuple[str, str, bool]:
        ((event, failure),) = (await app.test(failing(*errors))).dead
        assert event.tries == (1 if failure.reason == "rejected" else 3)
        return failure.reason, failure.detail, failure.dependency

    assert await only("reject") == ("rejected", "no", False)
    assert await only("value") == ("failed", "ValueError: bad", False)
    assert await only("value", "away") == ("failed", "ValueError: bad; OSError: away", True)
    assert await only("reject", "value") == ("failed", "no; ValueError: bad", False)


async def test_whatever_a_codec_raises_is_about_the_bytes_unless_it_could_not_ask() -> None:
    class Registered:
        """As codecs with a registry of schemas are."""

        away = 0

        def decode(self, data: bytes) -> int:
            if self.away:
                self.away -= 1
                raise ConnectionError("no registry")
            return int(struct.unpack(">i", data)[0])

        def encode(self, value: Any) -> bytes:
            if self.away:
                self.away -= 1
                raise ConnectionError("no registry")
            return struct.pack(">i", value)

    app, codec, seen = App("a"), Registered(), list[int]()

    @app.on(Topic("numbers", value=codec))
    async def take(event: Event) -> Output:
        seen.append(event.value)
        return Output(Topic("sums", value=codec), event.value)

    tested = await app.test([Event.of("numbers", b"1234"), Event.of("numbers", b"short")])
    assert len(tested.handled) == 1
    assert [(failure.reason, event.tries) for event, failure in tested.dead] == [("undecodable", 1)]
    assert "unpack requires a buffer of 4 bytes" in tested.dead[0][1].detail
    codec.away = 3
    tested = await app.test([Event.of("numbers", b"1234")])
    assert (len(tested.handled), tested.retries) == (1, 3)


async def test_handlers_that_yield_are_faults() -> None:
    app = App("a")

    @app.on("one")
    def some(event: Event) -> Any:
        yield event

    @app.on("two")
    async def others(event: Event) -> Any:
        yield event

    with pytest.raises(AppError) as wrong:
        app.check()
    assert str(wrong.value).count("it yields: return an Output, or a list of them") == 2


async def test_a_coroutine_that_nobody_awaits_ends_the_app() -> None:
    """Its body never runs, so all events would become dead letters."""
    app = App("a")

    async def charge(event: Event) -> None:
        assert event

    @functools.wraps(charge)
    def wrapped(event: Event) -> Any:
        return charge(event)

    app.on("orders")(wrapped)
    with pytest.raises(AppError, match="returns a coroutine, which nobody awaits: declare it, and what wraps it, as"):
        await app.test(orders("a", "b"))


async def test_an_object_may_be_a_handler() -> None:
    class Charge:
        async def __call__(self, event: Event) -> Output:
            return Output("receipts", event.key)

    app = App("a")
    app.on("orders")(Charge())
    assert [output.value for output in (await app.test(orders("a"))).outputs] == [b'"a"']


@pytest.mark.parametrize("error", [SystemExit(2), GeneratorExit(), type("Mute", (Exception,), {"__str__": None})()])
async def test_whatever_a_handler_raises_ends_its_event_alone(error: BaseException) -> None:
    app = App("a")

    @app.on("orders", retries=0, breaker=None)
    async def charge(event: Event) -> None:
        if event.key == "bad":
            raise error

    tested = await app.test(orders("bad", "a", "b"))
    assert [event.key for event, _ in tested.dead] == ["bad"]
    assert len(tested.handled) == 2


async def test_an_event_that_is_rejected_late_is_rejected() -> None:
    app = App("a")

    @app.on("orders", timeout=1)
    async def charge(_: Event) -> None:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            raise Reject("closed") from None

    ((_, failure),) = (await app.test(orders("a"))).dead
    assert failure.reason == "rejected"


async def test_a_header_that_can_not_be_written_is_an_output_that_can_not() -> None:
    app = App("a")

    @app.on("orders")
    async def charge(event: Event) -> Output:
        return Output("receipts", 1, key=event.key, headers=[("\ud800", b"")])

    ((event, failure),) = (await app.test(orders("a"))).dead
    assert (failure.reason, event.tries) == ("invalid_output", 1)


async def test_states_that_a_test_gives_are_as_young_as_its_events() -> None:
    app = App("a")

    @app.on("orders", state=State(dict, ttl=3600))
    async def count(_: Event, state: dict[str, int]) -> None:
        state["n"] = state.get("n", 0) + 1

    event = Event.of("orders", 1, key="a", time=1_790_000_000_000)
    tested = await app.test([event], states={"orders": {"a": {"n": 41}}})
    assert tested.states == {"orders": {"a": {"n": 42}}}


async def test_what_is_replaced_in_a_test_has_to_be_there() -> None:
    app = App("a")

    @app.lifespan
    async def database() -> AsyncIterator[str]:
        yield "real"

    @app.on("orders")
    async def charge(event: Event, database: str) -> None:
        assert event and database

    with pytest.raises(AppError, match="data_base is yielded by no lifespan"):
        await app.test(orders("a"), data_base="fake")
    with pytest.raises(ValueError, match="there is a lifespan database already"):
        app.lifespan(database)


async def test_threads_of_the_event_loop_stop_virtual_time_only_while_they_work() -> None:
    app = App("a")

    @app.on("orders", retries=Retries(5, first=100, most=100))
    async def charge(_: Event) -> None:
        await asyncio.to_thread(time.sleep, 0.01)
        raise ValueError("bad")

    began = time.perf_counter()
    tested = await app.test(orders("a", "b"))
    assert time.perf_counter() - began < 30
    assert len(tested.dead) == 2
    assert tested.seconds > 250


def test_what_is_no_topic_is_told_where_it_stands() -> None:
    app = App("a")
    with pytest.raises(TypeError, match=r"write @app.on\('orders'\)"):
        app.on(print)  # type: ignore[arg-type]
    app.on("dead-letters")(print)
    assert any("its own dead letters, which would come to its handler again" in fault for fault in app.faults())


@dataclass
class Account:
    total: int = 0


def of_events(_: Event) -> None: ...


def of_accounts(_: Event, account: Account) -> None:
    assert account


@pytest.mark.parametrize(
    ("options", "settings", "faults"),
    [
        ({"session_timeout": "6"}, {}, ["session_timeout is '6': give a number"]),
        ({"max_bytes": 1e6}, {}, ["max_bytes is 1000000.0: give a whole number"]),
        ({"port": "8080"}, {}, ["port is '8080': give a whole number or None"]),
        ({"brokers": ["a:1", "b:1"]}, {}, ["brokers is ['a:1', 'b:1']: give text"]),
        ({"name": 7}, {}, ["name is 7: give text"]),
        ({}, {"timeout": "60", "concurrency": "4"}, ["concurrency is '4': give a whole", "timeout is '60': give a n"]),
        ({}, {"processes": "2", "concurrency": 2}, ["processes is '2': give a whole number or None"]),
        ({}, {"split": 1, "exactly_once": "no"}, ["exactly_once is 'no': give True or F", "split is 1: give True or"]),
        ({}, {"retries": "3"}, ["retries.times is '3': give a whole number"]),
        ({}, {"retries": Retries(1, first="1")}, ["retries.first is '1': give a number"]),  # type: ignore[arg-type]
        ({}, {"breaker": 5}, ["breaker is 5: give a Breaker or None"]),
        ({}, {"breaker": Breaker("5")}, ["breaker.calls is '5': give a whole number"]),  # type: ignore[arg-type]
        ({}, {"key": 5}, ["key is 5: give text, a function or None"]),
        ({}, {"state": State(Account, ttl="1", standbys=1.5)}, ["state.ttl is '1'", "state.standbys is 1.5"]),  # type: ignore[arg-type]
        ({}, {"state": State(Account, largest=1e6)}, ["state.largest is 1000000.0: give a whole number"]),  # type: ignore[arg-type]
        ({}, {"state": State(Account, version="2")}, ["state.version is '2'"]),  # type: ignore[arg-type]
        ({}, {"state": State(Account, codec=str)}, ["state.codec is <class 'str'>: give a Codec or None"]),  # type: ignore[arg-type]
        ({}, {"state": 5}, ["state 5: give a dataclass, a msgspec Struct or dict"]),
    ],
)
def test_a_setting_of_another_type_is_a_fault(
    options: dict[str, Any], settings: dict[str, Any], faults: list[str]
) -> None:
    app = App(**{"name": "shop", **options})

    app.on("orders", **settings)(of_accounts if "state" in settings else of_events)
    found = app.faults()
    assert len(found) == len(faults), found
    for fault, told in zip(faults, found, strict=True):
        assert fault in told


def test_numbers_and_all_that_is_called_are_taken_as_type_checkers_do() -> None:
    app = App("shop", session_timeout=6, commit_interval=Fraction(1, 10))  # type: ignore[arg-type]

    class Handle:
        def __call__(self, event: Event, account: Account) -> None: ...

    app.on("orders", timeout=6, batch=True, state=State(Account, ttl=60, codec=JSON), retries=0)(Handle())
    app.on(Topic("more", key=JSON), processes=None, breaker=None, order=None)(lambda _: None)
    assert app.faults() == []
