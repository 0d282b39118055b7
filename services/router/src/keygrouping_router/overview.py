"""What all routers know together, at one moment: what is shown of the KeySpace, and why keys go where they go."""

from __future__ import annotations

from keygrouping_router.data.accounting import Traffic
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.errors import Unknown
from keygrouping_router.knowledge.keyspace import KeySpaceSummary, KeySpaceView, Knowledge
from keygrouping_router.planning.peers import Peers
from keygrouping_router.times import Times

_FRESH_SECONDS = 0.5


class Overview:
    """Views of what this replica and its peers know."""

    def __init__(self, name: str, active: ActiveGrouping, traffic: Traffic, peers: Peers, times: Times) -> None:
        self._name = name
        self._active = active
        self._traffic = traffic
        self._peers = peers
        self._times = times
        self._merged: tuple[float, int, KeySpaceView] | None = None

    def knowledge(self) -> Knowledge:
        """What this replica knows."""
        return self._traffic.knowledge(self._name)

    def view(self, replica: str | None) -> KeySpaceView:
        """What this replica alone knows, or another one, or None: all of them together. Raises `Unknown`."""
        if replica is None:
            return self._all()
        if replica == self._name:
            return self._view(self.knowledge())
        if replica in self._peers.knowledge:
            return self._view(self._peers.knowledge[replica])
        known = ", ".join(sorted({self._name, *self._peers.knowledge}))
        raise Unknown(f"no router is called {replica!r}; known are {known}")

    def forget(self) -> None:
        """Something was changed, or an interval has ended: the next view is a new one."""
        self._merged = None

    def summary(self, view: KeySpaceView, interval: float) -> KeySpaceSummary:
        """The KeySpace as a whole; an interval has so many seconds."""
        control = self._active.control
        return KeySpaceSummary(
            grouping=control.routed_by,
            workers=control.workers,
            epoch=self._active.epoch,
            replicas=view.replicas,
            interval_seconds=interval,
            events=view.events,
            total_keys=max(view.total_keys, len(view.counts)),
            tracked_keys=len(view.counts),
            spaces=view.spaces,
            loads=view.loads.tolist(),
            lambda_=view.lambda_,
            least_share=view.least_share,
            std_dev=view.std_dev,
            dist_cost=view.dist_cost,
            lambda_before=view.lambda_before,
            at=self._times.wall(),
        )

    def _all(self) -> KeySpaceView:
        """Made at most twice a second, as it takes some milliseconds of the routing's time."""
        now, epoch = self._times.steady(), self._active.epoch
        if self._merged is None or now - self._merged[0] >= _FRESH_SECONDS or self._merged[1] != epoch:
            self._merged = (now, epoch, self._view(self.knowledge(), *self._peers.knowledge.values()))
        return self._merged[2]

    def _view(self, *parts: Knowledge) -> KeySpaceView:
        active = self._active
        return KeySpaceView(
            *(parts, active.explain, active.cold_width, active.control.capacity_by_worker, self._explained_at),
            spaces=active.grouping.spaces(),
            outside=active.overridden,
        )

    def _explained_at(self) -> float:
        """The time (seconds since 1970) from which the ages in explanations count."""
        steady, now = self._times.steady(), self._active.now
        return self._times.wall() - (0.0 if now is None else steady - now)
