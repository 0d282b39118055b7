"""The contract of the store, kept by all of them: memory, file, and a real Redis."""

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from keygrouping_local.redis_server import RedisServer
from keygrouping_service.errors import Fatal
from keygrouping_service.settings import StoreSettings
from keygrouping_service.store import Conflict, Entry, LogRecord, Store, Unavailable, Unreadable, open_store
from keygrouping_service.testing import until
from redis import Redis

Opener = Callable[[], Store]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(st.integers(-9, 9), min_size=20, max_size=30)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def settings_of(url: str, store_timeout: float = 30.0, **others: Any) -> StoreSettings:
    return StoreSettings(bootstrap_servers="unused:9092", store_url=url, store_timeout=store_timeout, **others)


@pytest.fixture(params=["memory", "file", "redis"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens a store of each kind, empty at first."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        settings = settings_of(f"redis://{server.address}", store_prefix=f"t-{uuid.uuid4().hex}")
    else:
        url = "memory://" if request.param == "memory" else f"file://{tmp_path}/state/store.json"
        settings = settings_of(url)
    return lambda: open_store(settings)


@pytest.fixture
async def store(opener: Opener) -> AsyncIterator[Store]:
    store = opener()
    yield store
    await store.close()


async def test_a_document_has_versions_from_1_on(store: Store) -> None:
    assert await store.get("control") is None
    assert await store.put("control", {"workers": 4}, expected=0) == Entry({"workers": 4}, 1)
    assert await store.put("control", {"workers": 5}, expected=1) == Entry({"workers": 5}, 2)
    assert await store.get("control") == Entry({"workers": 5}, 2)
    assert await store.get("plan") is None


@hypothesis_settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(json_values, st.text(max_size=10))
async def test_any_json_comes_back_as_it_was(opener: Opener, value: Any, name: str) -> None:
    store = opener()
    try:
        current = await store.get(name)
        version = current.version if current else 0
        await store.put(name, value, expected=version, record=LogRecord("log" + name, value, 2))
        assert await store.get(name) == Entry(value, version + 1)
        assert (await store.tail("log" + name, 1)) == [value]
        await store.publish("presence" + name, name, value, 5)
        assert await store.published("presence" + name) == {name: value}
    finally:
        await store.close()


async def test_what_is_given_back_is_the_callers_own(store: Store) -> None:
    value = {"settings": {"a": 1}}
    await store.put("control", value, expected=0)
    value["settings"]["a"] = 2
    entry = await store.get("control")
    assert entry is not None
    entry.value["settings"]["a"] = 3
    assert await store.get("control") == Entry({"settings": {"a": 1}}, 1)


@pytest.mark.parametrize("expected", [0, 2, 7])
async def test_another_version_than_expected_is_a_conflict_and_nothing_changes(store: Store, expected: int) -> None:
    await store.put("plan", 1, expected=0)
    with pytest.raises(Conflict, match="'plan' has version 1: read it again") as conflict:
        await store.put("plan", 2, expected=expected, record=LogRecord("plans", 2, 10))
    assert conflict.value.current == Entry(1, 1)
    assert (await store.get("plan"), await store.tail("plans", 10)) == (Entry(1, 1), [])


async def test_a_document_that_is_not_there_is_told_by_the_conflict(store: Store) -> None:
    with pytest.raises(Conflict, match="does not exist") as conflict:
        await store.put("plan", 2, expected=3)
    assert conflict.value.current is None


async def test_of_many_writers_at_once_one_wins(store: Store) -> None:
    await store.put("plan", -1, expected=0)
    attempts = [store.put("plan", n, expected=1, record=LogRecord("plans", n, 10)) for n in range(8)]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Entry)]
    assert all(isinstance(outcome, Conflict) for outcome in outcomes if outcome != winner)
    assert await store.get("plan") == winner
    assert await store.tail("plans", 10) == [winner.value]


async def test_what_was_read_last_is_given_back_itself_while_it_stands_there(store: Store) -> None:
    assert await store.get("plan", newer_than=Entry({"n": 0}, 1)) is None
    await store.put("plan", {"n": 1}, expected=0)
    first = await store.get("plan")
    assert first == Entry({"n": 1}, 1) and first is not None
    for _ in range(2):
        assert await store.get("plan", newer_than=first) is first
    await store.put("plan", {"n": 2}, expected=1)
    second = await store.get("plan", newer_than=first)
    assert second == Entry({"n": 2}, 2) and second is not None
    assert await store.get("plan", newer_than=second) is second
    assert await store.get("plan", newer_than=first) == second, "it is not what stands there"
    assert await store.get("other", newer_than=second) is None
    await store.put("other", {"n": 1}, expected=0)
    assert await store.get("other", newer_than=second) == Entry({"n": 1}, 1), "versions may go back"
    await store.put("other", {"n": 2}, expected=1, record=LogRecord("plans", {"n": 2}, 1))
    assert await store.get("other", newer_than=Entry({"n": 2}, 2)) == second, "it was never read"


async def test_a_log_keeps_its_newest_entries(store: Store) -> None:
    for n in range(7):
        await store.put("plan", n, expected=n, record=LogRecord("plans", {"n": n}, 3))
    assert await store.tail("plans", 10) == [{"n": 6}, {"n": 5}, {"n": 4}]
    assert await store.tail("plans", 1) == [{"n": 6}]
    assert await store.tail("plans", 0) == await store.tail("others", 10) == []


async def test_presence_is_what_each_member_published_last(store: Store) -> None:
    await store.publish("round-1", "r1", {"keys": [1]}, 5)
    await store.publish("round-1", "r2", None, 5)
    await store.publish("round-1", "r1", {"keys": [2]}, 5)
    await store.publish("round-2", "r1", 3, 5)
    assert await store.published("round-1") == {"r1": {"keys": [2]}, "r2": None}
    await store.withdraw("round-1", "r1")
    await store.withdraw("round-1", "r1")
    await store.withdraw("nowhere", "r1")
    assert await store.published("round-1") == {"r2": None}
    assert await store.published("nowhere") == {}


async def test_what_is_published_expires(store: Store) -> None:
    await store.publish("live", "short", 1, 0.2)
    await store.publish("live", "long", 2, 30)
    assert "long" in await store.published("live")

    async def only_the_long_one() -> bool:
        return await store.published("live") == {"long": 2}

    await until(only_the_long_one)


async def test_what_is_published_again_stays(store: Store) -> None:
    for ttl in (0.05, 30):
        await store.publish("live", "r1", ttl, ttl)
    await asyncio.sleep(0.1)
    assert await store.published("live") == {"r1": 30}


async def test_a_lease_has_one_owner_until_it_ends(store: Store) -> None:
    assert await store.lease("round", "r1", 30)
    assert not await store.lease("round", "r2", 30)
    assert await store.lease("other", "r2", 30)
    assert await store.lease("round", "r1", 0.2), "its owner may renew it, also for a shorter time"

    async def taken_over() -> bool:
        return await store.lease("round", "r2", 30)

    await until(taken_over)
    assert not await store.lease("round", "r1", 30)


async def test_stores_of_one_place_see_each_other_and_other_prefixes_do_not(redis_server: RedisServer) -> None:
    url, prefix = f"redis://{redis_server.address}", uuid.uuid4().hex
    one, two = (open_store(settings_of(url, store_prefix=prefix)) for _ in range(2))
    stranger = open_store(settings_of(url, application=f"{prefix}-other"))
    await one.put("control", 1, expected=0, record=LogRecord("history", 1, 5))
    await one.publish("live", "r1", 1, 5)
    assert (await two.get("control"), await two.tail("history", 5)) == (Entry(1, 1), [1])
    assert await two.published("live") == {"r1": 1}
    assert (await stranger.get("control"), await stranger.published("live")) == (None, {})
    for store in (one, two, stranger):
        await store.close()


async def test_all_keys_but_documents_and_logs_end_by_themselves(redis_server: RedisServer) -> None:
    prefix = uuid.uuid4().hex
    store = open_store(settings_of(f"redis://{redis_server.address}", store_prefix=prefix))
    await store.put("control", 1, expected=0, record=LogRecord("history", 1, 5))
    await store.publish("live", "r1", 1, 600)
    await store.publish("live", "r2", 1, 1)
    await store.lease("round", "r1", 600)
    keys = redis_server.ask("keys", f"{{{prefix}}}:*").split()
    lasting = {key for key in keys if redis_server.ask("pttl", key) == "-1"}
    assert lasting == {f"{{{prefix}}}:document:control", f"{{{prefix}}}:log:history"}
    assert all(300_000 < int(redis_server.ask("pttl", key)) <= 600_000 for key in set(keys) - lasting)
    await store.close()


async def test_a_file_is_found_again_after_a_restart(tmp_path: Path) -> None:
    settings = settings_of(f"file://{tmp_path}/store.json")
    store = open_store(settings)
    for n in range(3):
        await store.put("control", {"n": n}, expected=n, record=LogRecord("history", n, 2))
    await store.close()
    again = open_store(settings)
    assert (await again.get("control"), await again.tail("history", 9)) == (Entry({"n": 2}, 3), [2, 1])
    await again.close()


async def test_a_file_serves_one_process_at_a_time(tmp_path: Path) -> None:
    settings = settings_of(f"file://{tmp_path}/store.json")
    store = open_store(settings)
    with pytest.raises(Fatal, match="another process uses"):
        open_store(settings)
    await store.close()
    await open_store(settings).close()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"documents": [], "logs": {}}', b"\xff", b"[" * 2000])
async def test_a_foreign_or_damaged_file_is_named_kept_beside_and_as_good_as_missing(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "store.json"
    file.write_bytes(content)
    store = open_store(settings_of(f"file://{file}"))
    assert f"{file} is not a valid store file" in caplog.text
    assert await store.get("control") is None
    assert await store.put("control", 1, expected=0) == Entry(1, 1)
    await store.close()
    assert (tmp_path / "store.json.damaged").read_bytes() == content
    again = open_store(settings_of(f"file://{file}"))
    assert (await again.get("control")) == Entry(1, 1)
    await again.close()


def test_a_file_that_can_not_be_kept_beside_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "store.json"
    file.write_bytes(b"notes")
    (tmp_path / "store.json.damaged").mkdir()
    with pytest.raises(Fatal, match=r"store\.json can't be moved"):
        open_store(settings_of(f"file://{file}"))
    assert file.read_bytes() == b"notes"


async def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    store = open_store(settings_of(f"file://{tmp_path}/store.json"))
    await store.put("control", 1, expected=0)
    blocker = tmp_path / "store.json.new"
    blocker.mkdir()
    with pytest.raises(Unavailable, match=r"store\.json can't be written: "):
        await store.put("control", 2, expected=1)
    assert await store.get("control") == Entry(1, 1)
    blocker.rmdir()
    assert await store.put("control", 2, expected=1) == Entry(2, 2)
    await store.close()


async def test_a_disk_that_hangs_costs_no_more_than_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    monkeypatch.setattr("keygrouping_service.store.file.os.fsync", lambda _: hanging.wait(60))
    store = open_store(settings_of(f"file://{tmp_path}/store.json", store_timeout=0.2))
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"is not written within 0\.2 s"):
            await store.put("control", 1, expected=0)
    hanging.set()

    async def written() -> bool:
        return await store.get("control") == Entry(1, 1)

    await until(written)
    await store.close()


async def test_of_what_is_known_nothing_travels(redis_server: RedisServer) -> None:
    store = open_store(settings_of(f"redis://{redis_server.address}", store_prefix=uuid.uuid4().hex))
    await store.put("plan", "x" * 500_000, expected=0)
    known = await store.get("plan")
    assert known is not None
    redis = Redis(port=redis_server.port)
    before = int(redis.info("stats")["total_net_output_bytes"])
    for _ in range(10):
        assert await store.get("plan", newer_than=known) is known
    assert int(redis.info("stats")["total_net_output_bytes"]) - before < 50_000
    redis.close()
    await store.close()


DEEP = json.loads("[" * 300 + "]" * 300)


class Writer:
    """Puts bytes into a store from outside, as another program would."""

    def __init__(self, redis_server: RedisServer, tmp_path: Path) -> None:
        self.prefix = uuid.uuid4().hex
        self.file = tmp_path / "store.json"
        self.urls = {"redis": f"redis://{redis_server.address}", "file": f"file://{self.file}"}
        self.redis = Redis(port=redis_server.port)

    def open(self, kind: str) -> Store:
        return open_store(settings_of(self.urls[kind], store_prefix=self.prefix))

    def key(self, name: str) -> str:
        return f"{{{self.prefix}}}:{name}"


@pytest.fixture
def writer(redis_server: RedisServer, tmp_path: Path) -> Writer:
    return Writer(redis_server, tmp_path)


@pytest.mark.parametrize("kind", ["redis", "file"])
async def test_a_value_that_cannot_be_read_is_told_and_written_over(writer: Writer, kind: str) -> None:
    if kind == "redis":
        writer.redis.hset(writer.key("document:control"), mapping={"version": "3", "value": b"[" * 300 + b"]" * 300})
        writer.redis.rpush(writer.key("log:history"), b"1", b"[" * 300 + b"]" * 300)
    else:
        content = {"documents": {"control": {"version": 3, "value": DEEP}}, "logs": {"history": [1, DEEP]}}
        writer.file.write_text(json.dumps(content))
    store = writer.open(kind)
    entry = await store.get("control")
    assert entry is not None and isinstance(entry.value, Unreadable) and entry.version == 3
    first, second = await store.tail("history", 5)
    assert first == 1 and isinstance(second, Unreadable)
    with pytest.raises(Conflict):
        await store.put("control", {"n": 1}, expected=0)
    assert await store.put("control", {"n": 1}, expected=3, record=LogRecord("history", 2, 1)) == Entry({"n": 1}, 4)
    await store.close()
    again = writer.open(kind)
    assert (await again.get("control"), await again.tail("history", 5)) == (Entry({"n": 1}, 4), [2])
    await again.close()


async def test_a_store_that_was_emptied_or_is_older_again_is_read_again(writer: Writer) -> None:
    store = writer.open("redis")
    for n in range(3):
        await store.put("plan", {"n": n}, expected=n)
    known = await store.get("plan")
    assert known == Entry({"n": 2}, 3)
    writer.redis.delete(writer.key("document:plan"))
    assert await store.get("plan", newer_than=known) is None
    writer.redis.hset(writer.key("document:plan"), mapping={"version": "2", "value": b'{"n":1}'})
    assert await store.get("plan", newer_than=known) == Entry({"n": 1}, 2), "an older state was put back"
    writer.redis.hset(writer.key("document:plan"), mapping={"version": "3", "value": b'{"n":7}'})
    assert await store.get("plan", newer_than=known) == Entry({"n": 7}, 3), "another document has got as far"
    writer.redis.hset(writer.key("document:plan"), mapping={"version": "3", "value": b'{"n":2}'})
    assert await store.get("plan", newer_than=known) is known
    await store.close()


@pytest.mark.parametrize("raw", [b"{", b"", b"[" * 300 + b"]" * 300, b'{"~":["int","|u1","AA=="]}', b"x" * 3000])
async def test_what_cannot_be_read_is_never_what_is_known(writer: Writer, raw: bytes) -> None:
    store = writer.open("redis")
    await store.put("plan", {"n": 1}, expected=0)
    known = await store.get("plan", 2000)
    writer.redis.hset(writer.key("document:plan"), "value", raw)
    for _ in range(2):
        found = await store.get("plan", 2000, known)
        assert found is not None and found is not known and isinstance(found.value, Unreadable)
        known = found
    for version in ("x", "-1", "inf", "1e400"):
        writer.redis.hset(writer.key("document:plan"), mapping={"version": version, "value": b"1"})
        assert await store.get("plan", 2000, known) == Entry(1, 0)
    writer.redis.hdel(writer.key("document:plan"), "value")
    found = await store.get("plan", 2000, Entry(1, 0, "0"))
    assert found is not None and isinstance(found.value, Unreadable)
    writer.redis.delete(writer.key("document:plan"))
    writer.redis.set(writer.key("document:plan"), b"same")
    found = await store.get("plan", 2000, known)
    assert found is not None and isinstance(found.value, Unreadable)
    await store.close()


@pytest.mark.parametrize("version", ["", "x", "-1", "1.5", "99999999999999999999", "inf"])
async def test_a_version_that_is_none_counts_as_0(writer: Writer, version: str) -> None:
    writer.redis.hset(writer.key("document:control"), mapping={"version": version, "value": b"1"})
    writer.file.write_text(json.dumps({"documents": {"control": {"version": version, "value": 1}}, "logs": {}}))
    for kind in ("redis", "file"):
        store = writer.open(kind)
        assert await store.get("control") == Entry(1, 0)
        assert await store.put("control", 2, expected=0) == await store.get("control") == Entry(2, 1)
        await store.close()


async def test_what_is_too_large_is_told_by_its_size_and_never_read(writer: Writer) -> None:
    writer.redis.hset(writer.key("document:control"), mapping={"version": "1", "value": b"1" * 2000})
    writer.redis.rpush(writer.key("log:history"), b"2" * 3000)
    store = writer.open("redis")
    await store.publish("live", "r1", "x" * 4000, 5)
    entry = await store.get("control", 1000)
    assert entry is not None
    found = [entry.value, *await store.tail("history", 5, 1000), (await store.published("live", 1000))["r1"]]
    assert [value.why for value in found] == [f"{size} bytes, more than 1000" for size in (2000, 3000, 4002)]
    await store.close()


@pytest.mark.parametrize("kind", ["SET k v", "RPUSH k v", "SADD k v", "ZADD k 1 v", "HSET k f v"])
async def test_a_key_of_another_type_is_as_good_as_none(writer: Writer, kind: str) -> None:
    store = writer.open("redis")
    command, _, *rest = kind.split()

    def spoil(name: str) -> None:
        writer.redis.delete(writer.key(name))
        writer.redis.execute_command(command, writer.key(name), *rest)  # type: ignore[no-untyped-call]

    for name in ("document:control", "log:history", "presence:live", "lease:round"):
        spoil(name)
    found = await store.get("control")
    assert found is not None and isinstance(found.value, Unreadable) and found.version == 0
    assert all(isinstance(value, Unreadable) for value in await store.tail("history", 5))
    assert all(isinstance(value, Unreadable) for value in (await store.published("live")).values())
    await store.withdraw("live", "r1")
    await store.put("control", 1, expected=0, record=LogRecord("history", 1, 5))
    assert await store.get("control") == Entry(1, 1)
    assert await store.lease("round", "r1", 5), "a lease without an end is nobody's"
    assert not await store.lease("round", "r2", 5)
    for name in ("presence:live", "presence-ends:live"):
        await store.publish("live", "r1", 1, 5)
        spoil(name)
        await store.published("live")
        await store.publish("live", "r1", 2, 5)
        assert (await store.published("live"))["r1"] == 2
    await store.close()


async def test_what_nobody_has_published_is_gone_with_the_next_look(writer: Writer) -> None:
    store = writer.open("redis")
    await store.publish("live", "r1", 1, 5)
    writer.redis.hset(writer.key("presence:live"), "without end", b"1")
    writer.redis.zadd(writer.key("presence-ends:live"), {"never": float("inf")})
    writer.redis.hset(writer.key("presence:live"), "never", b"1")
    assert await store.published("live") == {"r1": 1}
    await store.publish("live", "r2", 2, 5)
    assert await store.published("live") == {"r1": 1, "r2": 2}
    await store.close()
