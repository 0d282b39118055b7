"""States that merge: what calls leave becomes one state of each key, whatever is merged with what, and when."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app import App, AppError, Event, Output, State
from keygrouping_app.codecs import Topic
from keygrouping_app.events import Outgoing, Record, Source, UndecodableError
from keygrouping_app.handlers import Handler
from keygrouping_app.kept import UnusableStateError
from keygrouping_app.partials import Merger, Partials, merger_of, partial_of
from keygrouping_app.scheduler import Scheduler
from keygrouping_app.state import Form
from merging_handlers import Visits, merge, visit


def views(**options: Any) -> App:
    app = App("site")
    app.on("views", split=True, **{"state": State(Visits, merge=merge), "retries": 0, **options})(visit)
    return app


def view(page: str | None, by: str, **fields: Any) -> Event:
    return Event.of("views", {"by": by, **fields}, key=page)


def handler(state: State, key: Any = None) -> Handler:
    app = App("site")
    app.on("views", split=True, state=state, key=key)(visit)
    (found,) = app.handlers
    return app._named(found)


async def test_what_calls_leave_is_merged_into_the_state_of_their_key() -> None:
    tested = await views().test([view("a", "x"), view("b", "x", number=2), view("a", "y", number=3), view("a", "x")])
    assert tested.states["views"] == {"a": Visits(3, {"x": 0, "y": 3}), "b": Visits(1, {"x": 2})}


async def test_a_state_that_is_given_is_what_the_first_is_merged_into() -> None:
    before = {"views": {"a": Visits(10, {"z": 7})}}
    tested = await views().test([view("a", "x", number=1)], states=before)
    assert tested.states["views"] == {"a": Visits(11, {"z": 7, "x": 1})}


async def test_a_call_that_fails_leaves_nothing() -> None:
    tested = await views().test([view("a", "x"), view("a", "y", fails=True)])
    assert tested.states["views"] == {"a": Visits(1, {"x": 0})}
    assert [failure.reason for _, failure in tested.dead] == ["failed"]


async def test_each_call_begins_with_a_new_state_and_calls_of_a_key_run_side_by_side() -> None:
    app, found = App("site"), list[int]()

    @app.on("views", split=True, state=State(Visits, merge=merge), concurrency=4)
    async def see(_: Event, visits: Visits) -> None:
        found.append(visits.count)
        await asyncio.sleep(1)
        visits.count += 1

    tested = await app.test([view("a", "x")] * 8)
    assert found == [0] * 8
    # Two after one another; what a busy machine takes for all else counts, too.
    assert tested.seconds == pytest.approx(2, abs=0.9)
    assert tested.states["views"] == {"a": Visits(8)}


async def test_what_is_published_comes_behind_what_calls_have_returned() -> None:
    def publish(key: str, visits: Visits) -> list[Output]:
        return [Output("pages", visits.count, key=key)]

    app = views(state=State(Visits, merge=merge, publish=publish))
    tested = await app.test([view("a", "x", to="log"), view("b", "x"), view("a", "y")])
    assert [(each.topic, each.key, each.value) for each in tested.outputs] == [
        ("log", None, b'""'),
        ("pages", b"a", b"2"),
        ("pages", b"b", b"1"),
    ]


async def test_keys_by_field_are_published_and_told_as_they_are() -> None:
    published: list[Any] = []

    def publish(key: Any, visits: Visits) -> None:
        published.append((key, visits.count))

    app = views(state=State(Visits, merge=merge, publish=publish), key="/id")
    tested = await app.test([view(None, "x", id=each) for each in (7, 7.0, 8)])
    assert published == [(7, 2), (8, 1)]
    assert list(tested.states["views"]) == [7, 8]


async def test_an_event_that_can_have_no_state_is_a_dead_letter() -> None:
    tested = await views().test([view(None, "x"), view("a", "x")])
    assert [failure.reason for _, failure in tested.dead] == ["invalid_state"]
    assert tested.states["views"] == {"a": Visits(1, {"x": 0})}


async def test_a_state_that_a_new_one_does_not_keep_is_told_in_a_test() -> None:
    def halve(left: Visits, right: Visits) -> None:
        left.count = (left.count + right.count) // 2

    with pytest.raises(AppError, match=r"merged into a new one, .*count=1.* becomes .*count=0"):
        await views(state=State(Visits, merge=halve)).test([view("a", "x")])


async def test_a_merge_that_keeps_the_last_one_is_told_in_a_test() -> None:
    def replace(left: Visits, right: Visits) -> None:
        left.count, left.latest = right.count, right.latest

    with pytest.raises(AppError, match=r"a new one merged into it, .*count=1.* becomes .*count=0"):
        await views(state=State(Visits, merge=replace)).test([view("a", "x")])


async def test_what_can_not_be_published_is_a_dead_letter_and_other_keys_go_on() -> None:
    def publish(key: str, visits: Visits) -> Output:
        if key == "b":
            raise ValueError("not that one")
        return Output("pages", visits.count, key=key)

    app = views(state=State(Visits, merge=merge, publish=publish), retries=2)
    tested = await app.test([view("a", "x"), view("b", "x"), view("b", "y"), view("a", "y")])
    assert len(tested.handled) == 4
    assert [(event.topic, event.key, failure.reason) for event, failure in tested.dead] == [
        ("site.views.partials", "b", "failed"),
        ("site.views.partials", "b", "failed"),
    ]
    assert [(each.key, each.value) for each in tested.outputs] == [(b"a", b"2")]
    assert tested.states["views"] == {"a": Visits(2, {"x": 0, "y": 0})}
    assert tested.retries == 4


async def test_a_merged_state_that_is_too_large_is_a_dead_letter() -> None:
    app = views(state=State(Visits, merge=merge, largest=40))
    tested = await app.test([view("a", name) for name in ("x" * 8, "y" * 8, "x" * 8)])
    assert [(event.topic, failure.reason) for event, failure in tested.dead] == [
        ("site.views.partials", "invalid_state")
    ]
    assert tested.states["views"] == {"a": Visits(2, {"x" * 8: 0})}


async def test_what_can_not_be_merged_is_a_dead_letter() -> None:
    def refuse(left: Visits, right: Visits) -> None:
        if left.count + right.count > 2:
            raise ValueError("too many")
        merge(left, right)

    tested = await views(state=State(Visits, merge=refuse)).test([view("a", "x")] * 3)
    assert [failure.reason for _, failure in tested.dead] == ["failed"]
    assert tested.states["views"] == {"a": Visits(2, {"x": 0})}


async def test_a_publish_that_nobody_awaits_ends_a_test_as_it_ends_the_app() -> None:
    async def publish(key: str, visits: Visits) -> None: ...

    with pytest.raises(AppError, match="returns a coroutine, which nobody awaits"):
        await views(state=State(Visits, merge=merge, publish=publish)).test([view("a", "x")])


@dataclass
class Total:
    total: int = 0
    names: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"state": dict}, "split is True: give State(merge=...) with it"),
        ({"state": State(Visits, merge=lambda left, _: left)}, "merge returns Visits("),
        ({"state": State(Visits, merge=lambda _: None)}, "merge fails for two new states"),  # type: ignore[arg-type,misc]
        ({"state": State(Total, merge=lambda left, _: left.names.append("x"))}, "merge makes something else"),
        ({"state": State(Visits, merge=merge), "batch": True}, "batch is True: give none with split and state"),
        ({"state": State(Visits, merge=merge), "split": False}, "give it with split=True only"),
        ({"state": State(Visits, publish=merge), "split": False}, "state.publish is for states that merge"),
    ],
    ids=["none", "returns", "fails", "not new", "batch", "not split", "nothing to publish"],
)
def test_what_can_not_merge_is_told_at_the_start(options: dict[str, Any], fault: str) -> None:
    app = App("site")
    app.on("views", **{"split": True, **options})(visit)
    (only,) = app.faults()
    assert fault in only


def test_no_other_handler_takes_what_is_to_be_merged() -> None:
    app = views()
    app.on("site.views.partials")(visit)
    assert any("that is where the app merges states" in each for each in app.faults())


def test_processes_need_not_know_how_states_are_merged() -> None:
    app = views(state=State(Visits, merge=lambda left, right: merge(left, right)), processes=2)
    assert app.faults() == []


def test_the_names_of_its_topics_are_part_of_what_is_checked() -> None:
    app = App("s" * 100)
    app.on("v" * 40, split=True, state=State(Visits, merge=merge))(visit)
    assert any("its states are kept in a topic named by app and topic" in each for each in app.faults())


def left_by(partials: Partials, key: bytes, state: State, visits: Visits, time: int) -> list[Outgoing]:
    """What a call would leave."""
    source = Source(Topic("views"))
    event = partial_of(Record("views", 0, 0, time, key, b"{}"), source)
    scheduler = Scheduler(concurrency=1)
    scheduler.offer([event])
    (call,) = scheduler.start_all(0.0)
    call.after = Form(state).write(visits)
    return partials.of(call)


changes = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from("xyz"), st.integers(0, 9), st.integers(0, 10**12)),
    max_size=30,
)


@given(changes=changes, cuts=st.lists(st.integers(0, 30), max_size=4), data=st.data())
def test_whatever_goes_together_becomes_the_same_states(changes: Any, cuts: list[int], data: Any) -> None:
    """By transactions as they are cut, their partials merged in any order of transactions of other members."""
    state = State(Visits, merge=merge)
    partials = Partials(handler(state))
    merger = Merger(state, "visit", "views", by_field=False)
    expected: dict[bytes, tuple[int, dict[str, int]]] = {}
    records: list[Outgoing] = []
    for key, visitor, number, at in changes:
        count, latest = expected.get(key, (0, {}))
        expected[key] = count + 1, {**latest, visitor: max(number, latest.get(visitor, 0))}
        records += left_by(partials, key, state, Visits(1, {visitor: number}), at)
    edges = sorted({0, len(records), *(min(each, len(records)) for each in cuts)})
    written = [partials.together(records[start:end]) for start, end in pairwise(edges)]
    for transaction in written:
        assert max(Counter(each.key for each in transaction).values(), default=0) <= 1
    found: dict[bytes, Visits] = {}
    source = Source(merger_of(handler(state)).topic)
    for each in data.draw(st.permutations([each for transaction in written for each in transaction])):
        raw = Record(each.topic, 0, 0, 5, each.key, each.value, each.headers)
        asyncio.run(merger([partial_of(raw, source)], found.setdefault(each.key, Visits())))
    assert {key: (each.count, each.latest) for key, each in found.items()} == expected
    newest = max((at for *_, at in changes), default=0)
    times = [partial_of(Record("t", 0, 0, 5, b"", b"", each.headers), source).time for each in chain(*written)]
    assert max(times, default=0) == newest


def test_other_records_of_a_transaction_stay_as_they_are_and_what_cancels_out_is_not_written() -> None:
    def sum_up(left: Total, right: Total) -> None:
        left.total += right.total

    state = State(Total, merge=sum_up)
    partials = Partials(handler(state))
    mine = [Outgoing(partials.topic, None, -1, b"a", Form(state).write(Total(each)) or b"", ()) for each in (3, -3)]
    other = Outgoing("views", None, 1, b"a", b"1")
    assert partials.together([mine[0], other, mine[1]]) == [other]


def test_what_can_not_be_merged_goes_one_by_one_so_that_the_merger_tells_which_it_is() -> None:
    def refuse(left: Total, right: Total) -> None:
        if left.total and right.total:
            raise ValueError("too much")
        left.total += right.total

    state = State(Total, merge=refuse)
    partials = Partials(handler(state))
    mine = [Outgoing(partials.topic, None, -1, b"a", Form(state).write(Total(each)), ()) for each in (1, 2)]
    assert partials.together(mine) == mine


def test_together_they_are_no_larger_than_a_state_may_be() -> None:
    def join(left: Total, right: Total) -> None:
        left.names += right.names

    state = State(Total, merge=join, largest=100)
    partials = Partials(handler(state))
    mine = [Outgoing(partials.topic, None, -1, b"a", Form(state).write(Total(0, ["x" * 60])), ())] * 2
    assert partials.together(mine) == mine


async def test_a_partial_of_an_earlier_version_is_upgraded_and_one_of_a_newer_program_stops_it() -> None:
    state = State(
        Total,
        merge=lambda left, right: left.names.extend(right.names),
        version=2,
        upgrade=lambda old, _: {"names": [old]},
    )
    merger, source = Merger(state, "visit", "views", by_field=False), Source(Topic("partials"))

    def read(version: bytes) -> Event:
        return partial_of(Record("partials", 0, 0, 0, b"a", b'"x"', (("keygrouping-version", version),)), source)

    total = Total()
    await merger([read(b"1")], total)
    assert total.names == ["x"]
    with pytest.raises(UnusableStateError, match="run the newer"):
        await merger([read(b"3")], total)
    with pytest.raises(UndecodableError, match="can't be read"):
        await merger([read(b"2")], total)
