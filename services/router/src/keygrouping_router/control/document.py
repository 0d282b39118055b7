"""The control document in the store: read by all replicas, written one change after the other."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from keygrouping.grouping import GroupingError
from keygrouping_service.store import Conflict, LogRecord, Unanswered, Unavailable

from keygrouping_router.control.format import change_from_data, change_to_data, control_from_data, control_to_data
from keygrouping_router.control.history import Change, What, difference
from keygrouping_router.control.leaving_out import partly
from keygrouping_router.control.orders import Values
from keygrouping_router.control.state import Control
from keygrouping_router.control.watched_store import Found, Shape, WatchedStore
from keygrouping_router.errors import Degraded, Refused, Stale

log = logging.getLogger(__name__)

DOCUMENT = "control"
HISTORY = "control-history"
KEPT = 1000
"""Entries of the history."""

BY_SETTINGS = "settings"
"""Who made a change that came from the environment of a start."""

_ATTEMPTS = 10
_PARTS: dict[What, tuple[str, ...]] = {
    "grouping": ("grouping", "settings", "sharing", "observe_only"),
    "workers": ("workers", "auto"),
}

STARTS = "starts"
"""Presence under which replicas publish what they began with: fingerprints of their environments."""
STARTS_SECONDS = 3600.0
"""How long it is known what a replica that is gone began with."""


def _fingerprint_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"a text is wanted, not {type(value).__name__}")


Edit = Callable[[Control], Control]
TryOut = Callable[[Control], Awaitable[None]]
"""Finds out whether a router can route and plan by it; raises `Refused`."""

_CONTROL = Shape(DOCUMENT, control_from_data, 4 << 20)
_HISTORY = Shape(HISTORY, change_from_data, 8 << 20)
_START = Shape(STARTS, _fingerprint_of, 1000)


class _Stored(NamedTuple):
    """The document as it stands in the store, and the version that the store has given it."""

    control: Control
    place: int

    @property
    def version(self) -> int:
        """The version that everybody sees: it goes on where the store has lost count."""
        return self.control.began + self.place


class ControlDocument:
    """What is in force as far as this replica knows: `control` and its `version` (0: not in the store yet).

    It begins with what the environment says. `refresh` takes over what the store says, or puts it there if there is
    nothing; where the environment differs from the one that the document was last configured from, that wins.

    Versions never go back. A store that has lost the document, or has an older one, gets back what this replica knows,
    as a newer version. And a replica that restarts with the environment that it had before changes nothing: it is an
    old one that has crashed in the middle of an update. What a new replica brings back is meant: an update was undone.

    A replica that starts follows all that it can use of a document, and `left_out` says what it can't.

    A document that is none counts as lost. A replica that knows no other than its environment leaves it where it is,
    for one that knows more, and so does every replica with one that can't be used here (another version of the router
    may know its grouping); the next change replaces it.
    """

    def __init__(
        self,
        store: WatchedStore,
        environment: Control,
        most_workers: int,
        wall: Callable[[], float],
        *,
        replica: str,
        try_out: TryOut,
    ) -> None:
        configured = {name: getattr(environment, name) for names in _PARTS.values() for name in names}
        self._environment = replace(environment, configured=configured)
        self._stored = _Stored(self._environment, 0)
        self._seen: Found[Control] | None = None
        self._usable: tuple[Control, Sequence[str]] | None = None
        """What can be followed of the document in the store, and what can't, if that is not all of it."""
        self._useless: tuple[Found[Control], str] | None = None
        """What stands in the store, if it is left there and not followed, and why."""
        self._try_out = try_out
        self.left_out: Sequence[str] = ()
        """What of the document in the store is not followed here, and why, a line each."""
        self.most_workers = most_workers
        """Partitions of the routed topic."""
        self._configured = False
        self._store = store
        self._wall = wall
        self._replica = replica
        self._told_start = -STARTS_SECONDS
        self._turn = asyncio.Lock()

    @property
    def version(self) -> int:
        """Version of the document; 0: it is not in the store yet."""
        return self._stored.version

    @property
    def control(self) -> Control:
        """What is in force; of more workers than there are partitions only as many, no override after its end."""
        return self.limited(self._stored.control)

    @property
    def has_ended(self) -> bool:
        """Whether overrides in the document have come to their end."""
        return any(entry.until <= self._wall() for entry in self._stored.control.overrides)

    def without_ended(self, control: Control) -> Control:
        """The document without the overrides that have come to their end."""
        return control.without_ended(self._wall())

    def limited(self, control: Control) -> Control:
        """The document as it is followed here and now."""
        control = control.as_of(self._wall())
        if control.workers <= self.most_workers:
            return control
        return replace(control, workers=self.most_workers)

    async def refresh(self, highest_epoch: Callable[[], int]) -> None:
        """Follows the store; raises `Unavailable`."""
        async with self._turn:
            await self._refresh(highest_epoch)
            if self._configured:
                await self._give_seed(highest_epoch)
                await self._tell_start()

    async def _refresh(self, highest_epoch: Callable[[], int]) -> None:
        for _ in range(_ATTEMPTS):
            entry = await self._store.get(DOCUMENT, _CONTROL)
            self._useless = None if entry is None else await self._uselessness(entry)
            if self._useless is not None:
                return
            if entry is not None and entry == self._seen:
                break
            found = None
            if entry is not None and entry.value is not None:
                found = _Stored(self._usable[0] if self._usable else entry.value, entry.version)
            if found is not None and not self._is_older(found):
                self._take(found)
                self._seen = entry
                self.left_out = self._usable[1] if self._usable else ()
                break
            if not self.version:
                await self._try_out(self._stored.control)
            if await self._write_back(found, 0 if entry is None else entry.version, highest_epoch()):
                break
        else:
            raise Unavailable("the control document comes and goes")
        if not self._configured:
            await self._configure(highest_epoch)

    async def _uselessness(self, entry: Found[Control]) -> tuple[Found[Control], str] | None:
        """The document with the reason why it can't be followed, if it is to be left where it is."""
        if entry.value is None:
            return None if self.version else (entry, "it is none")
        if entry == self._seen:
            return None
        self._usable = None
        useless = self._useless
        if useless is None or useless[0] != entry:
            try:
                entry.value.check()
                await self._try_out(entry.value)
                return None
            except Refused as error:
                if not self.version and await self._use_parts(entry.value, error):
                    return None
                useless = (entry, str(error))
        self._store.reject(DOCUMENT, DOCUMENT, useless[1], entry.version)
        return useless

    async def _use_parts(self, stored: Control, error: Refused) -> bool:
        """Leaves out what can't be used of a document, as little as possible; False if that is not enough."""
        for usable, left_out in partly(stored, self._environment, str(error)):
            try:
                usable.check()
                await self._try_out(usable)
            except Refused:
                continue
            self._usable = (usable, left_out)
            for line in left_out:
                log.error("the settings in the store are applied except %s", line)
            return True
        return False

    async def change(
        self, what: What, edit: Edit, *, expected: int | None, by: str, highest_epoch: Callable[[], int]
    ) -> Change | None:
        """Changes the document; None if nothing changes.

        Raises what `edit` raises, `Stale` if the version is not the expected one, `Degraded` if the store can't be
        used.
        """
        # One at a time: an answer that comes late must not put an older document in the place of a newer one.
        async with self._turn:
            return await self._change(what, edit, expected, by, highest_epoch)

    async def _change(
        self, what: What, edit: Edit, expected: int | None, by: str, highest_epoch: Callable[[], int]
    ) -> Change | None:
        try:
            for _ in range(_ATTEMPTS):
                await self._refresh(highest_epoch)
                if expected not in (None, self.version):
                    raise Stale(f"the version is {self.version}, not {expected}: read it again")
                before = self._stored.control
                changed = edit(before)
                if self._useless is not None:
                    await self._try_out(changed)
                    if await self._replace_useless(self._useless[0], highest_epoch()):
                        expected = None if expected is None else self.version
                    continue
                if changed == replace(before, generation=changed.generation):
                    return None
                await self._try_out(changed)
                entry = await self._try(what, changed, by, highest_epoch())
                if entry is not None:
                    return entry
        except Unavailable as error:
            raise Degraded(f"nothing was changed, as the store can't be used now; try again later: {error}") from None
        raise Degraded("nothing was changed, as others change the settings all the time: try again")

    async def history(self, limit: int) -> list[Change]:
        """The last changes, newest first; `Degraded` if the store can't be used."""
        try:
            return await self._store.tail(HISTORY, limit, _HISTORY)
        except Unavailable as error:
            raise Degraded(f"the history can't be read now: {error}") from None

    async def _try(self, what: What, changed: Control, by: str, highest_epoch: int) -> Change | None:
        """Writes a change of the present document; None if somebody else was faster."""
        before, place = self._stored
        if not changed.routes_like(before):
            changed = changed.beginning_at(max(before.base, highest_epoch) + 1)
        was, became = difference(what, before, changed)
        history = Change(self._wall(), by, self.version + 1, what, was, became)
        record = LogRecord(HISTORY, change_to_data(history), KEPT)
        try:
            written = await self._store.put(DOCUMENT, control_to_data(changed), expected=place, record=record)
            self._take(_Stored(changed, written.version))
        except Conflict:
            return None
        except Unanswered as error:
            raise Degraded(
                f"it is not known whether this was changed: GET it before you send it again; {error}"
            ) from None
        return history

    def _is_older(self, found: _Stored) -> bool:
        """Whether this replica has seen a newer document, or another one of the same version."""
        if found.version != self.version:
            return found.version < self.version
        return _written(found.control) != _written(self._stored.control)

    async def _replace_useless(self, useless: Found[Control], highest_epoch: int) -> bool:
        """Puts what this replica knows in the place of what can't be followed; False if somebody else was faster."""
        found = None if useless.value is None else _Stored(useless.value, useless.version)
        return await self._write_back(found, useless.version, highest_epoch)

    async def _write_back(self, found: _Stored | None, place: int, highest_epoch: int) -> bool:
        """Puts what this replica knows into the store, above all versions; False if somebody else was faster.

        `place`: the version that the store has given to what stands there, be it readable (`found`) or not.
        """
        control, version = self._stored.control, self.version
        if found is not None:
            version = max(version, found.version)
            if not _route_alike(control, found.control):
                generation = max(control.generation, found.control.generation) + 1
                base = max(control.base, found.control.base, highest_epoch) + 1
                control = replace(control, generation=generation).beginning_at(base)
        control = replace(control, began=max(0, version - place))
        try:
            written = await self._store.put(DOCUMENT, control_to_data(control), expected=place)
        except Conflict:
            return False
        stored = _Stored(control, written.version)
        if self.version:
            log.warning(
                "the store has lost the settings: version %d is written again as version %d",
                self.version,
                stored.version,
            )
        self._take(stored)
        return True

    def _take(self, found: _Stored) -> None:
        if found.version != self.version and found.control.workers > self.most_workers:
            log.error("%d workers are wanted, but routed has %d partitions", found.control.workers, self.most_workers)
        self._stored, self._seen, self.left_out = found, None, ()

    async def _configure(self, highest_epoch: Callable[[], int]) -> None:
        """Where the environment has changed since the document was configured, the environment wins."""
        wanted, configured = self._environment.configured, self._stored.control.configured
        again = wanted != configured and await self._has_begun_with(wanted)
        self._configured = True
        if again:
            log.warning(
                "this process was started with settings older than those in force, which are kept: "
                "use the API to change them"
            )
            return
        try:
            for what, names in _PARTS.items():
                differs = {name for name in names if configured.get(name) != wanted[name]}
                if differs:
                    await self._take_from_environment(what, differs, highest_epoch)
        except Degraded as error:
            self._configured = False
            log.warning("the changed settings of this process are not applied yet: %s", error)

    async def _give_seed(self, highest_epoch: Callable[[], int]) -> None:
        """A document of a router that knew no seeds gets that of this one."""
        seed = self._environment.seed
        if seed is None or self._stored.control.seed is not None or self._useless or self.left_out:
            return
        try:
            await self._change("grouping", lambda now: now.with_seed(seed), None, BY_SETTINGS, highest_epoch)
        except (Degraded, Refused) as error:
            log.warning("keys go without a secret seed as yet: %s", error)

    async def _has_begun_with(self, environment: Values) -> bool:
        return (await self._store.published(STARTS, _START)).get(self._replica) == _fingerprint(environment)

    async def _tell_start(self) -> None:
        now = self._wall()
        if now - self._told_start >= STARTS_SECONDS / 4:
            start = _fingerprint(self._environment.configured)
            await self._store.publish(STARTS, self._replica, start, STARTS_SECONDS)
            self._told_start = now

    async def _take_from_environment(self, what: What, names: set[str], highest_epoch: Callable[[], int]) -> None:
        def edit(control: Control) -> Control:
            values: dict[str, Any] = {name: getattr(self._environment, name) for name in names}
            if "grouping" in names:
                values["settings"] = self._environment.settings
            generation = control.generation + (1 if what == "grouping" else 0)
            configured = {**control.configured, **{name: self._environment.configured[name] for name in names}}
            changed = replace(control, **values, configured=configured, generation=generation)
            changed.check()
            return changed

        try:
            await self._change(what, edit, None, BY_SETTINGS, highest_epoch)
        except Refused as error:
            log.warning("the changed settings of this process are not applied: %s", error)


def _route_alike(control: Control, other: Control) -> bool:
    """Whether the routing is the same; the other one may be of a grouping that isn't known here."""
    try:
        return control.routes_like(other)
    except GroupingError:
        return False


def _fingerprint(environment: Values) -> str:
    return hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()[:16]


def _written(control: Control) -> str:
    return json.dumps(control_to_data(control))
