"""The control document in the store: read by all replicas, written one change after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from keygrouping_service.store import Conflict, Entry, Record, Store, Unavailable
from pydantic import ValidationError

from keygrouping_router.control import Control, Values
from keygrouping_router.errors import Degraded, Refused, Stale
from keygrouping_router.models import HistoryEntry

log = logging.getLogger(__name__)

DOCUMENT = "control"
HISTORY = "control-history"
KEPT = 1000
"""Entries of the history."""

BY_SETTINGS = "settings"
"""Who made a change that came from the environment of a start."""

_ATTEMPTS = 10
_PARTS = {"grouping": ("grouping", "settings", "sharing", "observe_only"), "workers": ("workers", "auto")}

Edit = Callable[[Control], Control]


class ControlDocument:
    """What is in force as far as this replica knows: `control` and its `version` (0: not in the store yet).

    It begins with what the environment says. `refresh` takes over what the store says, or puts it there if there is
    nothing; where the environment differs from the one that the document was last configured from, that wins.
    """

    def __init__(self, store: Store, environment: Control, most_workers: int, wall: Callable[[], float]) -> None:
        configured = {name: environment.model_dump()[name] for names in _PARTS.values() for name in names}
        self.control = environment.model_copy(update={"configured": configured})
        self.version = 0
        self._value: Any = None
        self._environment = self.control
        self._configured = False
        self._store = store
        self._most_workers = most_workers
        self._wall = wall
        self._turn = asyncio.Lock()

    async def refresh(self, highest_epoch: Callable[[], int]) -> None:
        """Follows the store; raises `Unavailable`."""
        async with self._turn:
            await self._refresh(highest_epoch)

    async def _refresh(self, highest_epoch: Callable[[], int]) -> None:
        entry = await self._store.get(DOCUMENT)
        if entry is None:
            entry = await self._write_anew()
        self._take(entry)
        if not self._configured:
            await self._configure(highest_epoch)

    async def change(
        self, what: str, edit: Edit, *, expected: int | None, by: str, highest_epoch: Callable[[], int]
    ) -> HistoryEntry | None:
        """Changes the document; None if nothing changes.

        Raises what `edit` raises, `Stale` if the version is not the expected one, `Degraded` if the store can't be
        used.
        """
        # One at a time: an answer that comes late must not put an older document in the place of a newer one.
        async with self._turn:
            return await self._change(what, edit, expected, by, highest_epoch)

    async def _change(
        self, what: str, edit: Edit, expected: int | None, by: str, highest_epoch: Callable[[], int]
    ) -> HistoryEntry | None:
        try:
            for _ in range(_ATTEMPTS):
                await self._refresh(highest_epoch)
                if expected not in (None, self.version):
                    raise Stale(f"the version is {self.version}, not {expected}: read it again")
                changed = edit(self.control)
                if changed == self.control.model_copy(update={"generation": changed.generation}):
                    return None
                entry = await self._try(what, changed, by, highest_epoch())
                if entry is not None:
                    return entry
        except Unavailable as error:
            raise Degraded(f"the store can't take a change now, try again later: {error}") from None
        raise Degraded("others change the settings all the time: try again")

    async def history(self, limit: int) -> list[HistoryEntry]:
        """The last changes, newest first; `Degraded` if the store can't be used."""
        try:
            return [HistoryEntry.model_validate(value) for value in await self._store.tail(HISTORY, limit)]
        except Unavailable as error:
            raise Degraded(f"the history can't be read now: {error}") from None

    async def _try(self, what: str, changed: Control, by: str, highest_epoch: int) -> HistoryEntry | None:
        """Writes a change of the present document; None if somebody else was faster."""
        before = self.control
        if not changed.routes_like(before):
            changed = changed.model_copy(update={"base": max(before.base, highest_epoch) + 1})
        history = HistoryEntry.model_validate(
            {
                "at": self._wall(),
                "by": by,
                "version": self.version + 1,
                "what": what,
                "before": before.part(what),
                "after": changed.part(what),
            }
        )
        record = Record(HISTORY, history.model_dump(mode="json"), KEPT)
        try:
            self._take(await self._store.put(DOCUMENT, _to_json(changed), expected=self.version, record=record))
        except Conflict:
            return None
        return history

    async def _write_anew(self) -> Entry:
        try:
            return await self._store.put(DOCUMENT, _to_json(self.control), expected=0)
        except Conflict as error:
            if error.current is None:
                raise Unavailable("the control document comes and goes") from None
            return error.current

    def _take(self, entry: Entry) -> None:
        if (entry.version, entry.value) == (self.version, self._value):
            return
        try:
            control = Control.model_validate(entry.value)
            control.check()
        except (ValidationError, Refused) as error:
            log.error("the control document of version %d can't be used: %s", entry.version, _one_line(error))
            raise Unavailable(
                f"document {DOCUMENT!r} was written by another version of the router: delete it"
            ) from None
        if control.workers > self._most_workers:
            log.error("%d workers are wanted, but routed has %d partitions", control.workers, self._most_workers)
            control = control.model_copy(update={"workers": self._most_workers})
        self.control, self.version, self._value = control, entry.version, entry.value

    async def _configure(self, highest_epoch: Callable[[], int]) -> None:
        """Where the environment has changed since the document was configured, the environment wins."""
        self._configured = True
        wanted = self._environment.configured
        try:
            for what, names in _PARTS.items():
                differs = {name for name in names if self.control.configured.get(name) != wanted[name]}
                if differs:
                    configured = {**self.control.configured, **{name: wanted[name] for name in differs}}
                    await self._take_from_environment(what, differs, configured, highest_epoch)
        except Degraded as error:
            self._configured = False
            log.warning("the changed settings of this start are not taken over yet: %s", error)

    async def _take_from_environment(
        self, what: str, names: set[str], configured: Values, highest_epoch: Callable[[], int]
    ) -> None:
        def edit(control: Control) -> Control:
            values: dict[str, Any] = {name: getattr(self._environment, name) for name in names}
            if "grouping" in names:
                values["settings"] = self._environment.settings
            generation = control.generation + (1 if what == "grouping" else 0)
            changed = control.model_copy(update={**values, "configured": configured, "generation": generation})
            changed.check()
            return changed

        try:
            await self._change(what, edit, None, BY_SETTINGS, highest_epoch)
        except Refused as error:
            log.warning("the changed settings of this start are not taken over: %s", error)


def _to_json(control: Control) -> Any:
    return control.model_dump(mode="json")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
