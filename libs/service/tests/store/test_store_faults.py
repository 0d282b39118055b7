"""What a Redis does to its callers: dead, frozen, behind a password, TLS, sentinels or in a cluster."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keygrouping_local.ports import free_ports
from keygrouping_local.redis_server import MISSING, RedisServer, installed
from keygrouping_service.settings import StoreSettings
from keygrouping_service.store import Entry, LogRecord, Store, Unanswered, Unavailable, open_store
from keygrouping_service.testing import until
from pydantic import ValidationError

pytestmark = pytest.mark.skipif(not installed(), reason=MISSING)

LONG_TIMEOUT = 30.0
TIMEOUT = 1.0
"""Of stores whose server is frozen."""


def settings_of(url: str, store_timeout: float = LONG_TIMEOUT, /, **others: Any) -> StoreSettings:
    return StoreSettings(bootstrap_servers="unused:9092", store_url=url, store_timeout=store_timeout, **others)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always") as running:
        yield running


async def works(store: Store) -> bool:
    try:
        return await store.lease("probe", "r1", 1)
    except Unavailable:
        return False


async def use(store: Store) -> None:
    """A round through everything that a store does."""
    await store.put("control", {"workers": 4}, expected=0, record=LogRecord("history", 1, 5))
    await store.publish("live", "r1", 1, 60)
    assert await store.get("control") == Entry({"workers": 4}, 1)
    assert (await store.tail("history", 5), await store.published("live")) == ([1], {"r1": 1})
    assert await store.lease("round", "r1", 5)
    await store.withdraw("live", "r1")


CALLS: list[Callable[[Store], Awaitable[Any]]] = [
    lambda store: store.get("control"),
    lambda store: store.put("control", 1, expected=0),
    lambda store: store.tail("history", 3),
    lambda store: store.publish("live", "r1", 1, 5),
    lambda store: store.published("live"),
    lambda store: store.withdraw("live", "r1"),
    lambda store: store.lease("round", "r1", 5),
]


async def refusals(store: Store) -> set[str]:
    """What all calls, made at once, are refused with."""
    outcomes = await asyncio.gather(*(call(store) for call in CALLS), return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes), outcomes
    lines = {str(outcome) for outcome in outcomes}
    assert all("\n" not in line for line in lines)
    return lines


async def test_a_server_that_died_is_told_of_at_once_and_found_again(server: RedisServer) -> None:
    store = open_store(settings_of(f"redis://{server.address}"))
    await use(store)
    server.kill()
    for line in await refusals(store):
        assert line.startswith(f"Redis at {server.address} can't be used: ")
    server.start()
    await until(lambda: works(store))
    assert await store.get("control") == Entry({"workers": 4}, 1)
    assert await store.put("control", 2, expected=1) == Entry(2, 2)
    await store.close()


async def test_a_server_that_accepts_and_never_answers_costs_no_more_than_the_timeout(server: RedisServer) -> None:
    store = open_store(settings_of(f"redis://{server.address}", TIMEOUT))
    await until(lambda: works(store))
    server.freeze()
    async with asyncio.timeout(20 * TIMEOUT):
        for _ in range(2):
            assert await refusals(store) == {f"Redis at {server.address} gives no answer within 1 s"}
    server.thaw()
    await until(lambda: works(store))
    await store.close()


async def test_a_change_that_was_sent_is_told_from_one_that_was_not(server: RedisServer) -> None:
    store = open_store(settings_of(f"redis://{server.address}"))
    impatient = open_store(settings_of(f"redis://{server.address}", TIMEOUT))
    await until(lambda: works(impatient))
    server.freeze()
    with pytest.raises(Unanswered):
        await impatient.put("control", 1, expected=0)
    server.thaw()
    await impatient.close()

    async def is_there() -> bool:
        return await store.get("control") == Entry(1, 1)

    await until(is_there)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(Unavailable, match="maxmemory") as refused:
        await store.put("control", 2, expected=1)
    assert not isinstance(refused.value, Unanswered)
    server.kill()
    assert not await works(store), "what was open breaks"
    with pytest.raises(Unavailable) as unheard:
        await store.put("control", 2, expected=1)
    assert not isinstance(unheard.value, Unanswered)
    await store.close()


async def test_closing_does_not_wait_for_a_frozen_server(server: RedisServer) -> None:
    store = open_store(settings_of(f"redis://{server.address}"))
    assert await works(store)
    server.freeze()
    async with asyncio.timeout(LONG_TIMEOUT / 2):
        await store.close()


async def test_a_wrong_password_is_told_and_a_new_one_in_the_file_is_used(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong\n")
    with RedisServer(tmp_path / "redis", "--requirepass", "hush") as server:
        without = open_store(settings_of(f"redis://{server.address}"))
        (line,) = await refusals(without)
        assert "Authentication required" in line and "KEYGROUPING_STORE_PASSWORD" in line
        settings = settings_of(f"redis://{server.address}", store_password_file=file)
        assert "wrong" not in repr(settings_of("memory://", store_password="wrong"))
        store = open_store(settings)
        (line,) = await refusals(store)
        assert "refuses the password" in line and "wrong" not in line.replace("WRONGPASS", "")
        file.write_text("hush\n")
        await use(store)
        await without.close()
        await store.close()


async def test_a_password_that_is_not_asked_for_yet_waits_for_the_day(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hush\n")
    with RedisServer(tmp_path / "redis") as server:
        # As in an upgrade: the routers have the password before Redis asks for it.
        store = open_store(settings_of(f"redis://{server.address}", store_password_file=file))
        (line,) = await refusals(store)
        assert "KEYGROUPING_STORE_PASSWORD" in line and "hush" not in line
        host, port = server.address.split(":")
        command = ["redis-cli", "-h", host, "-p", port, "config", "set", "requirepass", "hush"]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        await use(store)
        await store.close()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-made certificate of 127.0.0.1, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", *kind, *subject, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


async def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate)]
    with RedisServer(tmp_path / "redis", *files) as server:
        url = f"rediss://{server.address}"
        own = {"store_certfile": certificate, "store_keyfile": key}
        store = open_store(settings_of(url, store_cafile=certificate, **own))
        await use(store)
        for settings in (settings_of(url, **own), settings_of(url, store_cafile=certificate)):
            refused = open_store(settings)
            assert not await works(refused), "an unknown server, or a client without certificate"
            await refused.close()
        await store.close()


async def test_a_cluster_takes_every_call_and_is_found_again(tmp_path: Path) -> None:
    # By itself it takes the port 10,000 higher for its bus, which there may not be.
    bus = ("--cluster-port", str(free_ports(1)[0]))
    with RedisServer(tmp_path / "redis", "--cluster-enabled", "yes", *bus, "--appendonly", "yes") as server:
        server.ask("cluster", "addslotsrange", "0", "16383")
        await until(lambda: "cluster_state:ok" in server.ask("cluster", "info"))
        store = open_store(settings_of(f"redis+cluster://127.0.0.1:1,{server.address}"))
        await use(store)
        server.kill()
        await refusals(store)
        server.start()
        await until(lambda: works(store))
        assert await store.get("control") == Entry({"workers": 4}, 1)
        await store.close()
        impatient = open_store(settings_of(f"redis+cluster://127.0.0.1:1,{server.address}", TIMEOUT))
        await until(lambda: works(impatient))
        server.freeze()
        async with asyncio.timeout(20 * TIMEOUT):
            await refusals(impatient)
        server.thaw()
        await until(lambda: works(impatient))
        await impatient.close()


async def test_sentinels_lead_to_the_new_master(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path / "one") as one,
        RedisServer(tmp_path / "two", "--replicaof", "127.0.0.1", str(one.port)) as two,
        RedisServer(tmp_path / "sentinel", "--sentinel") as sentinel,
    ):
        sentinel.ask("sentinel", "monitor", "main", "127.0.0.1", str(one.port), "1")
        sentinel.ask("sentinel", "set", "main", "down-after-milliseconds", "3000")
        sentinel.ask("sentinel", "set", "main", "failover-timeout", "2000")
        await until(lambda: "num-slaves\n1" in sentinel.ask("sentinel", "master", "main"))
        store = open_store(settings_of(f"redis+sentinel://127.0.0.1:1,{sentinel.address}/main"))
        await use(store)
        await until(lambda: two.ask("exists", "{keygrouping}:document:control") == "1")
        one.kill()
        await refusals(store)
        await until(lambda: works(store))
        assert await store.get("control") == Entry({"workers": 4}, 1)
        await store.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis//x", "unknown kind of store; known are memory://, file:///"),
        ("mysql://x", "unknown kind of store"),
        ("memory://x", "unknown kind of store"),
        ("redis://", "give each node as host or host:port"),
        ("redis://h:x", "give each node as host or host:port"),
        ("redis://h:99999", "give each node as host or host:port"),
        ("redis://:hush@h", "no password in the URL"),
        ("redis://h/one", "must be the number of the database"),
        ("redis://h/0/1", "must be the number of the database"),
        ("redis://h,g", "one host only"),
        ("redis://h?db=1", "options in the URL are unknown"),
        ("redis+cluster://h/1", "a cluster has only one"),
        ("redis+sentinel://h", "the name of the service is missing"),
        ("file://state.json", "needs an absolute path"),
        ("file:///", "needs an absolute path"),
        ("rediss://h", "KEYGROUPING_STORE_CAFILE"),
    ],
)
def test_a_wrong_url_is_one_line_without_secrets(url: str, message: str) -> None:
    others = {"store_cafile": Path("/nowhere")} if url.startswith("rediss") else {}
    with pytest.raises(ValidationError) as refused:
        settings_of(url, **others)
    (fault,) = refused.value.errors()
    assert message in fault["msg"] and "\n" not in fault["msg"] and "hush" not in fault["msg"]


def test_a_password_file_that_is_missing_is_a_fault() -> None:
    with pytest.raises(ValidationError, match="KEYGROUPING_STORE_PASSWORD_FILE"):
        settings_of("redis://h", store_password_file=Path("/nowhere"))
