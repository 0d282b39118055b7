"""W and the number of worker pods are one: whichever of them somebody changes, the other follows.

So `PUT /workers`, a changed setting, `kubectl scale` and an autoscaler end in the same state. What both were when they
last agreed stands in the store; the one that differs from that has been changed. The store outlives the release, so it
also holds which StatefulSet they agreed on: the number of pods that a new one begins with is nobody's change.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from keygrouping_service.kubernetes import Unreachable
from keygrouping_service.store import Conflict, Unavailable
from pydantic import BaseModel, ConfigDict, Field

from keygrouping_router.control.document import Edit
from keygrouping_router.control.history import What
from keygrouping_router.control.orders import WorkersChange
from keygrouping_router.control.state import Control
from keygrouping_router.control.watched_store import Shape, WatchedStore
from keygrouping_router.errors import Degraded, Refused
from keygrouping_router.limits import MAX_WORKERS, Number
from keygrouping_router.scaling.statefulset import Pods

log = logging.getLogger(__name__)

BY_PODS = "pods"
"""Who changes W where somebody has scaled the pods."""

_DOCUMENT = "worker-pods"
_LEASE = "worker-pods"
_LOOK_SECONDS = 2.0


class Router(Protocol):
    """The router whose W is kept equal to the pods."""

    @property
    def name(self) -> str:
        """Among the replicas."""

    @property
    def control(self) -> Control:
        """What is in force."""

    @property
    def most_workers(self) -> int:
        """Partitions of the routed topic."""

    async def change(self, what: What, edit: Edit, *, expected: int | None, by: str) -> object:
        """Changes the control document; raises `Refused` and `Degraded`."""


class _Agreed(BaseModel):
    """The pods, of which StatefulSet they were, and W, as all of it was when they last agreed."""

    model_config = ConfigDict(frozen=True)

    uid: str = Field(max_length=200)
    pods: Number
    workers: int = Field(ge=1, le=MAX_WORKERS)


_AGREED = Shape(_DOCUMENT, _Agreed.model_validate, 10_000)


class WorkerPods:
    """Keeps W and the pods equal; of several routers one at a time does it.

    No pods at all are a pause: then nothing is changed. With W on `auto` the pods decide alone. More pods than the
    routed topic has partitions are left idle. A new StatefulSet gets as many pods as W says.
    """

    def __init__(self, router: Router, pods: Pods, store: WatchedStore) -> None:
        self._router = router
        self._pods = pods
        self._store = store
        self._told = ""

    async def keep_equal(self) -> None:
        """Keeps looking, for ever; what is away is waited for."""
        try:
            while True:
                await self._try()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            await self._pods.close()

    async def _try(self) -> None:
        try:
            if await self._store.lease(_LEASE, self._router.name, 3 * _LOOK_SECONDS):
                await self.look()
            self._told = ""
        except (Unavailable, Degraded, Conflict) as error:
            log.debug("worker pods are not looked at: %s", error)
        except (Unreachable, Refused) as error:
            if self._told != str(error):
                self._told = str(error)
                log.warning("cannot keep W and the number of worker pods equal: %s", error)
        except Exception:
            log.exception("unexpected error while watching the worker pods; routing continues")

    async def look(self) -> None:
        """One look; raises `Unreachable`, and what the store and the router raise."""
        uid, pods = await self._pods.read()
        if pods == 0:
            return
        control = self._router.control
        entry = await self._store.get(_DOCUMENT, _AGREED)
        known = entry.value if entry else None
        agreed = known if known is not None and known.uid == uid else None
        workers = control.workers
        fixed = not control.auto
        if fixed and agreed is not None and agreed.pods != pods:
            workers = await self._follow(pods)
        elif workers != pods and _w_decides(fixed, workers, known, agreed):
            log.info("W is %d: scaling the worker pods from %d", workers, pods)
            await self._pods.scale(workers)
            pods = workers
        now = _Agreed(uid=uid, pods=pods, workers=workers)
        if now != known:
            await self._store.put(_DOCUMENT, now.model_dump(), expected=entry.version if entry else 0)

    async def _follow(self, pods: int) -> int:
        most = self._router.most_workers
        change = WorkersChange(min(pods, most))
        log.info("somebody has scaled the worker pods to %d: W follows", pods)
        await self._router.change("workers", lambda now: now.with_workers(change, most), expected=None, by=BY_PODS)
        return min(pods, most)


def _w_decides(fixed: bool, workers: int, known: _Agreed | None, agreed: _Agreed | None) -> bool:
    """Whether the pods become as many as W is; `known` was agreed on with any StatefulSet, `agreed` with this one."""
    if agreed is None:
        return fixed or known is not None
    return fixed and agreed.workers != workers
