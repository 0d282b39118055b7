"""The plans in force one after the other, as one replica has seen them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from keygrouping_router import metrics
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.planning.plan import Plan, PlanRecord
from keygrouping_router.planning.rounds import Rounds

_KEPT = 200


class PlanLog:
    """The last plans of this replica: of rounds, and those that its grouping made by itself.

    `publish` is told each plan that is new or has moved keys.
    """

    def __init__(
        self,
        replica: str,
        active: ActiveGrouping,
        rounds: Rounds,
        wall: Callable[[], float],
        publish: Callable[[PlanRecord], None],
    ) -> None:
        self._replica = replica
        self._active = active
        self._rounds = rounds
        self._wall = wall
        self._publish = publish
        self._entries: deque[PlanRecord] = deque(maxlen=_KEPT)
        self._noted: int | None = None
        """Epoch under which the newest of them was made in a round."""
        self.note()

    def newest(self) -> PlanRecord:
        """The plan in force."""
        self.note()
        return self._entries[-1]

    def newest_first(self) -> list[PlanRecord]:
        """All that are kept."""
        return list(reversed(self._entries))

    def not_below(self, epoch: int) -> None:
        """The plan in force stays and counts as one of this epoch, if that is higher than its own."""
        self.note()
        self._active.not_below(epoch)
        self._entries[-1] = replace(self._entries[-1], epoch=self._active.epoch)

    def note(self) -> None:
        """Takes note of a new plan, whatever it came by; its epoch may have been here before it."""
        epoch, planned = self._active.epoch, self._planned()
        known = bool(self._entries) and self._entries[-1].epoch == epoch
        if known and (planned is None or planned.epoch == self._noted):
            return
        record = self._own() if planned is None else replace(planned.record, epoch=epoch)
        self._noted = None if planned is None else planned.epoch
        if self._entries and (not known or record.moved_keys):
            metrics.PLAN_CHANGES.inc()
            metrics.MOVED_KEYS.inc(record.moved_keys or 0)
            metrics.RESHUFFLES.inc(planned is None or planned.reshuffles)
            self._publish(record)
        if known:
            self._entries.pop()
        self._entries.append(record)

    def _planned(self) -> Plan | None:
        """The plan in force that was made in a round, None if there is none."""
        plan, control = self._rounds.newest, self._active.control
        if plan is None or not plan.fits(control):
            return None
        return plan if plan.epoch == self._active.planned else None

    def _own(self) -> PlanRecord:
        control = self._active.control
        return PlanRecord(
            epoch=self._active.epoch,
            made=self._wall(),
            round=None,
            by=self._replica,
            grouping=control.routed_by,
            workers=control.workers,
            hot_keys=len(self._active.widths()),
        )
