"""The plans in force one after the other, as one replica has seen them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from keygrouping_service.observability import metrics

from keygrouping_router.api.shapes import PlanReport
from keygrouping_router.data.active_grouping import Steering
from keygrouping_router.knowledge.keyspace import moment
from keygrouping_router.planning.rounds import Plan, Rounds

_KEPT = 200


class PlanLog:
    """The last plans of this replica: of rounds, and those that its grouping made by itself.

    `publish` is told each plan that is new or has moved keys.
    """

    def __init__(
        self,
        replica: str,
        steering: Steering,
        rounds: Rounds,
        wall: Callable[[], float],
        publish: Callable[[PlanReport], None],
    ) -> None:
        self._replica = replica
        self._steering = steering
        self._rounds = rounds
        self._wall = wall
        self._publish = publish
        self._entries: deque[PlanReport] = deque(maxlen=_KEPT)
        self._noted: int | None = None
        """Epoch under which the newest of them was made in a round."""
        self.note()

    def newest(self) -> PlanReport:
        """The plan in force."""
        self.note()
        return self._entries[-1]

    def newest_first(self) -> list[PlanReport]:
        """All that are kept."""
        return list(reversed(self._entries))

    def not_below(self, epoch: int) -> None:
        """The plan in force stays and counts as one of this epoch, if that is higher than its own."""
        self.note()
        self._steering.not_below(epoch)
        self._entries[-1] = self._entries[-1].model_copy(update={"epoch": self._steering.epoch})

    def note(self) -> None:
        """Takes note of a new plan, whatever it came by; its epoch may have been here before it."""
        epoch, planned = self._steering.epoch, self._planned()
        known = bool(self._entries) and self._entries[-1].epoch == epoch
        if known and (planned is None or planned.report.epoch == self._noted):
            return
        report = self._own() if planned is None else planned.report.model_copy(update={"epoch": epoch})
        self._noted = None if planned is None else planned.report.epoch
        if self._entries and (not known or report.moved_keys):
            metrics.PLAN_CHANGES.inc()
            metrics.MOVED_KEYS.inc(report.moved_keys or 0)
            metrics.RESHUFFLES.inc(planned is None or planned.reshuffles)
            self._publish(report)
        if known:
            self._entries.pop()
        self._entries.append(report)

    def _planned(self) -> Plan | None:
        """The plan in force that was made in a round, None if there is none."""
        plan, control = self._rounds.newest, self._steering.control
        if plan is None or not plan.fits(control):
            return None
        return plan if plan.report.epoch == self._steering.planned else None

    def _own(self) -> PlanReport:
        control = self._steering.control
        return PlanReport(
            epoch=self._steering.epoch,
            at=moment(self._wall()),
            round=None,
            by=self._replica,
            grouping=control.routed_by,
            workers=control.workers,
            hot_keys=len(self._steering.widths()),
            moved_keys=None,
            moved_state=None,
            feasible=None,
            plan_ms=None,
            details={},
        )
