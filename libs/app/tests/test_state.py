"""A state per key as users see it, in `app.test`."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time as clock
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from keygrouping_app import App, AppError, Event, Output, Reject, State
from keygrouping_app.codecs import JSON
from keygrouping_app.fit import Fit
from keygrouping_app.kept import Kept, StateError, UnreadableStateError, UnusableStateError
from keygrouping_app.state import Form
from keygrouping_app.states import LARGEST_KEY, States


@dataclass
class Account:
    balance: int = 0
    seen: list[datetime] = field(default_factory=list)


class Counter(msgspec.Struct):
    count: int = 0


class Numbers:
    """Of bytes that are digits."""

    def decode(self, data: bytes) -> Account:
        return Account(int(data))

    def encode(self, value: Account) -> bytes:
        return b"%d" % value.balance


class Gone(Numbers):
    """Asks something that is away."""

    def decode(self, data: bytes) -> Account:
        if data == b"1":
            raise TimeoutError("no registry")
        return super().decode(data)


class Texts:
    """As `json.dumps` writes."""

    def decode(self, data: bytes) -> Account:
        return Account(int(data))

    def encode(self, value: Account) -> bytes:
        return str(value.balance)  # type: ignore[return-value]


def payments(*amounts: int, key: str | None = "a", **fields: Any) -> list[Event]:
    return [Event.of("payments", {"amount": each, **fields}, key=key) for each in amounts]


def bank(**options: Any) -> App:
    """Adds up; what an event is to end with is in its value."""
    app = App("bank")

    @app.on("payments", **{"state": Account, "retries": 0, **options})
    async def book(event: Event, account: Account) -> Output:
        account.balance += event.value["amount"]
        match event.value.get("end"):
            case "raise":
                raise RuntimeError
            case "reject":
                raise Reject("no")
            case "late":
                await asyncio.sleep(1000)
            case "wrong output":
                return "text"  # type: ignore[return-value]
            case "wrong state":
                account.balance = "text"  # type: ignore[assignment]
            case "large state":
                account.seen = [datetime.now(UTC)] * 100_000
        return Output("balances", account.balance, key=event.key)

    return app


async def test_each_key_has_its_own_state_and_the_next_call_finds_what_the_last_one_made() -> None:
    tested = await bank().test([*payments(1, 2, 3), *payments(10, key="b")])
    assert tested.states == {"payments": {"a": Account(6), "b": Account(10)}}
    assert [each.value for each in tested.outputs if each.key == b"a"] == [b"1", b"3", b"6"]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise", "failed"),
        ("reject", "rejected"),
        ("late", "timeout"),
        ("wrong output", "invalid_output"),
        ("wrong state", "invalid_state"),
        ("large state", "invalid_state"),
    ],
)
async def test_a_call_that_fails_leaves_the_state_as_it_was_and_writes_nothing(end: str, reason: str) -> None:
    tested = await bank().test([*payments(1), *payments(10, end=end), *payments(100)])
    assert tested.states["payments"] == {"a": Account(101)}
    assert [failure.reason for _, failure in tested.dead] == [reason]
    assert [each.value for each in tested.outputs] == [b"1", b"101"]


async def test_a_further_try_begins_with_the_state_of_before() -> None:
    app, tries = App("bank"), list[int]()

    @app.on("payments", state=Account, retries=3)
    async def book(event: Event, account: Account) -> None:
        account.balance += event.value["amount"]
        tries.append(account.balance)
        if len(tries) < 3:
            raise RuntimeError

    tested = await app.test(payments(5))
    assert tries == [5, 5, 5]
    assert tested.states["payments"]["a"].balance == 5


async def test_a_batch_has_one_state_and_is_split_when_it_fails() -> None:
    app, calls = App("bank"), list[int]()

    @app.on("payments", state=dict, batch=True, retries=0)
    def book(events: list[Event], state: dict[str, int]) -> None:
        calls.append(len(events))
        for event in events:
            state["balance"] = state.get("balance", 0) + event.value["amount"]
            if event.value["amount"] == 3:
                raise ValueError

    tested = await app.test(payments(1, 2, 3, 4))
    assert calls == [4, 1, 1, 1, 1]
    assert tested.states["payments"] == {"a": {"balance": 7}}
    assert len(tested.dead) == 1


async def test_a_test_may_begin_with_states_and_go_on_with_those_of_another() -> None:
    app = bank()
    first = await app.test(payments(1), states={"payments": {"a": Account(41), "b": Account(7)}})
    assert first.states["payments"] == {"a": Account(42), "b": Account(7)}
    second = await app.test(payments(1), states=first.states)
    assert second.states["payments"] == {"a": Account(43), "b": Account(7)}
    with pytest.raises(AppError, match="'orders' has no handler with state"):
        await app.test([], states={"orders": {}})


async def test_a_state_that_is_as_a_new_one_is_deleted() -> None:
    tested = await bank().test(payments(5, -5))
    assert tested.states["payments"] == {}


async def test_a_struct_a_dict_and_an_own_codec_are_states() -> None:
    app = App("bank")

    @app.on("structs", state=Counter)
    async def count(_: Event, counter: Counter) -> None:
        counter.count += 1

    @app.on("dicts", state=dict)
    def note(event: Event, state: dict[str, Any]) -> None:
        state.setdefault("values", []).append(event.value)

    class Pickled:
        def decode(self, data: bytes) -> Any:
            return pickle.loads(data)

        def encode(self, value: Any) -> bytes:
            return pickle.dumps(value)

    @app.on("sets", state=State(set, codec=Pickled()))
    async def add(event: Event, seen: set[int]) -> None:
        seen.add(event.value)

    tested = await app.test(
        Event.of(topic, number, key="k") for topic in ("structs", "dicts", "sets") for number in (1, 2, 1)
    )
    assert tested.dead == []
    assert tested.states == {
        "structs": {"k": Counter(3)},
        "dicts": {"k": {"values": [1, 2, 1]}},
        "sets": {"k": {1, 2}},
    }


async def test_lifespans_come_behind_the_state() -> None:
    app = App("bank")

    @app.lifespan
    async def rate() -> AsyncIterator[int]:
        yield 3

    @app.on("payments", state=Account)
    async def book(event: Event, account: Account, rate: int) -> None:
        account.balance += rate * event.value["amount"]

    tested = await app.test(payments(2))
    assert tested.states["payments"]["a"].balance == 6


async def test_keys_of_fields_are_told_as_they_are_and_equal_ones_are_one() -> None:
    app = App("bank")

    @app.on("payments", key="/of", state=Account, retries=0)
    async def book(event: Event, account: Account) -> None:
        account.balance += event.value["amount"]

    tested = await app.test([event for of in (1, 1.0, True, "1", 2.5, 0) for event in payments(1, of=of)])
    assert {key: state.balance for key, state in tested.states["payments"].items()} == {1: 3, "1": 1, 2.5: 1, 0: 1}


@pytest.mark.parametrize(
    ("key", "group", "says"),
    [
        (None, None, "without a key has no state"),
        ("/of", None, "without a key has no state"),
        (None, "x" * (LARGEST_KEY + 1), "at most 16384 bytes"),
        (lambda event: event.value["of"], [1], "a text or a number"),
        (lambda event: 10**30 + event.value["of"], 1, "a text or a number"),
        (lambda event: (event.value["of"],), "a", "a text or a number"),
        (lambda _: float("nan"), "a", "a text or a number"),
    ],
)
async def test_an_event_whose_key_can_have_no_state_is_a_dead_letter(key: Any, group: Any, says: str) -> None:
    tested = await bank(key=key).test(payments(1, key=group if key is None else "k", of=group))
    ((_, failure),) = tested.dead
    assert failure.reason == "invalid_state"
    assert says in failure.detail
    assert tested.states == {"payments": {}}


async def test_a_state_ends_by_its_age_as_events_tell_it() -> None:
    app, found = App("bank"), list[int]()

    @app.on("payments", state=State(Account, ttl=10))
    async def book(event: Event, account: Account) -> None:
        found.append(account.balance)
        account.balance += event.value

    times = [0, 10_000, 20_001, 20_002]
    tested = await app.test(Event.of("payments", 1, key="a", time=time) for time in times)
    assert found == [0, 1, 0, 1]
    assert tested.states["payments"] == {"a": Account(2)}


def test_old_states_are_forgotten_unless_an_event_of_their_key_is_in_memory() -> None:
    states = States(State(Account, ttl=1))
    for key, time in ((b"old", 0), (b"busy", 1), (b"new", 2000)):
        states.keep(key, None, b"{}", time)
    assert set(states.take()) == {b"old", b"busy", b"new"}
    states.end_old(lambda group: group == b"busy")
    assert states.take() == {b"old": None}
    assert [key for key, _ in states] == [b"busy", b"new"]
    states.end_old(lambda _: False)
    assert states.take() == {b"busy": None}


def test_an_event_of_a_wrong_time_ends_no_other_key_s_state() -> None:
    """One with microseconds for milliseconds, say."""
    states = States(State(Account, ttl=60))
    now = int(1000 * clock())
    for key, when in ((b"a", now - 1000), (b"old", now - 70_000), (b"wrong", 1000 * now), (b"b", now)):
        states.keep(key, None, b"{}", when)
    states.end_old(lambda _: False)
    assert {key for key, _ in states} == {b"a", b"b", b"wrong"}


def test_a_state_is_no_older_than_the_events_that_a_restored_one_was_made_by() -> None:
    """However late the changelog was written: in a backfill all events are old."""
    states = States(State(Account, ttl=1))
    states.restore(b"a", Kept(b"1", 500, 1))
    states.restore(b"b", None)
    states.end_old(lambda _: False)
    assert [key for key, _ in states] == [b"a"]


def test_what_a_transaction_gives_back_is_taken_again_but_for_what_is_newer() -> None:
    states = States(State(Account))
    states.keep(b"a", None, b"1", 0)
    states.keep(b"b", None, b"1", 0)
    taken = states.take()
    states.keep(b"a", taken[b"a"], b"2", 5)
    states.give_back(taken)
    assert states.take() == {b"a": Kept(b"2", 5, 1), b"b": Kept(b"1", 0, 1)}
    assert states.take() == {}


def test_what_does_not_change_is_not_written() -> None:
    states = States(State(Account))
    states.keep(b"a", None, b"1", 0)
    states.take()
    states.keep(b"a", states.find(b"a", 9), b"1", 9)
    states.keep(b"b", None, None, 9)
    assert states.take() == {}


def test_what_comes_late_to_a_partition_that_has_gone_is_forgotten() -> None:
    stores: list[Any] = ["memory", "disk"]
    for store in stores:
        states = States(State(Account, store=store))
        states.close()
        states.keep(b"a", None, b"1", 0)
        assert states.take() == {}


@dataclass
class Renamed:
    cents: int = 0


def in_cents(old: Any, version: int) -> Any:
    assert version == 1
    return {"cents": old["balance"] * 100}


def test_an_older_state_is_upgraded_when_it_is_read() -> None:
    form = Form(State(Renamed, version=2, upgrade=in_cents))
    assert form.read(Kept(b'{"balance":3,"seen":[]}', 0, 1)) == Renamed(300)
    assert form.read(Kept(b'{"cents":3}', 0, 2)) == Renamed(3)


def test_fields_that_come_and_go_need_no_upgrade() -> None:
    assert Form(State(Account)).read(Kept(b'{"balance":3,"gone":true}', 0, 1)) == Account(3)


def test_an_upgraded_state_is_written_by_its_version_even_if_its_bytes_are_the_same() -> None:
    states = States(State(Account, version=2, upgrade=lambda old, _: old))
    states.restore(b"a", Kept(b'{"balance":3,"seen":[]}', 0, 1))
    states.keep(b"a", states.find(b"a", 0), b'{"balance":3,"seen":[]}', 0)
    assert states.take() == {b"a": Kept(b'{"balance":3,"seen":[]}', 0, 2)}


def test_states_of_a_newer_program_are_refused() -> None:
    with pytest.raises(UnusableStateError, match="this program has version 1: it is an older one"):
        States(State(Account)).restore(b"a", Kept(b"{}", 0, 2))


def fails(*_: Any) -> Any:
    raise LookupError("no balance")


@pytest.mark.parametrize(
    ("state", "data", "says"),
    [
        (State(Renamed, version=2, upgrade=fails), b"{}", r"as version 2 of Renamed .no balance.*written by version 1"),
        (State(Renamed), b'{"cents":"text"}', "Expected `int`, got `str`"),
        (State(dict), b"[1]", "it is no dict but list"),
        (State(Account, codec=Numbers()), b"x", "invalid literal"),
    ],
)
def test_a_state_that_cannot_be_read_says_why(state: State, data: bytes, says: str) -> None:
    with pytest.raises(UnreadableStateError, match=says):
        Form(state).read(Kept(data, 0, 1))


@pytest.mark.parametrize(("ttl", "renewed"), [(10, 5000), (None, 1000)])
def test_a_state_that_cannot_be_read_does_not_end_by_its_age_while_events_of_its_key_come(
    ttl: float | None, renewed: int
) -> None:
    states = States(State(Account, ttl=ttl))
    states.restore(b"a", Kept(b"old", 1000, 1))
    states.renew(b"a", 5000)
    states.renew(b"a", 4000)
    states.renew(b"none", 5000)
    assert states.peek(b"a") == Kept(b"old", renewed, 1)
    assert states.take() == ({b"a": Kept(b"old", 5000, 1)} if ttl else {})
    states.keep(b"b", None, b"{}", 14_000)
    states.end_old(lambda _: False)
    assert states.peek(b"a") is not None
    states.close()
    states.renew(b"a", 9000)
    assert states.take() == {}


def kept_states(*data: bytes) -> States:
    states = States(State(Renamed))
    for number, each in enumerate(data):
        states.restore(b"%d" % number, Kept(each, 0, 1))
    return states


GOOD, BAD = b'{"cents":1}', b'{"cents":"text"}'


def test_a_program_that_reads_none_of_ten_states_does_not_begin() -> None:
    fit = Fit(Form(State(Renamed)))
    fit.check(kept_states(*[BAD] * 4), "states[0]")
    fit.check(kept_states(*[BAD] * 4), "states[0]")
    fit.check(kept_states(*[BAD] * 5), "states[1]")
    with pytest.raises(AppError, match=r"states\[2\]: none of 10 states .* Of key b'0', its state can't be read as"):
        fit.check(kept_states(BAD), "states[2]")


@pytest.mark.parametrize("states", [[], [BAD] * 9, [*[BAD] * 9, GOOD], [GOOD, *[BAD] * 9]])
def test_a_program_that_reads_some_begins_and_so_does_one_that_can_t_tell(states: list[bytes]) -> None:
    fit = Fit(Form(State(Renamed)))
    fit.check(kept_states(*states), "states[0]")
    if GOOD in states:
        fit.check(kept_states(*[BAD] * 20), "states[1]")


def test_a_registry_that_is_away_says_nothing_of_a_program() -> None:
    fit = Fit(Form(State(Account, codec=Gone())))
    states = States(State(Account))
    for number in range(20):
        states.restore(b"%d" % number, Kept(b"1", 0, 1))
    fit.check(states, "states[0]")


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (Account(), "give a dataclass, a msgspec Struct or dict, or State(..., codec=...)"),
        (list, "give a dataclass, a msgspec Struct or dict, or State(..., codec=...)"),
        (State(Account, version=2), "state.version is 2: give upgrade="),
        (State(Account, version=0), "state.version is 0: give 1 or more"),
        (State(Account, ttl=0), "state.ttl is 0: give seconds"),
        (State(Account, largest=0), "state.largest is 0: give bytes"),
        (State(int, codec=JSON), "state int: a handler can't change it in place: give a class with a field for it"),
        (State(tuple, codec=JSON), "state tuple: a handler can't change it in place"),
        (State(Account, codec=Texts()), "its codec gives str, and bytes are wanted"),
        (State(Account, store="tape"), "state.store is 'tape': give 'memory' or 'disk'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_with_a_state_is_said_at_the_start(state: Any, says: str) -> None:
    (fault,) = bank(state=state).faults()
    assert fault.startswith("bank.<locals>.book on 'payments': ")
    assert says in fault


class Away:
    """Asks something that is away at first."""

    left = 2

    def decode(self, data: bytes) -> Account:
        if data == b"1" and Away.left:
            Away.left -= 1
            raise ConnectionError("no registry")
        return Account(int(data))

    def encode(self, value: Account) -> bytes:
        return b"%d" % value.balance


async def test_what_a_codec_can_t_ask_now_is_asked_again() -> None:
    tested = await bank(state=State(Account, codec=Away()), retries=2).test(payments(1, 1, 1))
    assert tested.dead == [] and tested.retries > 0
    assert tested.states["payments"] == {"a": Account(3)}


@dataclass
class Loose:
    seen: dict = field(default_factory=dict)  # type: ignore[type-arg]
    last: Any = None
    at: datetime | None = None


def count_number(state: Loose) -> None:
    state.seen[7] = state.seen.get(7, 0) + 1


def keep_date(state: Loose) -> None:
    state.last = {"at": [datetime(2026, 1, 1, tzinfo=UTC)]}


def keep_nan(state: Loose) -> None:
    state.last = float("nan")


def keep_hour(state: Loose) -> None:
    """Of the hour that comes twice: Python takes such a time for another one in every other time zone."""
    state.at = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))


def keep_pair(state: Loose) -> None:
    state.last = ("a", (1, 2.0), {"b": None})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (count_number, "the key 7 of seen would be read as something else"),
        (keep_date, "datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc) of last['at'][0] would be read"),
        (keep_nan, "nan of last would be read as something else: declare its type, or use what JSON has"),
        (keep_hour, None),
        (keep_pair, None),
    ],
)
async def test_what_would_be_read_as_something_else_is_not_kept(
    change: Callable[[Loose], None], says: str | None
) -> None:
    app = App("bank")

    @app.on("payments", state=Loose)
    async def book(_: Event, state: Loose) -> None:
        change(state)

    tested = await app.test([Event.of("payments", 1, key="a")] * 2)
    failures = [failure for _, failure in tested.dead]
    assert [each.reason for each in failures] == ([] if says is None else ["invalid_state"] * 2)
    assert all(says is not None and says in each.detail for each in failures)


@dataclass
class NoDefault:
    balance: int


@dataclass
class NoJson:
    lock: Callable[[], None] = print


@dataclass(frozen=True)
class Frozen:
    balance: int = 0


class FrozenStruct(msgspec.Struct, frozen=True):
    balance: int = 0


@pytest.mark.parametrize("state", [NoDefault, NoJson])
def test_a_state_has_to_begin_somewhere_and_to_be_written_and_read(state: type) -> None:
    (fault,) = bank(state=state).faults()
    assert "give all of its fields a default, of types that JSON has" in fault


class FrozenAsWell(Frozen):
    pass


@pytest.mark.parametrize("state", [Frozen, FrozenAsWell, FrozenStruct])
def test_a_state_that_cannot_be_changed_is_refused(state: type) -> None:
    (fault,) = bank(state=state).faults()
    assert "is frozen: a handler changes it in place" in fault


def test_a_state_needs_order_an_argument_and_a_name_that_a_topic_may_have() -> None:
    app = App("my bank")

    @app.on("payments", state=Account, order=None)
    async def book(event: Event) -> None: ...

    faults = app.faults()
    assert any("order is None: give 'key'" in fault for fault in faults)
    assert any("its second argument is the key's state" in fault for fault in faults)
    assert any("'my bank' can't be part of one" in fault for fault in faults)
    assert len(faults) == 3


def test_a_state_is_no_larger_than_allowed() -> None:
    form = Form(State(dict, largest=100))
    assert form.write({"a": "x" * 92}) is not None
    with pytest.raises(StateError, match=r"would have 101 bytes, more than 100: .* State\(largest=...\)"):
        form.write({"a": "x" * 93})
