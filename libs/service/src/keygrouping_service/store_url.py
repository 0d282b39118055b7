"""Where the store is, as one URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

Topology = Literal["single", "sentinel", "cluster"]

_REDIS_PORT = 6379
_SENTINEL_PORT = 26379
_SCHEMES: dict[str, tuple[Topology, bool]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_KNOWN = "memory://, file:///path/state.json, redis://host:port/db, " + ", ".join(
    f"{scheme}://..." for scheme in list(_SCHEMES)[1:]
)


@dataclass(frozen=True, slots=True)
class MemoryUrl:
    """In this process only."""


@dataclass(frozen=True, slots=True)
class FileUrl:
    """One file, for one process at a time."""

    path: Path


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A Redis server; sentinels that know of `service`; or some nodes of a cluster. `nodes` are host and port."""

    topology: Topology
    tls: bool
    nodes: tuple[tuple[str, int], ...]
    user: str | None = None
    service: str = ""
    database: int = 0


StoreUrl: TypeAlias = MemoryUrl | FileUrl | RedisUrl


def parse_url(text: str) -> StoreUrl:
    """Reads the URL of a store; ValueError says in one line what is wrong, without showing what stands in it."""
    scheme, colon, _ = text.partition("://")
    if text == "memory://":
        return MemoryUrl()
    if scheme == "file":
        return _parse_file(text)
    if colon and scheme in _SCHEMES:
        return _parse_redis(text, *_SCHEMES[scheme])
    raise ValueError(f"unknown kind of store; known are {_KNOWN}")


def _parse_file(text: str) -> FileUrl:
    parts = urlsplit(text)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path.endswith("/"):
        raise ValueError("a file needs an absolute path: file:///path/state.json")
    return FileUrl(Path(path))


def _parse_redis(text: str, topology: Topology, tls: bool) -> RedisUrl:
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise ValueError("options in the URL are unknown: use the settings KEYGROUPING_STORE_...")
    credentials, _, hosts = parts.netloc.rpartition("@")
    if ":" in credentials:
        raise ValueError("no password in the URL: use KEYGROUPING_STORE_PASSWORD or KEYGROUPING_STORE_PASSWORD_FILE")
    default = _SENTINEL_PORT if topology == "sentinel" else _REDIS_PORT
    nodes = tuple(_parse_node(node, default) for node in hosts.split(","))
    if topology == "single" and len(nodes) > 1:
        raise ValueError("one host only: several need redis+sentinel:// or redis+cluster://")
    path = [unquote(step) for step in parts.path.split("/") if step]
    service = ""
    if topology == "sentinel":
        if not path:
            raise ValueError("the name of the service is missing: redis+sentinel://host:port/service")
        service = path.pop(0)
    return RedisUrl(topology, tls, nodes, unquote(credentials) or None, service, _parse_database(path, topology))


def _parse_node(text: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None:
        raise ValueError("give each node as host or host:port, with commas between them")
    return host, port or default_port


def _parse_database(path: list[str], topology: Topology) -> int:
    if not path:
        return 0
    if len(path) > 1 or not path[0].isdecimal() or topology == "cluster":
        raise ValueError("what follows the hosts must be the number of the database (a cluster has only one)")
    return int(path[0])
