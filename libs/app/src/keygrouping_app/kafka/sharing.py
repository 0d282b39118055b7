"""One member's part in sharing hot keys: it tells what it has to do, hears what others have, and writes its surplus.

Nobody waits for any of it: what no slot has room for is handled here, and while nothing is heard nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

import msgspec
from aiokafka import TopicPartition
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.arrivals import Arrivals
from keygrouping_app.events import Event
from keygrouping_app.kafka.board import SlotsBoard, TopicBoard
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.overflow import SlotPartition, overflow_of, sharing_of
from keygrouping_app.kafka.partition import Given, Partition
from keygrouping_app.kafka.slot_rooms import SlotRooms, slots_in
from keygrouping_app.lanes import Lanes
from keygrouping_app.leveling import Flow, HotKey, Plan, Report, Slot, plan_of
from keygrouping_app.reports import name_of, period_of, remembered_of, with_owners
from keygrouping_app.spare import Bucket, SpareLanes
from keygrouping_app.surplus import LARGEST, Surplus, may_be_written, record_of

log = logging.getLogger(__name__)

_HEAR_SECONDS = 0.02
_SOONEST = 0.2
"""Of the time between reports, before which none is made, however much has come to wait."""
_MUCH, _MUCH_MORE = 0.05, 1.25
"""Seconds of all lanes, or a mean call: if so much more waits at a member than was planned for, and a quarter more,
that is told and planned for at once."""
_HALF_LIFE, _CALLS_OF_HALF_LIFE, _MOST_HALF_LIFE = 0.5, 10.0, 120.0
"""Seconds in which counts of events halve, and in mean calls, if that is longer: quick calls are many in a second. In
large groups it is the time of two reports, so that no plan is of the chance of one."""
_ROOM, _CALLS_OF_ROOM = 2.0, 4.0
"""Seconds that all lanes of a slot's owner need for the open events that it grants, and in mean calls: some run."""
_IDLE, _CALLS_OF_IDLE = 1.0, 4.0
"""Seconds that idle lanes need for the open events that each other member may have there without a plan, and in mean
calls."""
_BURST = 0.5
"""Seconds of a flow that may be written at once."""
_SOON, _CALLS_OF_SOON = 0.5, 4.0
"""Seconds, and mean calls, in which events that wait are to be handled."""
_USUAL_BACKLOG, _CALLS_OF_BACKLOG = 0.1, 1.0
"""Seconds of all lanes, and mean calls, that events are open without being too many."""
_HOT = 0.02
"""Of a member's load: keys with less stay whole."""
_LEAST_COUNT = 10.0
"""Events of late of a hot key: fewer may be chance."""
_MOST_HOT = 32
_REFUSED_SECONDS = 10.0
"""For which nothing is given to a slot that has not taken what was written."""
_CANDIDATES = 256
"""Keys that come most, of which those that need most are hot."""


@dataclass(slots=True)
class _Valve:
    """Lets events of a flow through as they come up by its rate."""

    flow: Flow
    group: Hashable
    bucket: Bucket


class Sharing:
    """Of the handler with `split`. `partitions`: what the member has, slots among them."""

    def __init__(self, settings: Settings, lanes: Lanes, partitions: Mapping[TopicPartition, Partition]) -> None:
        self._settings = settings
        self._lanes = lanes
        self._partitions = partitions
        self._clock = asyncio.get_running_loop().time
        self._overflow = overflow_of(settings.group)
        self._member = uuid.uuid4().hex
        self._arrived, self._taken = Arrivals(self._clock()), Arrivals(self._clock())
        self._rooms = SlotRooms(self._overflow, partitions)
        self._hot: dict[Hashable, HotKey] = {}
        """Of our inputs, as in our last report."""
        self._spare = SpareLanes()
        self._idle = 0.0  # lanes of ours without a call, in the mean of the last turn
        self._known: dict[str, float] = {}
        """What waited too much at each member when it was planned for, see `Report.excess`."""
        self._names: dict[Hashable, str] = {}
        """Of the keys in our last report."""
        self._heard: dict[bytes, Report | None] = {}
        """What others have told, read; None if it can't be."""
        self._valves: list[_Valve] = []
        self._reports: dict[str, Report] = {}
        self.largest = LARGEST
        """Bytes of a batch that slots take."""
        self.dirty = asyncio.Event()
        """Set when there is something to be written to slots at least once."""
        self.plan = Plan()
        self.written = 0
        """How many events were given to slots."""

    async def keep(self, board: SlotsBoard) -> None:
        """Goes on until it is cancelled; raises what can't be retried."""
        pauses = backoff()
        # Apart from reports: a slot that does not answer keeps nobody from telling.
        asking = asyncio.create_task(self._rooms.keep_asking(board))
        try:
            while True:
                if asking.done():
                    asking.result()
                try:
                    with given_up_calls():
                        await self._take_turn(board)
                    pauses = backoff()
                except Exception as error:
                    if not can_be_retried(error):
                        raise
                    self._valves, self._spare = [], SpareLanes()
                    log.warning("hot keys are not shared, trying again: %r", error)
                    await asyncio.sleep(next(pauses))
        finally:
            asking.cancel()
            self._valves, self._spare = [], SpareLanes()
            await board.withdraw(self._member)
            await asyncio.wait([asking])

    def gain(self, partition: Partition) -> None:
        """It is ours: of an input nobody knows here what its former owner has written to slots."""
        if not isinstance(partition, SlotPartition):
            self._rooms.take_over()

    def offered(self, partition: Partition, events: Sequence[Event]) -> None:
        """These have come, and wait for their calls."""
        counts = self._taken if isinstance(partition, SlotPartition) else self._arrived
        counts.add([event.group for event in events], len(events))
        self.share()

    def gave(self, partition: Partition, given: Sequence[Given]) -> None:
        """These are in their slots."""
        self._rooms.count(partition, given)
        self.written += len(given)
        partition.gave(given)

    def keep_here(self, partition: Partition, given: Sequence[Given], error: BaseException) -> None:
        """These may not be in their slots, so they are handled here; the slots are tried again in a while."""
        self._rooms.count(partition, given)
        slots = {each.slot for each in given}
        self._rooms.hold(slots, _REFUSED_SECONDS)
        if events := partition.keep_here(given):
            log.warning(
                "%s%s: given nothing for %.0f s, as %d events were not written, so they are handled here: %r",
                *(self._overflow, sorted(slots), _REFUSED_SECONDS, len(events), error),
            )
            self._lanes.offer(events)

    def share(self) -> None:
        """Has waiting events written to slots that have room for them: as planned, and what waits too much."""
        now = self._clock()
        if not self._may_write(now):
            return
        mine = self._inputs()
        self._share_as_planned(mine, now)
        self._share_excess(mine, now)

    def _share_as_planned(self, mine: Sequence[int], now: float) -> None:
        rooms: dict[int, int] = {}
        wanted: defaultdict[Hashable, list[_Valve]] = defaultdict(list)
        for valve in self._valves:
            slot = valve.flow.slot
            if slot not in rooms:
                rooms[slot] = self._rooms.of(slot, mine)
            count = min(int(valve.bucket.fill(now, max(1.0, valve.flow.rate * _BURST))), rooms[slot])
            rooms[slot] -= count
            wanted[valve.group] += [valve] * count
        if any(wanted.values()):
            counts = {group: len(each) for group, each in wanted.items()}
            for event in self._lanes.scheduler.take_back(counts, self._may_be_shared):
                valve = wanted[event.group].pop()
                valve.bucket.tokens -= 1
                self._write(event, valve.flow.slot)

    def _share_excess(self, mine: Sequence[int], now: float) -> None:
        """Fills idle lanes of others with what waits here beyond all plans."""
        # What a key costs is known once a call has ended.
        hot = {group: key for group, key in self._hot.items() if key.demand > 0}
        excess, demand = self._excess(), sum(key.demand for key in hot.values())
        if not excess or not hot:
            return
        part = excess / (excess + sum(each.excess for each in self._others()))
        dealt: Counter[int] = Counter()
        wanted: dict[Hashable, list[int]] = {}
        for group, key in hot.items():
            events = math.ceil(excess * key.demand / demand / key.cost)
            wanted[group] = self._spare.deal(
                events, key.cost, part, lambda slot: self._rooms.of(slot, mine) - dealt[slot], now
            )
            dealt.update(wanted[group])
        counts = {group: len(slots) for group, slots in wanted.items()}
        for event in self._lanes.scheduler.take_back(counts, self._may_be_shared) if dealt else []:
            self._write(event, wanted[event.group].pop())
        for group, slots in wanted.items():
            self._spare.give_back(slots, hot[group].cost)

    def _may_write(self, now: float) -> bool:
        return bool(self._hot) and now < self._lanes.scheduler.until and not self._is_open

    @property
    def _is_open(self) -> bool:
        circuit = self._lanes.scheduler.circuit
        return circuit is not None and circuit.is_open

    def _others(self) -> list[Report]:
        return [each for each in self._reports.values() if each.member != self._member]

    def _write(self, event: Event, slot: int) -> None:
        partition = event.source
        assert isinstance(partition, Partition)
        self._rooms.deal(partition, slot)
        partition.give(Given(event, record_of(event, self._overflow, slot), slot))
        (self.dirty if partition.transactions is None else partition.dirty).set()

    def _may_be_shared(self, event: Event) -> bool:
        source = event.source
        assert isinstance(source, Partition)
        if isinstance(event, Surplus) or event.raw.offset in source.unshared:
            return False
        return may_be_written(event, self.largest)

    @property
    def topic(self) -> str:
        """The handler's."""
        return self._lanes.handler.topic.name

    @property
    def slots(self) -> int:
        """How many are ours."""
        return sum(1 for _ in slots_in(self._partitions))

    @property
    def waiting_seconds(self) -> float:
        """Seconds of calls that the open events of our slots need."""
        return self._mean() * sum(slot.lag for slot in slots_in(self._partitions))

    # What is told and heard.

    async def _take_turn(self, board: SlotsBoard) -> None:
        for each in (self._arrived, self._taken):
            half_life = max(self._longer(_HALF_LIFE, _CALLS_OF_HALF_LIFE), 2 * period_of(len(self._reports)))
            each.age(self._clock(), min(_MOST_HALF_LIFE, half_life))
        report = self._report()
        idle: list[float] = []
        self._known[self._member] = report.excess
        await board.tell(self._member, msgspec.json.encode(report))
        period = period_of(len(self._reports))
        began = self._clock()
        while (passed := self._clock() - began) < period and not (passed >= _SOONEST * period and self._must_plan()):
            await asyncio.sleep(_HEAR_SECONDS)
            await board.hear(_HEAR_SECONDS)
            self._hear(board)
            idle.append(self._idle_lanes())
            self.share()
        self._idle = max(0.0, sum(idle) / max(1, len(idle)))
        self._reports[self._member] = report
        self._known = {each.member: each.excess for each in self._reports.values()}
        self._follow(plan_of(self._reports.values()))

    def _must_plan(self) -> bool:
        """Whether much has come to wait since the last plan, and there are idle lanes: here or at others."""
        others = self._others()
        if self._idle_lanes() > 0:
            waits = [(each.member, each.excess, each.lanes) for each in others]
        elif any(each.spare for each in others):
            waits = [(self._member, self._excess(), self._limit())]
        else:
            return False
        much = self._longer(_MUCH, 1.0)
        return any(excess > _MUCH_MORE * self._known.get(member, 0.0) + much * lanes for member, excess, lanes in waits)

    def _hear(self, board: SlotsBoard) -> None:
        told = board.told(remembered_of(len(self._reports)))
        self._heard = {each: self._heard[each] if each in self._heard else _read(each) for each in told}
        reports = with_owners([report for each in told if (report := self._heard[each]) is not None])
        slots = {number: slot for report in reports for number, slot in report.slots.items()}
        self._rooms.hear(slots, self._member)
        self._reports = {report.member: report for report in reports}
        lanes = {slot: each.spare / len(each.slots) for each in self._others() for slot in each.slots}
        self._spare.hear(lanes, self._clock())

    def _follow(self, plan: Plan) -> None:
        self.plan = plan
        before = {(valve.flow.key, valve.flow.slot): valve for valve in self._valves}
        groups = {key.name: group for group, key in self._hot.items()}
        self._valves = []
        for flow in plan.flows:
            if flow.member == self._member and flow.key in groups:
                old = before.get((flow.key, flow.slot))
                bucket = old.bucket if old is not None else Bucket(flow.rate, self._clock())
                bucket.rate = flow.rate
                self._valves.append(_Valve(flow, groups[flow.key], bucket))

    # What we have to do.

    def _report(self) -> Report:
        lanes = self._limit()
        slots = {
            slot.tp.partition: slot
            for slot in slots_in(self._partitions)
            if not slot.closed and self._rooms.is_known(slot)
        }
        if self._clock() >= self._lanes.scheduler.until:
            slots = {}  # the group may have given them to others
        spare = 0.0 if self._is_open else self._idle
        events = self._longer(_IDLE, _CALLS_OF_IDLE) * spare / self._usual_cost() / max(1, len(slots))
        granted = self._grants(slots, lanes)
        told = {
            number: Slot(slot.gaps.position, slot.open_by_input(), granted.get(number, {}), math.ceil(events))
            for number, slot in slots.items()
        }
        keys, demand = self._demands()
        return Report(self._member, lanes, demand, self._arrived.events, keys, told, self._excess(), spare)

    def _idle_lanes(self) -> float:
        """Lanes without a call; less than none if more calls run than lanes should. None while events wait for them."""
        scheduler = self._lanes.scheduler
        return 0.0 if scheduler.waits else self._limit() - len(scheduler.running)

    def _excess(self) -> float:
        """Seconds of calls that wait for our lanes, without those that usually do; 0 if others may not have them."""
        if not self._may_write(self._clock()):
            return 0.0
        lanes, mean, scheduler = self._limit(), self._mean(), self._lanes.scheduler
        begin = max(0.0, lanes - len(scheduler.running))
        waiting = (scheduler.waits - begin) * mean - lanes * max(0.0, _USUAL_BACKLOG - mean)
        return max(0.0, min(waiting, self._backlog()))

    def _backlog(self) -> float:
        """Seconds of calls that the open events of our inputs need, in memory or not, without those that usually do."""
        own = sum(each.lag - each.giving for tp, each in self._partitions.items() if tp.topic == self.topic)
        return max(0.0, own * self._mean() - self._usual())

    def _usual(self) -> float:
        return self._longer(_USUAL_BACKLOG, _CALLS_OF_BACKLOG) * self._limit()

    def _demands(self) -> tuple[list[HotKey], float]:
        """Hot keys, and what all keys bring. Events that wait are to be handled soon, so they count as arriving."""
        costs, mean, seconds = self._lanes.costs, self._mean(), max(self._arrived.seconds, 1e-3)
        candidates: dict[Hashable, HotKey] = {}
        demand, rest = 0.0, self._arrived.events
        others = [costs.seconds, float(costs.events)]
        counts = self._arrived.most(_CANDIDATES)
        for group, count in counts:
            took, events = costs.of(group)
            cost = took / events if events else mean
            candidates[group] = HotKey("", count / seconds * cost, cost, events)
            demand += candidates[group].demand
            rest -= count
            others = [others[0] - took, others[1] - events]
        demand += max(0.0, rest) / seconds * (max(0.0, others[0]) / others[1] if others[1] > 0 else mean)
        often = {group for group, count in counts if count >= _LEAST_COUNT}
        hot = [each for each in candidates.items() if each[0] in often and each[1].demand >= _HOT * demand]
        found = dict(nlargest(_MOST_HOT, hot, key=lambda each: each[1].demand))
        taken = [group for group, _ in self._taken.most(_MOST_HOT) if group not in found and costs.of(group)[1]]
        # What waits may have come long ago, as a burst of which no more comes.
        still = [group for group in self._hot if group not in found] if self._excess() else []
        self._names = {each: self._names.get(each) or name_of(each) for each in (*found, *still, *taken)}
        soon = self._longer(_SOON, _CALLS_OF_SOON)
        factor = 1 + (self._backlog() / soon / demand if demand else 0.0)
        whole = demand + (self._backlog() + max(0.0, self.waiting_seconds - self._usual())) / soon
        kept = [(group, self._hot[group]) for group in still[: _MOST_HOT - len(found)]]
        self._hot = {
            group: HotKey(self._names[group], key.demand * factor, key.cost, key.events) for group, key in found.items()
        }
        self._hot |= {group: msgspec.structs.replace(key, demand=min(key.demand, whole)) for group, key in kept}
        keys = [*self._hot.values()]
        for group in taken:
            took, events = costs.of(group)
            keys.append(HotKey(self._names[group], 0.0, took / events, events))
        return keys, whole

    def _grants(self, slots: Mapping[int, SlotPartition], lanes: float) -> dict[int, dict[str, int]]:
        """How many open events each member may have in each of our slots, by the plan; none while we lag."""
        flows: defaultdict[int, list[Flow]] = defaultdict(list)
        for flow in self.plan.flows:
            if flow.slot in slots:
                flows[flow.slot].append(flow)
        mean = self._usual_cost()
        lag = self._lanes.scheduler.waits * mean / lanes if lanes else 1.0
        whole_room = self._longer(_ROOM, _CALLS_OF_ROOM)
        free = 0.0 if self._is_open else max(0.0, 1 - lag / whole_room)
        room = free * whole_room * lanes / mean / max(1, len(slots))
        found: dict[int, dict[str, int]] = {}
        for number, into in flows.items():
            rates: Counter[str] = Counter()
            for flow in into:
                rates[flow.member] += flow.rate  # type: ignore[assignment]
            whole = sum(rates.values())
            found[number] = {member: math.ceil(room * rate / whole) for member, rate in rates.items()}
        return found

    def _limit(self) -> float:
        """Seconds of calls per second that the member can do."""
        handler, mean = self._lanes.handler, self._mean()
        return min(handler.concurrency, handler.rate * mean) if handler.rate and mean else float(handler.concurrency)

    def _longer(self, seconds: float, calls: float) -> float:
        """What takes so many seconds, or so many mean calls if they are longer."""
        return max(seconds, calls * self._mean())

    def _mean(self) -> float:
        """Seconds of a call per event; 0 while none has ended."""
        costs = self._lanes.costs
        return costs.seconds / costs.events if costs.events else 0.0

    def _usual_cost(self) -> float:
        """Seconds of a call per event: as others say while none has ended here."""
        return self._mean() or max((key.cost for each in self._others() for key in each.keys), default=0.0) or 1.0

    def _inputs(self) -> list[int]:
        return [tp.partition for tp in self._partitions if tp.topic == self.topic]


def _read(told: bytes) -> Report | None:
    try:
        return msgspec.json.decode(told, type=Report)
    except msgspec.DecodeError as error:
        log.debug("a report of another member can't be read, so it is left out: %s", error)
        return None


def board_of(settings: Settings) -> TopicBoard:
    """Where the members of a group tell each other what they have to do."""
    return TopicBoard(settings, sharing_of(settings.group), remembered_of(1))
