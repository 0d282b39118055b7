"""What a router says in the page's tests: the shapes of the API, filled with data that a test makes up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Literal

from keygrouping.grouping.registry import describe
from keygrouping_router.api.shapes import (
    AvailableGrouping,
    DryRun,
    FillingReport,
    GroupingReport,
    HistoryEntry,
    IntervalReport,
    KeyEntry,
    KeyReport,
    KeySpaceReport,
    Model,
    OverrideReport,
    OverridesReport,
    PlanInForce,
    PlanReport,
    Readiness,
    Setting,
    SettingDescription,
    ShadowReport,
    StoreReport,
    Thresholds,
    WorkersReport,
)
from keygrouping_router.limits import TOP
from keygrouping_router.naming import named

STRANGE = [
    b"<img src=x onerror=alert(1)>",
    b"tab\there\x00and\x1b[31mthere",
    "ab\u202egnp.exe".encode(),
    b"\xff\xfe\x00",
    b" spaces at both ends ",
    b"",
    b"a/../b?c=d#e",
    b"x" * 3000,
    "Zürich 東京 🚆".encode(),
]
CARRIERS = tuple(b"UA B6 EV DL AA MQ US 9E WN VX FL AS F9 YV HA OO".split())
SPACES = {
    "old": (10, "keys that stayed: they may be widened"),
    "teenage": (40, "keys on their way up"),
    "baby": (50, "new keys"),
}
SHADOWS = {
    "dkg": {"lambda": 1.02, "std_dev": 0.31, "dist_cost": 1.12, "hot_keys": 6},
    "key": {"lambda": 2.4, "std_dev": 7.1, "dist_cost": 1.0, "hot_keys": 0},
    "pkg": {"lambda": 1.31, "std_dev": 1.9, "dist_cost": 1.6, "hot_keys": 0},
    "w-choices": {"lambda": 1.01, "std_dev": 0.2, "dist_cost": 1.4, "hot_keys": 4},
}
AVAILABLE = ["key", "shuffle", "pkg", "dkg", "d-choices", "w-choices", "mixed"]


class Double:
    """What the API answers. A test changes it, and pushes intervals; all of it may be done from another thread."""

    def __init__(self, workers: int = 8, keys: Sequence[bytes] = CARRIERS) -> None:
        self.seconds = 10.0
        self.token: str | None = None
        self.reads_closed = False
        self.status: Literal["ready", "starting"] = "ready"
        self.degraded = False
        self.observe_only = False
        self.grouping_name = "dkg"
        self.fills = True
        self.mode: Literal["fixed", "auto"] = "fixed"
        self.workers = workers
        self.version = 7
        self.hot_width = 4
        self.traffic = 40_000.0
        self.keys = list(keys)
        self.shadows = ["key", "pkg", "w-choices"]
        self.values = {setting.name: setting.default for setting in describe("dkg")}
        self.overrides: dict[str, OverrideReport] = {}
        self.history: list[HistoryEntry] = []
        self.plans: list[PlanReport] = []
        self.sent: list[tuple[int | None, str, Model]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self._random = random.Random(7)
        self._events = 0
        self._intervals = 0
        self.now = datetime.now(UTC)
        self.started = self.now

    # what a test does

    def fill(self, intervals: int) -> None:
        """A past of that many intervals that ends now, with some plans and a change."""
        self.now = datetime.now(UTC) - timedelta(seconds=self.seconds * intervals)
        self.started = self.now
        for index in range(intervals):
            self.push(converged=index / 5)
            if index < 8 or index % 9 == 0:
                self.plan()
            if index == intervals // 2:
                self.control("thresholds", {"check_interval": 60.0}, {"check_interval": 30.0}, "api")

    def push(self, converged: float = 5.0, busiest: float | None = None) -> None:
        """The next interval; `converged`: 0 as uneven as key hashing, from 3 on even; `busiest`: λ, one has it all."""
        self.now += timedelta(seconds=self.seconds)
        self._intervals += 1
        self._events += int(self.traffic)
        spread = 0.9 * 2.7 ** -min(converged, 3) + 0.02
        weights = [max(0.05, 1 + spread * self._random.gauss(0, 1)) for _ in range(self.workers)]
        if busiest is not None:
            weights = [busiest, *[(self.workers - busiest) / (self.workers - 1)] * (self.workers - 1)]
        self.loads = [round(self.traffic * weight / sum(weights)) for weight in weights]
        self.sent.append((self._intervals, "interval", self.interval()))

    def plan(self, moved: int | None = None) -> None:
        """Another plan comes into force; it has moved so many keys."""
        plan = PlanReport(
            epoch=len(self.plans) + 1,
            at=self.now,
            round=None,
            by="r1",
            grouping="dkg",
            workers=self.workers,
            hot_keys=sum(self._hot(rank) for rank in range(len(self.keys))),
            moved_keys=len(self.plans) % 3 if moved is None else moved,
            moved_state=0,
            feasible=True,
            plan_ms=0.4,
            details={},
        )
        self.plans.append(plan)
        self.sent.append((None, "plan", plan))

    def plan_in_force(self) -> PlanInForce:
        """The last plan; its hot keys fill every worker above a third of its fair share."""
        return PlanInForce(**dict(self.plans[-1]), filling=self._filling() if self.fills else None)

    def control(self, what: Any, before: dict[str, Any], after: dict[str, Any], by: str = "api") -> None:
        """Somebody changed something."""
        self.version += 1
        entry = HistoryEntry(at=self.now, by=by, version=self.version, what=what, before=before, after=after)
        self.history.append(entry)
        self.sent.append((None, "control", entry))

    # answers

    def head(self) -> dict[str, Any]:
        average = self.traffic / self.workers
        worst = self._share(0) * self.workers if self.keys else 1.0
        return {
            "grouping": "dkg",
            "workers": self.workers,
            "epoch": len(self.plans),
            "replicas": ["r1", "r2", "r3"],
            "interval_seconds": self.seconds,
            "events": self._events,
            "total_keys": len(self.keys),
            "tracked_keys": len(self.keys),
            "spaces": self._spaces(),
            "loads": self.loads,
            "lambda": max(self.loads) / average if average else None,
            "least_share": min(self.loads) / average if average else None,
            "std_dev": 0.31 if average else None,
            "dist_cost": 1.12,
            "lambda_before": min(self.workers, max(1.3, worst + 0.5)) if average else None,
            "at": self.now,
        }

    def interval(self) -> IntervalReport:
        return IntervalReport(**self.head(), hot=[self.entry(rank) for rank in range(min(TOP, len(self.keys)))])

    def entry(self, rank: int) -> KeyEntry:
        share, hot = self._share(rank), self._hot(rank)
        width = max(1, min(self.workers, self.hot_width * 4 // (rank + 3))) if hot else 2
        return KeyEntry(
            **named(self.keys[rank]),
            count=round(share * 1e6),
            error=120,
            share=share,
            share_low=share * 0.98,
            share_high=min(1, share * 1.01),
            width=width,
            hot=hot,
            workers=[(rank * 7 + step) % self.workers for step in range(min(width, self.workers))],
            space=self._space(rank),
            first_seen=self.started,
            last_seen=self.now,
            hot_since=self.started + timedelta(seconds=rank * 40) if hot else None,
        )

    def _filling(self) -> FillingReport:
        fair = 1 / self.workers
        light = [fair * (0.4 + 0.5 * self._random.random()) for _ in range(self.workers)]
        hot = [rank for rank in range(min(TOP, len(self.keys))) if self._hot(rank)]
        poured = sum(fair - share for share in light)
        workers = [
            {"worker": worker, "fair": fair, "light": share, "hot": fair - share, "room": fair - share, "filled": 1.0}
            for worker, share in enumerate(light if hot else [fair] * self.workers)
        ]
        keys = [
            {
                **named(self.keys[rank]),
                "share": poured / len(hot),
                "members": [
                    {"worker": worker, "share": (fair - share) / len(hot)} for worker, share in enumerate(light)
                ],
            }
            for rank in hot
        ]
        report = {"level": 1.0 if hot else None, "workers": workers, "hot_keys": len(hot), "keys": keys}
        return FillingReport.model_validate(report)

    def readiness(self) -> Readiness:
        state: Literal["ok", "degraded"] = "degraded" if self.degraded else "ok"
        detail = "redis://store:6379: connection refused" if self.degraded else None
        starting = self.status == "starting"
        return Readiness(
            status=self.status,
            assigned=[0, 1],
            caught_up=not starting,
            lag=120_000 if starting else 3,
            store=StoreReport(name="redis", state=state, since=self.now, detail=detail),
        )

    def settings(self) -> list[Setting]:
        return [Setting(**setting._asdict(), value=self.values[setting.name]) for setting in describe("dkg")]

    def thresholds(self) -> Thresholds:
        return Thresholds(grouping="dkg", version=self.version, settings=self.settings())

    def dry_run(self) -> DryRun:
        widths = [{**named(key), "before": 2 + rank % 3, "after": 3 + rank % 3} for rank, key in enumerate(self.keys)]
        changes = {
            "hot_keys": {"before": 6, "after": 9},
            "cold_width": {"before": 1, "after": 2},
            "widths": widths,
            "lambda": {"before": 1.31, "after": 1.06},
            "dist_cost": {"before": 1.12, "after": 1.15},
            "sampled_events": 100_000,
        }
        return DryRun.model_validate({"changes": changes, "settings": self.settings()})

    def workers_report(self) -> WorkersReport:
        total = sum(self.loads) or 1
        items = [
            {
                "worker": index,
                "state": "active",
                "load": load,
                "share": load / total,
                "load_of_ideal": load / total * self.workers,
                "capacity": 1,
                "lag": index * 3,
            }
            for index, load in enumerate(self.loads)
        ]
        rest = {"load": 0, "share": 0, "load_of_ideal": 0, "capacity": 1}
        items += [
            {**rest, "worker": self.workers, "state": "draining", "lag": 412},
            {**rest, "worker": self.workers + 1, "state": "unused", "lag": 0},
        ]
        report = {
            "workers": self.workers,
            "mode": self.mode,
            "max_workers": self.workers + 8,
            "total_lag": 412,
            "items": items,
            "lambda": 1.02 if self.traffic else None,
            "least_share": 0.98 if self.traffic else None,
            "epoch": 1,
            "version": self.version,
        }
        return WorkersReport.model_validate(report)

    def overrides_report(self) -> OverridesReport:
        return OverridesReport(version=self.version, epoch=1, items=list(self.overrides.values()))

    def override(self, key: bytes, body: Any) -> OverridesReport:
        """Somebody says where a key goes, or with no body leaves it to the grouping."""
        entry = named(key)
        before = {entry["id"]: "overridden"} if self.overrides.pop(entry["id"], None) else {}
        if body is not None:
            until = self.now + timedelta(seconds=body["seconds"])
            workers = [body["worker"]] if "worker" in body else [0, 1]
            given = {"worker": body.get("worker"), "width": body.get("width"), "resting": None}
            report = {**entry, "action": body["action"], **given, "until": until, "workers": workers}
            self.overrides[entry["id"]] = OverrideReport.model_validate(report)
        self.control("overrides", before, {} if body is None else {entry["id"]: body})
        return self.overrides_report()

    def grouping(self) -> GroupingReport:
        available = [
            AvailableGrouping(
                name=name,
                meaning=f"the grouping {name}",
                settings=[SettingDescription(**setting._asdict()) for setting in describe(name)],
            )
            for name in AVAILABLE
        ]
        return GroupingReport(
            name=self.grouping_name,
            settings={},
            version=self.version,
            epoch=1,
            sharing="shared",
            observe_only=self.observe_only,
            seed="5f3c",
            available=available,
        )

    def shadow(self) -> ShadowReport:
        names = ["dkg", *self.shadows] if self.shadows else []
        rows = [
            {
                "name": name,
                "settings": {},
                "in_force": name == "dkg",
                "events": 4_012,
                **SHADOWS.get(name, SHADOWS["key"]),
            }
            for name in names
        ]
        run = [{**row, "events": 512_345} for row in rows]
        report = {
            "sample": 0.1,
            "sampled_part": 0.05,
            "sampled_events": 512_345,
            "interval_seconds": self.seconds,
            "groupings": rows,
            "run": run,
            "version": self.version,
        }
        return ShadowReport.model_validate(report)

    def found(self, query: dict[str, str]) -> KeySpaceReport:
        prefix, space = query.get("prefix", "").encode(), query.get("space")
        ranks = [
            rank for rank, key in enumerate(self.keys) if key.startswith(prefix) and space in (None, self._space(rank))
        ]
        if query.get("sort") == "key":
            ranks.sort(key=self.keys.__getitem__)
        first = int(query.get("offset", 0))
        entries = [self.entry(rank) for rank in ranks[first : first + int(query["limit"])]]
        return KeySpaceReport(**self.head(), keys=entries, total=len(ranks))

    def explained(self, key: bytes) -> KeyReport:
        entry = self.entry(self.keys.index(key))
        why = f"it is hot: spread over {entry.width} workers, the least loaded of them gets the next event"
        return KeyReport(**dict(entry), home=entry.workers[0], candidates=entry.workers, age_seconds=61, why=why)

    def _share(self, rank: int) -> float:
        return float((rank + 1) ** -1.1 / _total(len(self.keys)))

    def _hot(self, rank: int) -> bool:
        return rank < 6 and self.hot_width > 1

    def _space(self, rank: int) -> str:
        return "old" if rank < 10 else "teenage" if rank < 50 else "baby"

    def _spaces(self) -> list[dict[str, Any]]:
        found = [self._space(rank) for rank in range(min(len(self.keys), 100))]
        return [
            {"name": name, "size": (size := found.count(name)), "kept": size, "capacity": capacity, "meaning": meaning}
            for name, (capacity, meaning) in SPACES.items()
        ]


@cache
def _total(keys: int) -> float:
    return sum(float((rank + 1) ** -1.1) for rank in range(keys))


def keys_of(n: int) -> list[bytes]:
    """The strange keys and many ordinary ones."""
    return [*STRANGE, *(f"customer-{number:05d}".encode() for number in range(n - len(STRANGE)))]
