"""Laws of the control document: what it refuses, who wins, and that nothing of it is lost."""

import asyncio
from typing import Any

import pytest
from keygrouping_router.control.document import DOCUMENT, STARTS, STARTS_SECONDS, ControlDocument
from keygrouping_router.control.orders import GroupingChange, ShadowChange, ShadowGrouping, WorkersChange
from keygrouping_router.control.state import Control
from keygrouping_router.control.watched_store import WatchedStore
from keygrouping_router.errors import Degraded, Refused, Stale
from keygrouping_service.store import Entry, Unanswered, Unavailable
from keygrouping_service.store.memory import MemoryStore

from ..planes import FakeTime, Unsteady

MOST = 20
HUGE = ShadowGrouping(name="consistent", settings={"capacities": [1, 10**30]})


def environment(**changes: Any) -> Control:
    return Control(**{"grouping": "w-choices", "workers": 4, **changes})


def document_in(
    store: MemoryStore, control: Control | None = None, *, most: int = MOST, replica: str = "r1"
) -> ControlDocument:
    return ControlDocument(
        watched(store), control or environment(), most, lambda: 1000.0, replica=replica, try_out=any_will_do
    )


def watched(store: MemoryStore) -> WatchedStore:
    return WatchedStore(store, lambda: 1000.0)


async def any_will_do(control: Control) -> None:
    pass


def epoch() -> int:
    return 7


async def begun(store: MemoryStore, control: Control | None = None, **changes: Any) -> ControlDocument:
    document = document_in(store, control, **changes)
    await document.refresh(epoch)
    return document


async def set_workers(document: ControlDocument, workers: int, expected: int | None = None) -> None:
    change = WorkersChange(workers=workers)
    await document.change(
        "workers", lambda now: now.with_workers(change, MOST), expected=expected, by="api", highest_epoch=epoch
    )


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda c: c.with_thresholds({"speed": 1}, partial=True), "unknown setting speed; w-choices has"),
        (
            lambda c: c.with_thresholds({"speed": 1, "threshold": 9}, partial=True),
            r"unknown setting speed; w-choices has [^;]+; grouping 'w-choices': threshold must be",
        ),
        (lambda c: c.with_thresholds({"threshold": 9}, partial=True), "threshold must be from|threshold must be above"),
        (lambda c: c.with_thresholds({"shared": True}, partial=True), "use sharing=shared"),
        (lambda c: c.with_thresholds({"half_life": 2**53}, partial=True), "half_life must be at most 9007199254740991"),
        (lambda c: c.with_grouping(GroupingChange(name="fish", settings={"epoch_events": 10**400})), "at most 9007"),
        (lambda c: c.with_shadow(ShadowChange(groupings=[HUGE])), "capacities must be at most 9007"),
        (lambda c: c.with_grouping(GroupingChange(name="magic")), "unknown grouping 'magic'"),
        (lambda c: c.with_grouping(GroupingChange(name="key", settings={"a": 1})), "unknown setting a"),
        (lambda c: c.with_workers(WorkersChange(workers=21), MOST), "at most 20, the partitions"),
        (lambda c: c.with_workers(WorkersChange(workers=2, capacities={20: 2.0}), MOST), r"workers \[20\]"),
        (lambda c: c.with_shadow(ShadowChange(groupings=[ShadowGrouping(name="magic")])), "unknown grouping"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(change: Any, fault: str) -> None:
    with pytest.raises(Refused, match=fault) as refused:
        change(environment())
    assert "\n" not in str(refused.value)


def test_thresholds_are_set_as_a_whole_or_in_part() -> None:
    control = environment(settings={"threshold": 0.5, "half_life": None})
    assert control.with_thresholds({"threshold": 0.3}, partial=True).settings == {"threshold": 0.3, "half_life": None}
    assert control.with_thresholds({"threshold": 0.3}, partial=False).settings == {"threshold": 0.3}


def test_the_interval_of_a_grouping_is_that_of_the_routers_where_they_make_the_plans() -> None:
    alone = environment(grouping="mixed").with_thresholds({"interval": 5}, partial=True)
    assert (alone.interval, alone.routing_settings["interval"]) == (None, 5)
    together = alone.with_grouping(GroupingChange(name="mixed", sharing="shared", settings={}))
    assert together.interval is None
    together = together.with_thresholds({"interval": 5}, partial=True)
    assert (together.interval, together.routing_settings["interval"]) == (5, None)
    for wrong in (0.05, 4000):
        with pytest.raises(Refused, match=r"interval must be from 0\.1 to 3600 s for routers"):
            together.with_thresholds({"interval": wrong}, partial=True)


def test_level_fill_is_planned_in_rounds_even_alone() -> None:
    control = environment(grouping="level-fill", sharing="independent")
    assert control.planned_in_rounds and control.routing_settings == {"interval": None}


def test_capacities_go_to_groupings_that_take_account_of_them() -> None:
    change = WorkersChange(workers=3, capacities={1: 2.0})
    assert environment(grouping="consistent").with_workers(change, MOST).routing_settings == {"capacities": [1.0, 2.0]}
    assert environment().with_workers(change, MOST).routing_settings == {}


def test_capacities_of_more_workers_than_routed_has_partitions_now_are_no_reason_to_refuse_another_w() -> None:
    """As after `routed` was created again with fewer partitions: W would follow nobody any more."""
    before = environment(capacities={1: 2.0, MOST + 5: 3.0})
    after = before.with_workers(WorkersChange(workers=4), MOST)
    assert (after.workers, after.capacities) == (4, before.capacities)


def test_only_what_can_be_shared_is_planned_in_rounds() -> None:
    for grouping, together in (("key", False), ("pkg", False), ("mixed", True), ("dkg", True), ("w-choices", True)):
        control = environment(grouping=grouping, sharing="shared")
        assert control.planned_in_rounds is together
        assert not control.with_grouping(GroupingChange(name=grouping, sharing="independent")).planned_in_rounds
        assert not control.with_grouping(GroupingChange(name=grouping, observe_only=True)).planned_in_rounds


async def test_the_first_start_writes_what_the_environment_says_and_later_ones_follow() -> None:
    store = MemoryStore()
    first = await begun(store)
    await set_workers(first, 6)
    later = await begun(store)
    assert (first.version, later.version, later.control) == (2, 2, first.control)
    assert later.control.workers == 6, "the document wins"


async def test_what_has_changed_in_the_environment_wins_and_nothing_else() -> None:
    store = MemoryStore()
    first = await begun(store)
    await set_workers(first, 6)
    later = await begun(store, environment(grouping="dkg"))
    assert (later.control.grouping, later.control.workers) == ("dkg", 6)
    again = await begun(store, environment(grouping="dkg"))
    assert again.version == later.version, "once"
    back = await begun(store, environment(grouping="dkg", workers=5))
    assert back.control.workers == 5
    entries = await back.history(10)
    assert [(entry.what, entry.by) for entry in entries] == [
        ("workers", "settings"),
        ("grouping", "settings"),
        ("workers", "api"),
    ]
    assert entries[1].before["name"] == "w-choices" and entries[1].after["name"] == "dkg"


async def test_what_has_changed_in_the_environment_is_not_lost_if_the_store_goes_just_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    await begun(store)

    async def goes(*_: object, **__: object) -> None:
        raise Unavailable("it is away")

    later = document_in(store, environment(grouping="dkg", workers=5))
    with monkeypatch.context() as patch:
        patch.setattr(store, "put", goes)
        await later.refresh(epoch)
        assert later.control.grouping == "w-choices"
    await later.refresh(epoch)
    assert (later.control.grouping, later.control.workers) == ("dkg", 5)
    assert (await begun(store, environment(grouping="dkg", workers=5))).version == later.version == 3


async def test_an_answer_that_comes_late_does_not_take_a_change_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    document = await begun(store)
    read, late = store.get, asyncio.Event()

    async def slow(name: str, most: int, newer_than: Entry | None = None) -> Entry | None:
        entry = await read(name, most, newer_than)
        monkeypatch.setattr(store, "get", read)
        await late.wait()
        return entry

    monkeypatch.setattr(store, "get", slow)
    follows = asyncio.create_task(document.refresh(epoch))
    await asyncio.sleep(0)
    changes = asyncio.create_task(set_workers(document, 6))
    for _ in range(10):
        await asyncio.sleep(0)
    late.set()
    await asyncio.gather(follows, changes)
    assert (document.control.workers, document.version) == (6, 2)


async def test_one_of_many_writers_wins_at_a_time_and_none_is_lost() -> None:
    store = MemoryStore()
    documents = [await begun(store) for _ in range(4)]

    def widen(control: Control) -> Control:
        return control.with_workers(WorkersChange(workers=control.workers + 1), MOST)

    async def change(document: ControlDocument) -> None:
        await document.change("workers", widen, expected=None, by="api", highest_epoch=epoch)

    await asyncio.gather(*(change(document) for document in documents for _ in range(2)))
    await documents[0].refresh(epoch)
    assert (documents[0].control.workers, documents[0].version) == (12, 9)
    assert [entry.version for entry in await documents[0].history(99)] == list(range(9, 1, -1))


async def test_a_change_for_another_version_is_stale_and_one_that_changes_nothing_is_none() -> None:
    document = await begun(MemoryStore())
    with pytest.raises(Stale, match="version is 1, not 3"):
        await set_workers(document, 5, expected=3)
    await set_workers(document, 4, expected=1)
    assert document.version == 1
    await set_workers(document, 5, expected=1)
    assert document.version == 2


async def test_the_base_is_above_every_epoch_and_a_shadow_leaves_it() -> None:
    document = await begun(MemoryStore())
    await set_workers(document, 5)
    assert document.control.base == 8
    shadow = ShadowChange(groupings=[ShadowGrouping(name="pkg")])
    await document.change(
        "shadow", lambda now: now.with_shadow(shadow), expected=None, by="api", highest_epoch=lambda: 50
    )
    assert document.control.base == 8
    await set_workers(document, 6)
    assert document.control.base == 9


async def test_a_store_that_lost_everything_gets_it_back() -> None:
    document = await begun(MemoryStore())
    await set_workers(document, 7)
    document._store = watched(empty := MemoryStore())
    await document.refresh(epoch)
    assert (document.control.workers, document.version, document.control.base) == (7, 3, 8), "and nobody is rerouted"
    await set_workers(document, 8, expected=3)
    assert [entry.version for entry in await document.history(9)] == [4]
    assert (await begun(empty, environment(workers=4))).version == 4


async def test_what_a_replica_has_seen_wins_over_an_environment_that_was_faster() -> None:
    document, other = await begun(store := MemoryStore()), document_in(store)
    await set_workers(document, 7)
    await set_workers(document, 8)
    await other.refresh(epoch)
    empty = MemoryStore()
    fresh = await begun(empty, environment(grouping="dkg"))
    document._store = other._store = watched(empty)
    await set_workers(fresh, 5)
    for replica in (document, other, fresh):
        await replica.refresh(lambda: 20)
    assert {replica.version for replica in (document, other, fresh)} == {4}
    assert {(replica.control.grouping, replica.control.workers) for replica in (document, other, fresh)} == {
        ("w-choices", 8)
    }
    assert document.control.base == 21 and document.control.generation > 0, "no plan of the other grouping fits"


async def test_two_that_know_different_documents_of_one_version_agree_on_one() -> None:
    one = await begun(store := MemoryStore())
    other = document_in(store)
    await other.refresh(epoch)
    await set_workers(one, 7)
    other._store = watched(MemoryStore())
    await set_workers(other, 9)
    assert (one.version, other.version) == (2, 3)
    one._store = other._store
    await set_workers(one, 6)
    await other.refresh(epoch)
    assert (one.control, one.version) == (other.control, 4)
    lost = MemoryStore()
    one._store = other._store = watched(lost)
    await one.refresh(epoch)
    for _ in range(2):
        await other.refresh(epoch)
        await one.refresh(epoch)
    assert (one.version, one.control.workers) == (other.version, other.control.workers) == (5, 6)


async def test_an_old_replica_that_restarts_in_an_update_changes_nothing() -> None:
    store, old, new = MemoryStore(), environment(workers=4), environment(workers=6, grouping="dkg")
    starts = [("old-1", old), ("old-2", old), ("new-1", new), ("old-1", old), ("new-2", new), ("old-2", old)]
    for replica, control in starts:
        document = await begun(store, control, replica=replica)
    assert (document.control.grouping, document.control.workers, document.version) == ("dkg", 6, 3), (
        "the grouping and W, once each"
    )


async def test_an_update_can_be_undone() -> None:
    store = MemoryStore()
    for workers, replica in ((4, "a"), (6, "b"), (5, "c"), (4, "d"), (6, "d"), (4, "d")):
        assert (await begun(store, environment(workers=workers), replica=replica)).control.workers == workers


async def test_what_a_replica_began_with_is_known_while_it_lives_and_for_an_hour() -> None:
    time = FakeTime()
    store = MemoryStore(lambda: time.passed)
    old = ControlDocument(
        watched(store), environment(workers=4), MOST, lambda: time.passed, replica="old", try_out=any_will_do
    )
    for _ in range(100):
        await old.refresh(epoch)
        time.passed += STARTS_SECONDS / 20
    await begun(store, environment(workers=6), replica="new")
    assert (await begun(store, environment(workers=4), replica="old")).control.workers == 6
    time.passed += 2 * STARTS_SECONDS
    assert await store.published(STARTS) == {}


async def test_a_change_that_may_have_been_made_is_told_from_one_that_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Unsteady(FakeTime())
    document = await begun(store)
    put = store.put

    async def unanswered(*given: Any, **named: Any) -> Entry:
        await put(*given, **named)
        raise Unanswered("it gives no answer")

    monkeypatch.setattr(store, "put", unanswered)
    with pytest.raises(Degraded, match="not known whether this was changed: GET it before you send it again; it gives"):
        await set_workers(document, 6)
    assert document.version == 1
    await document.refresh(epoch)
    assert (document.control.workers, document.version) == (6, 2)
    store.away = True
    with pytest.raises(Degraded, match=r"nothing was changed, .* it is away"):
        await set_workers(document, 7)


async def test_a_document_that_cannot_be_followed_here_is_left_alone_until_the_next_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    document = await begun(store)
    foreign = {"grouping": "from the future", "workers": 4, "generation": 5, "base": 30}
    await store.put(DOCUMENT, foreign, expected=1)
    for _ in range(3):
        await document.refresh(epoch)
    assert document.control.grouping == "w-choices"
    assert await store.get(DOCUMENT) == Entry(foreign, 2), "another version of the router may know it"
    assert [record.getMessage().count("unknown grouping 'from the future'") for record in caplog.records] == [1]
    await set_workers(document, 7, expected=1)
    again = await begun(store)
    assert (again.control.workers, again.version) == (document.control.workers, document.version) == (7, 4)
    assert document.control.base > 30 and document.control.generation > 5, "no plan of the other grouping fits"


@pytest.mark.parametrize(
    ("stored", "followed", "told"),
    [
        (
            {"shadow": [{"name": "pkg"}, {"name": "magic"}, {"name": "off-greedy"}]},
            ("dkg", 1),
            ["the comparison with magic: unknown grouping", "the comparison with off-greedy: off-greedy has to know"],
        ),
        ({"settings": {"speed": 1}}, ("dkg", 0), ["the settings of dkg: grouping 'dkg': unknown setting speed"]),
        (
            {"grouping": "off-greedy"},
            ("w-choices", 0),
            ["the grouping off-greedy (w-choices routes instead): off-greedy has to know the whole stream"],
        ),
        (
            {"grouping": "from the future", "shadow": [{"name": "pkg"}]},
            ("w-choices", 0),
            ["the comparison with pkg", "the grouping from the future (w-choices routes instead): unknown grouping"],
        ),
    ],
)
async def test_a_router_starts_with_what_it_can_use_of_a_document_and_says_what_it_left_out(
    caplog: pytest.LogCaptureFixture, stored: dict[str, Any], followed: tuple[str, int], told: list[str]
) -> None:
    store = MemoryStore()
    configured = {
        name: getattr(environment(), name)
        for name in ("grouping", "settings", "sharing", "observe_only", "workers", "auto")
    }
    written = {"grouping": "dkg", "workers": 7, "base": 30, "configured": configured, **stored}
    await store.put(DOCUMENT, written, expected=0)
    document = await begun(store)
    control = document.control
    assert (control.workers, (control.grouping, len(control.shadow)), document.version) == (7, followed, 1)
    assert [line[: len(start)] for line, start in zip(document.left_out, told, strict=True)] == told
    assert all(any(start in record.getMessage() for record in caplog.records) for start in told)
    assert await store.get(DOCUMENT) == Entry(written, 1), "another version of the router may know it"
    await document.refresh(epoch)
    assert document.left_out and len(caplog.records) == len(told), "told once"
    await set_workers(document, 8)
    assert (await begun(store)).left_out == () and document.left_out == ()


async def test_more_workers_than_partitions_are_not_routed_to() -> None:
    store = MemoryStore()
    await begun(store, environment(workers=MOST))
    fewer = await begun(store, environment(workers=MOST), most=8)
    assert fewer.control.workers == 8
    await fewer.change(
        "thresholds",
        lambda now: now.with_thresholds({"threshold": 0.5}, partial=True),
        expected=None,
        by="api",
        highest_epoch=epoch,
    )
    assert (await begun(store, environment(workers=MOST))).control.workers == MOST, "what is wanted is kept"
    fewer.most_workers = 12
    assert fewer.control.workers == 12


async def test_without_the_store_the_environment_counts_and_changes_are_not_taken() -> None:
    store = Unsteady(FakeTime())
    store.away = True
    document = document_in(store)
    with pytest.raises(Degraded, match="it is away"):
        await set_workers(document, 5)
    with pytest.raises(Degraded, match="it is away"):
        await document.history(5)
    assert (document.control.workers, document.version) == (4, 0)
