"""Level-fill: shuffle's balance at key grouping's cost.

A light key has one owner. A heavier key fills its members up to a level that rises with the average load, and gets one
more worker only when all of them are full; heavy keys spill first. Each interval a plan that moves as little as it can
places the keys that fit on one worker, and pours the others to one common water level above them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._ticks import Ticks
from keygrouping.grouping.base import NO_WEIGHTS, BaseGrouping, kernel_arrays, loads_from
from keygrouping.grouping.level_fill.buckets import resized
from keygrouping.grouping.level_fill.exchange import Report, Swing, light_in_each, may_level_together, parts_swing
from keygrouping.grouping.level_fill.keys import Keys
from keygrouping.grouping.level_fill.message import Plan
from keygrouping.grouping.level_fill.plan import Placement, Shares, moved, place, rock_share
from keygrouping.grouping.level_fill.scramble import restored, scrambled
from keygrouping.grouping.level_fill.settings import LevelFillSettings
from keygrouping.grouping.level_fill.shares import Counts, Estimates, Seen
from keygrouping.grouping.level_fill.sizes import capacities_for, empty_arrays, hot_from, tracked_from
from keygrouping.grouping.level_fill.state import CAUSES, STATE, WAYS, Arrays
from keygrouping.grouping.level_fill.strain import above, strain
from keygrouping.grouping.protocol import (
    CHECKS,
    Explanation,
    Filling,
    Hashes,
    HotKey,
    PouredKey,
    Space,
    Weights,
    Workers,
)
from keygrouping.hashing import SEED, fingerprint_of, hash_key

_REPORTED = 0.25
_URGENT = (1.1, 4.0)


class LevelFill(BaseGrouping[LevelFillSettings]):
    """Cold keys go to the owners of their hashes, tracked keys fill their members up to the level.

    The level is the average load of this interval, as this source has routed it, so several sources need not talk to
    each other but for the plan. A tracked key whose members are all full spills: a light one above a tolerance that
    is the larger the lighter it is, to a second worker by its hash; a hot one at once, to workers where the plan has
    seen room. Counting starts from zero in each interval; estimated shares, owners and members outlast it.

    Besides the plan at the end of an interval there are urgent ones inside of it (see `CHECKS` and `urgent`): made of
    `interim_statistics` in place of `statistics`, they leave counts, loads and level alone.

    Memory: per worker up to 64 counters with their keys (180 bytes each) and 128 buckets (12 bytes each), of them at
    least 4096 in all; 8 bytes for each pair of workers, up to 4096 per worker, and twice that while a
    plan is applied; and the plan in force.
    """

    name: ClassVar[str] = "level-fill"
    settings = LevelFillSettings
    shared_settings: ClassVar[Mapping[str, object] | None] = {"interval": None}
    secret_setting: ClassVar[str | None] = "seed"
    seeds = (SEED,)

    def __init__(self, workers: int, settings: LevelFillSettings | None = None) -> None:
        super().__init__(workers, settings)
        self._ticks = None if self._settings.interval is None else Ticks(self._settings.interval)
        self._checked = 0
        self._fingerprint = fingerprint_of(self._settings.seed)
        self._arrays = empty_arrays(self._settings, workers)
        self._home = self._arrays.owners.copy()
        """The worker of each bucket while nothing tells against it."""
        self._outside = np.zeros(workers)
        """Weight of this interval that others have routed to each worker."""
        self._swing = Swing()
        self._part = 1.0
        """Of all that can be leveled out, what this source can."""
        self._counted: Counts | None = None
        """What this source told last."""
        self._take(None)

    @property
    def epoch(self) -> int:
        """Plans and changes of the number of workers; unless plans are shared, changes of the members of keys, too."""
        return self._epoch + (0 if self.shared else int(self._arrays.state["changes"][0]))

    @property
    def shared(self) -> bool:
        return self._settings.interval is None

    @property
    def urgent(self) -> bool:
        """Whether a plan is wanted inside of the interval.

        There is none yet, the present one is made of fewer events than this interval has had, or loads show that it is
        wrong. Never while keys drift: what a part of the interval tells of them is past when the plan is there, and
        keys that are full have got more workers by themselves.
        """
        arrays = self._arrays
        if not self._settings.planned or not arrays.mass or self._estimates.drifts:
            return False
        factor, noise = _URGENT
        average, unit = arrays.average, float(arrays.state["unit"][0])
        limit = factor - 1 + noise * np.sqrt(unit / average) if average else 0.0
        if self._estimates.events < arrays.mass / unit:
            return True
        if float(above(arrays, self._outside).max()) <= limit:
            return False
        return not self._estimates.strains.keeps(strain(arrays, self._outside, self._settings))

    def _bear(self, loads: Weights) -> None:
        self._outside += loads
        self._arrays.loads[:] += loads * self._arrays.slowness
        self._arrays.bear(self._outside, float(loads.sum()))

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        hashes, weights = kernel_arrays(hashes, weights, 1)
        if not len(hashes):
            return np.empty(0, np.int32)
        return _routed(self._arrays_at(now), scrambled(hashes, self._settings.seed), weights)

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        from keygrouping.grouping.level_fill.route_kernel import each_by_level

        return each_by_level(event, NO_WEIGHTS, self._arrays_at(now), np.uint64(self._settings.seed))

    def _arrays_at(self, now: float) -> Arrays:
        self._advance(now)
        self._arrays.state["now"] = self._now
        if self._together:
            self._arrays.go_deaf(self._outside, levels=self._part > 0.0)
        return self._arrays

    def statistics(self, now: float | None = None) -> dict[str, Any]:
        """Columns of keys and buckets, see `Counts`; a new interval begins."""
        self._advance(self._now if now is None else now)
        counts = self._counts(whole=True)
        self._begin_interval()
        return counts.to_data(self._workers, self._fingerprint)

    def interim_statistics(self) -> dict[str, Any]:
        """As `statistics`, of the interval so far, which goes on: for an urgent plan."""
        return self._counts(whole=False).to_data(self._workers, self._fingerprint)

    def report(self) -> dict[str, Any]:
        """See `protocol.Exchanging`, and `exchange.Report` for what it tells."""
        arrays = self._arrays
        return Report(arrays.own, self._outside, self._fixed, arrays.movable).to_data()

    def hear(self, reports: Sequence[Mapping[str, Any]]) -> list[int]:
        told = [Report.parsed(report, self._workers) for report in reports]
        others = Report.sum_of([report for report in told if report is not None], self._workers)
        arrays = self._arrays
        every, outside = arrays.mass + float(others.loads.sum()), self._outside + others.outside
        due = np.maximum(every / self._workers, outside * arrays.slowness)
        filled = (arrays.own + others.loads) * arrays.slowness
        self._swing = self._swing.saw(arrays.mass, every, float((filled / due).max()) if every else 1.0)
        own = arrays.movable
        part = self._part = own / (own + others.movable) if own + others.movable else 1.0
        if self._together:
            fixed = self._fixed
            mine, theirs = np.maximum(0.0, arrays.own - fixed), np.maximum(0.0, others.loads - others.fixed)
            there = np.divide(mine, mine + theirs, where=mine + theirs > 0, out=np.zeros(self._workers))
            gaps = part * (fixed + others.fixed) - fixed
            arrays.beside(others.loads, outside, np.maximum(part, there), gaps)
        return [position for position, report in enumerate(told) if report is None]

    def plan(self, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The next plan; see `protocol.Planned`, and `message.Plan` for what else it tells."""
        buckets = len(self._arrays.owners)
        counts = [Counts.parsed(source, self._workers, buckets, self._fingerprint) for source in statistics]
        return self._plan_by(counts).to_data()

    def _plan_by(self, counts: Sequence[Counts]) -> Plan:
        arrays = self._arrays
        seen = Seen.merged(counts, arrays.owners, self._workers)
        sets = len(arrays.hashes) // WAYS
        chosen = self._settings
        estimates, shares = self._estimates.next(seen, chosen.memory, self._threshold(), chosen.evidence, sets)
        tells = seen.whole and not self._estimates.lulled(seen.events)
        placement = self._placed(replace(shares, keep=shares.keep or (tells and parts_swing(counts))))
        together = self._next_together(counts, placement) if tells else _still_together(self._plan, placement)
        return self._planned(shares.keys, placement, estimates, together)

    def apply(self, plan: Mapping[str, Any]) -> None:
        self._follow(Plan.parsed(plan, self._workers, len(self._arrays.owners), self._fingerprint))

    def _follow(self, plan: Plan) -> None:
        self._install(plan)
        if self._together and not plan.placement.few_hot:
            self._expect(plan)
        self._epoch += 1

    def explain(self, key: bytes | str) -> Explanation:
        hashed = int(scrambled(np.array([hash_key(key)], np.int64), self._settings.seed)[0])
        arrays = self._arrays
        owner = int(arrays.owners[hashed & (len(arrays.owners) - 1)])
        counted = np.flatnonzero((arrays.hashes == hashed) & ((arrays.counts > 0) | arrays.tracked))
        tracked = len(counted) > 0 and bool(arrays.tracked[counted[0]])
        members = self._members(int(counted[0])) if tracked else [owner]
        following = int(_routed(_around(arrays, hashed), np.array([[hashed]], np.int64), np.ones(1))[0])
        candidates = tuple(members if following in members else [*members, following])
        home = owner if candidates[0] == owner else None
        if not tracked:
            why = f"a cold key: worker {owner} owns its part of the hashes"
            share, space = (self._counted_share(counted[0]), "cold") if len(counted) else (None, None)
            return Explanation(home, candidates, len(candidates), share, None, why, space)
        record = arrays.keys[counted[0]]
        hot = len(members) > 1
        return Explanation(
            home,
            candidates,
            len(candidates),
            float(record["share"]),
            self._now - float(record["since"]),
            self._why(hashed, record, members),
            "hot" if hot else "tracked",
            self._now - float(record["hot_since"]) if hot else None,
        )

    def hot(self, limit: int) -> list[HotKey]:
        slots = np.flatnonzero(self._arrays.tracked)
        hashes, keys = self._arrays.hashes[slots], self._arrays.keys
        widths, shares = keys["width"][slots], keys["share"][slots]
        order = np.lexsort((hashes, -shares, -widths))[: max(0, limit)]
        columns = (self._told(hashes[order]).tolist(), widths[order].tolist(), shares[order].tolist())
        return [HotKey(*key) for key in zip(*columns, strict=True)]

    def spaces(self) -> tuple[Space, ...]:
        arrays, slots = self._arrays, len(self._arrays.hashes)
        wide, told = arrays.keys["width"] > 1, self._told(arrays.hashes)
        cold = told[(arrays.counts > 0) & ~arrays.tracked]
        tracked, hot = told[arrays.tracked & ~wide], told[arrays.tracked & wide]
        known = f"keys from {100 * self._threshold():.2g} % on, of one worker"
        return (
            Space("cold", len(cold), slots, "counted keys that the owner of their hashes has", cold),
            Space("tracked", len(tracked), slots, known, tracked),
            Space("hot", len(hot), slots, "tracked keys that several workers share", hot),
        )

    def filling(self, limit: int) -> Filling | None:
        if self._plan is None:
            return None
        placement, workers = self._plan.placement, self._workers
        keys = placement.keys
        poured = (keys.width > 1) | (keys.shares > placement.heaviest_rock)
        places = np.repeat(poured, keys.known)
        hot = np.bincount(keys.members[places], keys.taken[places], workers).astype(np.float64)
        chosen = np.flatnonzero(poured)
        heaviest = chosen[np.lexsort((keys.hashes[chosen], -keys.shares[chosen]))][:limit].tolist()
        told = self._told(keys.hashes[heaviest]).tolist()
        average = self._arrays.average
        return Filling(
            placement.level,
            self._fair(),
            np.maximum(placement.loads - hot, 0.0),
            hot,
            placement.room,
            (self._arrays.loads + self._arrays.left) / average if average else np.zeros(workers),
            tuple(_poured(keys, k, hashed) for k, hashed in zip(heaviest, told, strict=True)),
            len(chosen),
        )

    def _told(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """These, as everybody knows them."""
        return restored(hashes, self._settings.seed)

    def _members(self, slot: int) -> list[int]:
        key = self._arrays.keys[slot]
        return [int(worker) for worker in self._arrays.pool[key["start"] : key["start"] + key["width"]]]

    def _counted_share(self, slot: int) -> float | None:
        """At least this part of the interval's weight is the key's, by its counter; None if nothing is certain."""
        arrays = self._arrays
        certain = float(arrays.counts[slot] - arrays.errors[slot])
        every = arrays.mass * float(arrays.state["scope"][0])
        return certain / every if certain > 0 and every else None

    def _why(self, hashed: int, key: Any, members: list[int]) -> str:
        planned = {} if self._plan is None else self._plan.placement.keys.taken_of(hashed)
        room = self._arrays.room

        def told(worker: int) -> str:
            if not planned:
                return str(worker)
            share = f"{worker} (planned {100 * planned.get(worker, 0.0):.2f} %"
            return f"{share}, room {100 * room[worker]:.2f} %)" if key["hot"] else f"{share})"

        kind, share, fair = "heavy" if key["hot"] else "tracked", 100 * float(key["share"]), 100 / self._workers
        text = (
            f"a {kind} key with {share:.2f} % of the weight (fair share {fair:.2f} %) "
            f"fills worker{'s' * (len(members) > 1)} {', '.join(map(told, members))} to the level"
        )
        if not planned:
            text += ", by no plan yet"
        if not key["cause"] or len(members) == 1:
            return text
        return f"{text}; widened {self._now - float(key['widened']):.1f} s ago: {CAUSES[key['cause']]}"

    def _advance(self, now: float) -> None:
        """Plan if the interval, or enough of it, has passed; several that have passed end at once."""
        self._now = max(now, self._now)
        if self._ticks is None:
            return
        ended = self._ticks.passed(self._now)
        due = sum(self._ticks.part(self._now) >= check for check in CHECKS)
        if ended:
            counts = self._counts(whole=True)
            self._begin_interval()
            self._follow_own(counts)
        elif due > self._checked and self.urgent:
            self._follow_own(self._counts(whole=False))
        self._checked = due

    def _begin_interval(self) -> None:
        heard = self._swing.all[-1] / float(self._arrays.state["unit"][0]) if self._swing.all else np.inf
        self._arrays.begin_interval()
        self._swing = self._swing.ended(tells=not self._estimates.lulled(heard))
        self._outside = np.zeros(self._workers)

    def _follow_own(self, counts: Counts) -> None:
        """Plan alone; not by way of messages, which take as long to write and to read as the plan does to make."""
        if counts.mass:
            self._follow(self._plan_by([counts]))

    def _counts(self, whole: bool) -> Counts:
        arrays = self._arrays
        certain = arrays.counts - arrays.errors
        least = max(self._settings.evidence * float(arrays.state["unit"][0]), self._threshold() * arrays.mass)
        slots = np.flatnonzero(arrays.tracked | (certain >= _REPORTED * least) & (certain > 0))
        slots = slots[np.argsort(arrays.hashes[slots])]
        tracked, keys = arrays.tracked[slots], arrays.keys[slots]
        known = np.where(tracked, keys["known"], 0).astype(np.int64)
        places = np.repeat(keys["start"] - np.cumsum(known) + known, known) + np.arange(int(known.sum()))
        self._counted = Counts(
            whole,
            arrays.mass,
            float(arrays.state["squares"][0]),
            arrays.hashes[slots],
            certain[slots],
            arrays.mass - arrays.begun[slots],
            np.maximum(arrays.cold, 0.0),
            tracked,
            known,
            np.where(tracked, keys["width"], 0).astype(np.int64),
            arrays.pool[places],
            self._outside.copy(),
            strain(arrays, self._outside, self._settings),
            self._swing.most,
            self._swing.part,
        )
        return self._counted

    def _placed(self, shares: Shares) -> Placement:
        owners, fair = self._arrays.owners, self._fair()
        eps, split = self._settings.eps, self._settings.split == "all"
        if self._settings.planned:
            widths = self._settings.widths
            return place(shares, owners, self._home, fair, eps, split_light=split, widths=widths)
        heaviest_rock = rock_share(shares, fair, eps, split_light=split)
        return Placement(owners, self._home, shares.keys, heaviest_rock, fair, fair, None, 0)

    def _planned(self, before: Keys, placement: Placement, estimates: Estimates, together: bool) -> Plan:
        moved_keys = moved(before, placement.keys, self._workers)
        return Plan.made(
            placement, estimates, self._fair(), self._settings.eps, moved_keys, together, self._fingerprint
        )

    def _install(self, plan: Plan) -> None:
        """Route by a plan for the present number of workers; counts, loads and level go on."""
        from keygrouping.grouping.level_fill.install_kernel import install

        before = self._arrays
        if plan.together and not self._together:  # Light in the whole stream is what the plan has left out.
            before.keys["planned"][before.tracked] = True
        self._arrays = before._replace(owners=plan.placement.owners, pool=np.zeros(len(before.pool), np.int32))
        self._take(plan)
        self._let_run(plan)
        self._arrays.state["now"] = self._now
        install(self._arrays, before.pool, plan.placement.keys)

    def _let_run(self, plan: Plan) -> None:
        """Say how far runs may go above the level from now on."""
        self._arrays.state["held"] = self._settings.eps * self._arrays.run_excess(plan.estimates.interval)

    def _expect(self, plan: Plan) -> None:
        """Let loads grow by what others should bring of keys with one worker by this plan, until they are heard.

        What they brought before it is past: where light keys had several workers and get one again, hot keys of other
        sources would be filled into their place, and so light ones spill at once, for ever.
        """
        counted = self._counted
        if counted is None or not counted.mass or not counted.part:
            return
        own = plan.placement.fixed_of(counted.hashes, np.where(counted.tracked, counted.counts, 0.0), counted.cold)
        gaps = self._part * plan.placement.fixed / counted.part - (own + counted.outside) / counted.mass
        self._arrays.expect(gaps, 1.0 / counted.part)

    def _take(self, plan: Plan | None) -> None:
        """Know a plan, without any change of the tracked keys."""
        arrays = self._arrays
        self._plan = plan
        if plan is not None:
            self._home = plan.placement.home
        if not self._together:
            arrays.alone(self._outside)
        if plan is not None:
            arrays.room[:] = plan.placement.room
            least = 0.0 if self._settings.split == "all" else hot_from(self._settings, self._workers)
            arrays.rules["hot_share"] = max(plan.placement.heaviest_rock, least)
            arrays.state["flexible"] = plan.flexible and self._settings.flexible > 0

    @property
    def _together(self) -> bool:
        """Whether the sources level the whole stream."""
        return self._plan is not None and self._plan.together

    def _next_together(self, counts: Sequence[Counts], placement: Placement) -> bool:
        """Whether the sources, which have counted this in an interval, level the whole stream in the next one."""
        fills = not placement.few_hot or light_in_each(counts, self._workers, already=self._together)
        return fills and may_level_together(counts)

    @property
    def _fixed(self) -> Weights:
        """Weight of this interval that went where no level could have moved it."""
        return self._arrays.fixed + self._outside

    @property
    def _estimates(self) -> Estimates:
        return Estimates.none(len(self._arrays.owners)) if self._plan is None else self._plan.estimates

    def _threshold(self) -> float:
        return tracked_from(self._settings, self._workers)

    def _fair(self) -> Weights:
        return capacities_for(self._settings, self._workers) / self._workers

    def _resized(self) -> None:
        """New workers take an equal part of each old one's buckets, and the tracked keys are placed again."""
        before, plan = self._arrays, self._plan
        self._arrays, self._outside = empty_arrays(self._settings, self._workers), np.zeros(self._workers)
        self._swing, self._part, self._counted = self._swing.restarted(), 1.0, None
        owners = self._arrays.owners
        owners[:] = resized(before.owners, len(before.loads), len(owners), self._workers)
        self._home = resized(self._home, len(before.loads), len(owners), self._workers)
        self._arrays.state["changes"] = before.state["changes"]
        self._take(None)
        if plan is not None:
            estimates = plan.estimates.folded(len(owners))
            keys = plan.placement.keys.within(self._workers, owners)
            known = (estimates.cold, estimates.events, estimates.interval)
            shares = Shares(keys, *known, self._outside, bursts=0.0, keep=False)
            placement = self._placed(shares)
            self._install(self._planned(keys, placement, estimates, _still_together(plan, placement)))
            self._remember(before, counted=False)
            if self._together:
                self._arrays.state["scope"] = before.state["scope"]

    def _state(self) -> Any:
        began = None if self._ticks is None else self._ticks.began
        plan = None if self._plan is None else self._plan.to_data()
        own = {"began": began, "checked": self._checked, "plan": plan, "outside": self._outside.tolist()}
        own |= {"swing": self._swing.to_data(), "part": self._part, "fingerprint": self._fingerprint}
        return own | self._arrays.to_data()

    def _restore_state(self, state: Any, shift: float) -> None:
        if state["fingerprint"] != self._fingerprint:
            raise ValueError("that of another seed")
        began, checked = Ticks.checked(state["began"], shift), int(state["checked"])
        arrays, outside = (
            empty_arrays(self._settings, self._workers).filled(state, shift),
            loads_from(state["outside"], self._workers),
        )
        data, swing = state["plan"], Swing.parsed(state["swing"])
        part = float(loads_from([state.get("part", 1.0)], 1)[0])
        plan = None if data is None else Plan.parsed(data, self._workers, len(arrays.owners), self._fingerprint)
        self._arrays, self._outside, self._checked, self._swing, self._part = arrays, outside, checked, swing, part
        self._home = arrays.owners.copy()
        if self._ticks is not None:
            self._ticks.began = began
        self._take(plan)
        if plan is not None and len(state["numbers"]) < len(STATE.names or ()):  # of a version without runs
            self._let_run(plan)
        self._refit(slack=False)

    def _take_over(self, other: Self) -> bool:
        """Without a snapshot, which would hold up routing for as long as thousands of keys take to be written down."""
        if other._fingerprint != self._fingerprint:
            return False
        own, before = empty_arrays(self._settings, self._workers), other._arrays
        self._now, self._epoch, self._checked = other._now, other._epoch, other._checked
        self._outside, self._swing, self._home = other._outside.copy(), other._swing.restarted(), other._home
        self._part, self._counted = other._part, other._counted
        if self._ticks is not None:
            self._ticks.began = None if other._ticks is None else other._ticks.began
        if len(own.hashes) == len(before.hashes):
            self._arrays = before.copied()._replace(slowness=own.slowness, rules=own.rules)
            self._take(other._plan)
        else:
            self._take_over_plan(own, other)
        self._refit(slack=True)
        return True

    def _take_over_plan(self, own: Arrays, other: Self) -> None:
        """What goes into another number of counters: the keys of the plan, with their counts."""
        kept = {
            name: getattr(other._arrays, name).copy()
            for name in ("owners", "cold", "loads", "brought", "left", "expected", "state")
        }
        self._arrays = own._replace(**kept)
        self._arrays.state["pool_used"] = own.state["pool_used"]
        self._take(None)
        if other._plan is not None:
            self._install(other._plan)
            self._remember(other._arrays, counted=True)

    def _remember(self, before: Arrays, *, counted: bool) -> None:
        from keygrouping.grouping.level_fill.install_kernel import remember

        remember(self._arrays, before, counted)

    def _refit(self, *, slack: bool) -> None:
        """Hold tracked keys to these settings where they were classified by others; `slack`: that is certain."""
        from keygrouping.grouping.level_fill.install_kernel import refit

        refit(np.flatnonzero(self._arrays.tracked), self._arrays, slack)


def _still_together(plan: Plan | None, placement: Placement) -> bool:
    """Whether sources that level the whole stream by a plan go on so with the next one, inside of an interval or after
    one with hardly any events.

    Not if hot keys have filled the gaps, and are few now. That light keys do, only whole intervals tell.
    """
    return plan is not None and plan.together and (plan.placement.few_hot or not placement.few_hot)


def _around(arrays: Arrays, hashed: int) -> Arrays:
    """Copies of all that an event of this key can change, with no more counters than those of its set."""
    from keygrouping.grouping.level_fill.route_kernel import set_of

    first = int(set_of(np.int64(hashed), len(arrays.hashes)))
    columns = ("hashes", "counts", "errors", "begun", "tracked", "keys")
    return arrays._replace(**{name: getattr(arrays, name)[first : first + WAYS] for name in columns}).copied()


def _poured(keys: Keys, k: int, hashed: int) -> PouredKey:
    first = int(keys.known[:k].sum())
    part = slice(first, first + int(keys.width[k]))
    members = tuple(zip(keys.members[part].tolist(), keys.taken[part].tolist(), strict=True))
    return PouredKey(hashed, float(keys.shares[k]), members)


def _routed(arrays: Arrays, hashes: Hashes, weights: Weights) -> Workers:
    from keygrouping.grouping.level_fill.route_kernel import route_levels

    return route_levels(hashes, weights, arrays)
