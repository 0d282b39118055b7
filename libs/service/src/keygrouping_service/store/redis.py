"""The store that replicas share: a Redis server, one behind sentinels, or a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Protocol

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, RedisClusterException, RedisError, ResponseError

from keygrouping_service.settings import StoreSettings
from keygrouping_service.store.decoding import (
    MOST_BYTES,
    MOST_VERSIONS,
    Unreadable,
    decode,
    digest_of,
    encode,
    too_large,
)
from keygrouping_service.store.protocol import Conflict, Entry, LogRecord, Unanswered, Unavailable, entry_of
from keygrouping_service.store_url import RedisUrl

_FAULTS = (RedisError, RedisClusterException, OSError, ValueError)
"""What the client raises; ValueError when a password file can't be read."""

_LARGE = 1 << 14
"""Bytes from which on a value is read in a thread, beside the routing: for a plan that takes milliseconds."""

_UNHEARD = (ConnectionRefusedError, socket.gaierror)
"""What lies behind a fault if the server never heard of the call."""

_VERSION = f"""
local function version_of(given)
    local found = tonumber(given or 0)
    if found and found >= 0 and found <= {MOST_VERSIONS} and found == math.floor(found) then return found end
    return 0
end
local function is(key, kind)
    return redis.call('TYPE', key).ok == kind
end
local function without_other(key, kind)
    if not is(key, kind) then redis.call('DEL', key) end
end
local function most_of(text)
    if text and #text > tonumber(most) then return #text end
    return text
end
"""
"""What scripts have in common. A key that holds another kind of value than it should is as good as none, and goes when
it is written to; a text of more than `most` bytes is told by its size."""

_GET = f"""local most = ARGV[1]
{_VERSION}
if not is(KEYS[1], 'hash') then return {{redis.call('TYPE', KEYS[1]).ok}} end
local version = version_of(redis.call('HGET', KEYS[1], 'version'))
local size = redis.call('HSTRLEN', KEYS[1], 'value')
if size > tonumber(most) then return {{'hash', version, size}} end
local value = redis.call('HGET', KEYS[1], 'value')
if ARGV[3] ~= '' and version == tonumber(ARGV[2]) and value and redis.sha1hex(value) == ARGV[3] then
    return {{'same'}}
end
return {{'hash', version, value}}
"""
"""A reader that names the version and digest of what it knows is told that it is the same, and no value travels."""

_PUT = f"""local most = ARGV[5]
{_VERSION}
without_other(KEYS[1], 'hash')
local current = redis.call('HMGET', KEYS[1], 'version', 'value')
local version = version_of(current[1])
if version ~= tonumber(ARGV[1]) then return {{0, version, most_of(current[2])}} end
redis.call('HSET', KEYS[1], 'version', version + 1, 'value', ARGV[2])
if KEYS[2] then
    without_other(KEYS[2], 'list')
    redis.call('LPUSH', KEYS[2], ARGV[3])
    redis.call('LTRIM', KEYS[2], 0, ARGV[4] - 1)
end
return {{1}}
"""
_TAIL = f"""local most = ARGV[2]
{_VERSION}
if not is(KEYS[1], 'list') then return {{redis.call('TYPE', KEYS[1]).ok}} end
local found = redis.call('LRANGE', KEYS[1], 0, ARGV[1] - 1)
for i, text in ipairs(found) do found[i] = most_of(text) end
return {{'list', found}}
"""
_PRUNE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], now + 1000000000, '+inf')
for _, member in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE')) do
    redis.call('HDEL', KEYS[1], member)
    redis.call('ZREM', KEYS[2], member)
end
if redis.call('HLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then
    for _, member in ipairs(redis.call('HKEYS', KEYS[1])) do
        if not redis.call('ZSCORE', KEYS[2], member) then redis.call('HDEL', KEYS[1], member) end
    end
end
"""
"""What no member has published has no expiry, or one that is weeks away, and would stay for ever."""

_PUBLISH = f"""
{_VERSION}
without_other(KEYS[1], 'hash')
without_other(KEYS[2], 'zset')
{_PRUNE}
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', KEYS[1], last)
redis.call('PEXPIREAT', KEYS[2], last)
"""
_PUBLISHED = f"""local most = ARGV[1]
{_VERSION}
if not is(KEYS[1], 'hash') then return {{redis.call('TYPE', KEYS[1]).ok}} end
if not is(KEYS[2], 'zset') then return {{'hash without ends'}} end
{_PRUNE}
local found = redis.call('HGETALL', KEYS[1])
for i = 2, #found, 2 do found[i] = most_of(found[i]) end
return {{'hash', found}}
"""
_WITHDRAW = f"""
{_VERSION}
if is(KEYS[1], 'hash') then redis.call('HDEL', KEYS[1], ARGV[1]) end
if is(KEYS[2], 'zset') then redis.call('ZREM', KEYS[2], ARGV[1]) end
"""
_LEASE = f"""
{_VERSION}
without_other(KEYS[1], 'string')
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] and redis.call('PTTL', KEYS[1]) > 0 then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
"""A lease without an end is nobody's: all that are taken here have one."""


class RedisStore:
    """All keys begin with `{prefix}`: the braces put them into one hash slot, so that a cluster takes the scripts.

    A document is a hash of version and value, a log is a list; a presence is a hash of values beside a sorted set of
    their ends, a lease is a string. A call is tried once: who calls knows whether a second try makes sense.
    """

    name = "redis"

    def __init__(self, url: RedisUrl, settings: StoreSettings) -> None:
        self._client, self._closers = _connect(url, settings)
        self._prefix = f"{{{settings.key_prefix}}}"
        self._timeout = settings.store_timeout
        self._place = ",".join(f"{host}:{port}" for host, port in url.nodes)

    async def get(self, document: str, most: int = MOST_BYTES, newer_than: Entry | None = None) -> Entry | None:
        """See `Store`."""
        version, digest = (0, "") if newer_than is None else (newer_than.version, newer_than.digest)
        kind, *found = await self._run(_GET, [self._key("document", document)], most, version, digest)
        if kind == b"same":
            return newer_than
        if kind == b"none":
            return None
        if not found:
            return Entry(_other(kind, "hash"), 0)
        version, raw = found
        value = await _value(raw, most)
        return entry_of(value, version, digest_of(raw) if isinstance(raw, bytes) else "")

    async def put(self, document: str, value: Any, *, expected: int, record: LogRecord | None = None) -> Entry:
        """See `Store`."""
        keys = [self._key("document", document)]
        text, kept = b"", 1
        if record is not None:
            keys.append(self._key("log", record.log))
            text, kept = await asyncio.to_thread(encode, record.value), record.keep
        written, *current = await self._run(
            _PUT, keys, expected, await asyncio.to_thread(encode, value), text, kept, MOST_BYTES
        )
        if written:
            return Entry(value, expected + 1)
        raise Conflict(document, Entry(await _value(current[1], MOST_BYTES), current[0]) if current[0] else None)

    async def tail(self, log: str, limit: int, most: int = MOST_BYTES) -> list[Any]:
        """See `Store`."""
        if limit <= 0:
            return []
        kind, *found = await self._run(_TAIL, [self._key("log", log)], limit, most)
        if found:
            return [await _value(text, most) for text in found[0]]
        return [] if kind == b"none" else [_other(kind, "list")]

    async def publish(self, presence: str, member: str, value: Any, ttl: float) -> None:
        """See `Store`."""
        text = await asyncio.to_thread(encode, value)
        await self._run(_PUBLISH, self._presence(presence), member, text, _milliseconds(ttl))

    async def published(self, presence: str, most: int = MOST_BYTES) -> dict[str, Any]:
        """See `Store`."""
        kind, *found = await self._run(_PUBLISHED, self._presence(presence), most)
        if found:
            names, values = found[0][::2], found[0][1::2]
            return {
                name.decode(errors="replace"): await _value(value, most)
                for name, value in zip(names, values, strict=True)
            }
        return {} if kind == b"none" else {"": _other(kind, "hash")}

    async def withdraw(self, presence: str, member: str) -> None:
        """See `Store`."""
        await self._run(_WITHDRAW, self._presence(presence), member)

    async def lease(self, name: str, owner: str, ttl: float) -> bool:
        """See `Store`."""
        return bool(await self._run(_LEASE, [self._key("lease", name)], owner, _milliseconds(ttl)))

    async def close(self) -> None:
        """See `Store`."""
        with contextlib.suppress(*_FAULTS):
            async with asyncio.timeout(self._timeout):
                await asyncio.gather(*(client.aclose() for client in self._closers))

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}:{kind}:{name}"

    def _presence(self, name: str) -> list[str]:
        return [self._key("presence", name), self._key("presence-ends", name)]

    async def _run(self, script: str, keys: list[str], *arguments: str | bytes | int) -> Any:
        return await self._call("EVAL", script, len(keys), *keys, *arguments)

    async def _call(self, *command: str | bytes | int) -> Any:
        kind: type[Unavailable] = Unanswered
        try:
            async with asyncio.timeout(self._timeout):
                return await self._client.execute_command(*command)
        except TimeoutError:
            why = f"gives no answer within {self._timeout:g} s"
        except AuthenticationError as error:
            kind, why = (
                Unavailable,
                f"refuses the password: {_one_line(error)}: check KEYGROUPING_STORE_PASSWORD(_FILE)",
            )
        except _FAULTS as error:
            if isinstance(error, ResponseError) or isinstance(error.__context__, _UNHEARD):
                kind = Unavailable
            why = f"can't be used: {_one_line(error)}"
        raise kind(f"Redis at {self._place} {why}")


class _Client(Protocol):
    """What the three kinds of client have in common."""

    async def execute_command(self, *command: Any) -> Any: ...

    async def aclose(self) -> None: ...


class _Password(CredentialProvider):
    """Reads the password for every connection, so that it may change."""

    def __init__(self, user: str | None, read: Callable[[], str]) -> None:
        self._user = user
        self._read = read

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        return (self._user, self._read()) if self._user else (self._read(),)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


def _connect(url: RedisUrl, settings: StoreSettings) -> tuple[_Client, list[Any]]:
    """The client of the documents, and all clients to close. Nothing is asked of the server before the first call."""
    credentials = _Password(url.user, settings.store_password_text) if settings.has_store_password else None
    options = _options(url, settings, settings.store_timeout) | {"credential_provider": credentials}
    if url.topology == "cluster":
        nodes = [ClusterNode(host, port) for host, port in url.nodes]
        cluster = RedisCluster(startup_nodes=nodes, **options | {"retry": Retry(NoBackoff(), 3)})
        return cluster, [cluster]
    if url.topology == "single":
        ((host, port),) = url.nodes
        single = Redis(host=host, port=port, db=url.database, **options)
        return single, [single]
    # A sentinel that is away must leave time to ask the others, and then the server.
    asking = _options(url, settings, settings.store_timeout / (len(url.nodes) + 1))
    if settings.store_sentinel_password_file is not None:
        asking["credential_provider"] = _Password(None, settings.sentinel_password_text)
    sentinel: Any = Sentinel(list(url.nodes), sentinel_kwargs=asking, **options)  # type: ignore[no-untyped-call]
    master = sentinel.master_for(url.service, db=url.database)
    return master, [master, sentinel]


def _options(url: RedisUrl, settings: StoreSettings, timeout: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
    }
    if url.tls:
        options |= {
            "ssl": True,
            "ssl_ca_certs": settings.store_cafile and str(settings.store_cafile),
            "ssl_certfile": settings.store_certfile and str(settings.store_certfile),
            "ssl_keyfile": settings.store_keyfile and str(settings.store_keyfile),
        }
    return options


async def _value(text: bytes | int | None, most: int) -> Any:
    """What a script has read; of a text that is too large it tells the size."""
    if isinstance(text, int):
        return too_large(text, most)
    if text is None or len(text) < _LARGE:
        return decode(text, most)
    return await asyncio.to_thread(decode, text, most)


def _other(kind: bytes, wanted: str) -> Unreadable:
    return Unreadable(f"the key holds a {kind.decode()} in place of a {wanted}", kind.decode())


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
