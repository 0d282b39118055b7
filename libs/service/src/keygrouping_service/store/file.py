"""The store of a process that runs alone and is to find its documents and logs again after a restart."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from pathlib import Path
from typing import IO, Any

import orjson

from keygrouping_service.errors import Fatal
from keygrouping_service.store.decoding import version_of
from keygrouping_service.store.memory import MemoryStore, State
from keygrouping_service.store.protocol import Entry, LogRecord, Unanswered, Unavailable

log = logging.getLogger(__name__)


class FileStore(MemoryStore):
    """Documents and logs in one JSON file, replaced as a whole with every change; presence and leases in memory.

    One process at a time: it holds a lock on a file beside. `Fatal` if the file can't be used. What is damaged in it is
    as good as missing; if that is all of it, it is kept beside, as it may be somebody else's.
    """

    name = "file"

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__()
        self._path = path
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self._lock = _lock(path)
        try:
            self._state = _read(path)
        except BaseException:
            self._lock.close()
            raise

    async def put(self, document: str, value: Any, *, expected: int, record: LogRecord | None = None) -> Entry:
        """See `Store`; returns when the change is on the disk."""
        try:
            async with asyncio.timeout(self._timeout), self._turn:
                if self._writing is not None:
                    await asyncio.wait([self._writing])
                state = self._state.changed(document, value, expected, record)
                self._writing = asyncio.create_task(self._write(state))
                await asyncio.shield(self._writing)
        except TimeoutError:
            raise Unanswered(f"{self._path} is not written within {self._timeout:g} s") from None
        except OSError as error:
            raise Unavailable(f"{self._path} can't be written: {error.strerror or error}") from None
        return Entry(value, expected + 1)

    async def close(self) -> None:
        """See `Store`."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=self._timeout)
        self._lock.close()

    async def _write(self, state: State) -> None:
        await asyncio.to_thread(_replace, self._path, _encode(state))
        self._state = state


def _lock(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Path(f"{path}.lock").open("wb")  # noqa: SIM115 (held until `close`)
    except OSError as error:
        raise Fatal(f"KEYGROUPING_STORE_URL: {path} can't be used: {error.strerror or error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise Fatal(
            f"KEYGROUPING_STORE_URL: another process uses {path}: stop it, or share a Redis (redis://host:port)"
        ) from None
    return lock


def _read(path: Path) -> State:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise Fatal(f"KEYGROUPING_STORE_URL: {path} can't be read: {error.strerror or error}") from None
    try:
        stored = orjson.loads(text)
        documents = {name: _document(found) for name, found in stored["documents"].items()}
        logs = {name: tuple(map(_text, found)) for name, found in stored["logs"].items() if isinstance(found, list)}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        _keep_aside(path, error)
        return State()
    return State(documents, logs)


def _keep_aside(path: Path, why: Exception) -> None:
    aside = Path(f"{path}.damaged")
    try:
        path.replace(aside)
    except OSError as error:
        raise Fatal(f"KEYGROUPING_STORE_URL: {path} can't be moved: {error.strerror or error}") from None
    log.error(
        "%s is not a valid store file (%s): it was moved to %s and its contents are not used; to use them, stop "
        "this process, repair the file and move it back",
        *(path, why, aside),
    )


def _document(found: Any) -> tuple[bytes, int]:
    """A document that is none keeps its place, so that whoever reads it hears of it."""
    if not isinstance(found, dict) or "value" not in found:
        return b"", 0
    return _text(found["value"]), version_of(found.get("version"))


def _text(value: Any) -> bytes:
    """The value as it is kept; nothing, which is unreadable, if it is nested too deeply."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return b""


def _encode(state: State) -> bytes:
    documents = {
        name: {"value": orjson.Fragment(value), "version": version}
        for name, (value, version) in state.documents.items()
        if value
    }
    logs = {name: [orjson.Fragment(value) for value in kept if value] for name, kept in state.logs.items()}
    return orjson.dumps({"documents": documents, "logs": logs})


def _replace(path: Path, content: bytes) -> None:
    """Writes beside, then renames: whatever happens meanwhile, the file is the old or the new one, whole."""
    beside = Path(f"{path}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
