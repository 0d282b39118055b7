"""The protocol of all groupings, so that a router needs to know none of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.int64]
Weights = NDArray[np.float64]
Workers = NDArray[np.int32]

CHECKS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Parts of an interval after which it is asked whether a plan is urgent, see `UrgentlyPlanned`."""

EXCHANGES = 32
"""Times in an interval at which sources tell each other what they have brought, see `Exchanging`."""

LEAST_CAPACITY = 0.001
"""The smallest of a worker."""

MOST_CAPACITY = 1000.0
"""The largest of a worker, relative to others.

A millionth of another's is less than one event in the intervals that plans are made of; and what is planned stays far
from what floating-point numbers round away.
"""


class SnapshotError(ValueError):
    """A snapshot that this grouping can't be restored from."""


class HotKey(NamedTuple):
    """One of the heaviest keys that a grouping knows, and how widely it is spread."""

    hash: int
    """The key's hash by the first of the grouping's seeds."""
    width: int
    """Number of workers it is spread over now."""
    share: float
    """Its part of all weight seen lately, 0 to 1."""


class Space(NamedTuple):
    """One of the places in which a grouping keeps what it knows of keys."""

    name: str
    size: int
    """Number of keys (or, where it says so, of buckets that share them all) in it now."""
    capacity: int | None
    """The most that it is meant to hold; None: nothing bounds it."""
    meaning: str
    """Which keys are in it; one phrase for people."""
    hashes: NDArray[np.int64] | None
    """Those keys, by the first of the grouping's seeds; None: every key that is in no later space."""


@dataclass(frozen=True)
class Explanation:
    """Why a key goes where it goes, for people."""

    home: int | None
    """The worker its hash points to; None where the key plays no part."""
    candidates: tuple[int, ...]
    """The workers its next event can go to."""
    width: int
    """Number of candidates."""
    share: float | None
    """Its part of all weight seen lately (0 to 1), None where the grouping keeps no counts or has none of it."""
    age: float | None
    """Seconds since the grouping first saw it, None likewise."""
    why: str
    """One sentence."""
    space: str | None = None
    """Name of the space (see `Grouping.spaces`) that the key is in, the innermost of several; None: in none."""
    hot_since: float | None = None
    """Seconds since when it is hot; None if it isn't, or where the grouping doesn't know."""


class PouredKey(NamedTuple):
    """A key that a plan spreads over several workers."""

    hash: int
    """By the first of the grouping's seeds."""
    share: float
    """Its part of all weight, as the plan expects it."""
    members: tuple[tuple[int, float], ...]
    """Each worker with the part of all weight that it is to get of the key."""


@dataclass(frozen=True)
class Filling:
    """How the plan in force fills the workers, for people; one entry per worker, shares are parts of all weight."""

    level: float | None
    """Water level: planned load, over the fair one, up to which workers are filled with hot keys; None: with none."""
    fair: Weights
    """The share that is each worker's due."""
    light: Weights
    """What the keys bring that have one worker."""
    hot: Weights
    """What is planned of the keys that have several, or are too heavy for one."""
    room: Weights
    """What was left for hot keys above the light ones."""
    filled: Weights
    """Load of the present interval over the level that all should have by now, as far as this source knows it."""
    keys: tuple[PouredKey, ...]
    """The heaviest of the hot keys."""
    hot_keys: int
    """Number of all of them."""


class Grouping(Protocol):
    """Says which worker gets an event.

    Everything is a function of the calls so far: time comes in as `now` (seconds on a clock that never goes
    back), nothing is drawn at random, and no thread runs. One instance serves one thread and estimates loads
    from what it has routed itself.
    """

    @property
    def name(self) -> str:
        """Its name in the registry."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the hashes that route_batch wants, in this order; empty if it looks at no key."""

    @property
    def workers(self) -> int:
        """Number of workers; decisions are 0 to workers - 1."""

    @property
    def epoch(self) -> int:
        """Number of the plan in force; it grows whenever the workers of any key may have changed."""

    @property
    def cold_width(self) -> int:
        """The most workers that a key which isn't hot may use: a key is hot if its width is above that."""

    def route(self, key: bytes | str, weight: float = 1.0, now: float | None = None) -> int:
        """The worker of one event; `now` of None means that no time has passed since the last call."""

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        """The workers of n events: exactly what n calls of `route` with this `now` would say.

        `hashes` has shape (n, len(seeds)), see `keygrouping.hashing.hash_keys`; `weights` has shape (n,), is
        finite and not negative, and None stands for ones. The answer has shape (n,).
        """

    def one_by_one(self, now: float) -> Callable[[bytes | str], int]:
        """A function that routes single events of this time: as `route` does, in a fraction of its time.

        It holds until another method of this grouping is called.
        """

    def bear(self, loads: Weights) -> None:
        """Workers have got this much weight that this grouping has not routed, such as that of a pinned key.

        `loads` has shape (workers,), is finite and not negative, else it is a ValueError. Groupings that go by the
        loads of late route and plan around it; the others do nothing.
        """

    def resize(self, workers: int) -> None:
        """Route to this many workers from now on; a new epoch unless nothing changes."""

    def snapshot(self) -> dict[str, Any]:
        """All state as plain JSON data (settings are not state)."""

    def restore(self, snapshot: Mapping[str, Any], now: float | None = None) -> None:
        """Go on where the snapshot of a grouping with the same name and settings was taken.

        `now` is the time on a clock other than the snapshot's, as in another process: everything goes on as if no
        time had passed. None: it is the same clock.
        Raises SnapshotError, and changes nothing, if it is not such a snapshot.
        """

    def adopt(self, other: "Grouping") -> bool:
        """Go on with what a grouping of the same name has learned under other settings, for as many workers as now.

        Counts, loads and places of keys are kept as far as there is room for them, the heaviest first; settings are
        this instance's own. The epoch is above the other's. False: nothing could be kept, and it starts from nothing.
        Raises ValueError for another grouping.
        """

    def spaces(self) -> tuple[Space, ...]:
        """Where it keeps what it knows of keys, in the order of a key's way through them; empty if it knows none."""

    def explain(self, key: bytes | str) -> Explanation:
        """Why this key goes where it goes; changes nothing."""

    def hot(self, limit: int) -> list[HotKey]:
        """The widest and among them the heaviest of the keys it knows, at most `limit`; none if it keeps no counts."""


@runtime_checkable
class Planned(Grouping, Protocol):
    """A grouping that can route by a plan made of what several sources have seen.

    By itself it goes by what it has seen alone, some by plans of their own. With the settings that
    `registry.shared_settings` names, it is `shared`: at the end of an interval every source gives its statistics,
    one plan is made of all of them (whoever makes it, it is the same), and every source applies it. So
    all of them have the same hot keys, widths and epoch until the next plan, and route alike but for their own loads.
    """

    @property
    def shared(self) -> bool:
        """Whether it leaves planning to its owner."""

    def statistics(self, now: float | None = None) -> dict[str, Any]:
        """What it has seen lately, as plain JSON data of bounded size; a new interval begins.

        `now` as in `route`: a source without events would not notice that time passes.
        """

    def plan(self, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The next plan, as plain JSON data, out of the statistics of all sources (their order doesn't matter).

        It changes nothing, and holds at least `changed` (whether a source that goes by the plan before would route
        otherwise by it), `moved_keys` (how many keys change their workers), `moved_state` (weight of state that has to
        be migrated; 0 where partials are merged instead), `feasible` (whether the loads can be balanced by it) and
        `hot_keys` (how many are wider than `cold_width`).
        A plan has no number: whoever owns the sources numbers it, if that is needed.
        Raises ValueError if these are not statistics for the present number of workers.
        """

    def apply(self, plan: Mapping[str, Any]) -> None:
        """Route by this plan from now on, whatever it was before; a new epoch if the plan says `changed`.

        Raises ValueError, and changes nothing, if it is no plan for the present number of workers.
        """


@runtime_checkable
class UrgentlyPlanned(Planned, Protocol):
    """A planned grouping that can't always wait for the end of an interval.

    Its owner asks after each of the parts `CHECKS` of an interval whether any source finds a plan `urgent`. If so, one
    is made of the interim statistics of all sources, and applied by all: counts go on, as the interval does.
    """

    @property
    def urgent(self) -> bool:
        """Whether a plan is wanted inside of the interval."""

    def interim_statistics(self) -> dict[str, Any]:
        """As `statistics`, of the interval so far, which goes on."""


@runtime_checkable
class Exchanging(Planned, Protocol):
    """A planned grouping whose sources do better if they hear of each other inside of an interval, too.

    `EXCHANGES` times in it its owner asks every source for a report, and tells each those of all others. The sources
    decide by their plan what they make of that; without reports each goes by what it has brought itself.
    """

    def report(self) -> dict[str, Any]:
        """What it has brought to the workers in this interval so far, as plain JSON data."""

    def hear(self, reports: Sequence[Mapping[str, Any]]) -> list[int]:
        """What each other source has told last, all of this interval.

        Those at the positions that it returns are no reports for the present number of workers, and are left out.
        """


@runtime_checkable
class Filled(Grouping, Protocol):
    """A grouping whose plans fill the workers up to a level."""

    def filling(self, limit: int) -> Filling | None:
        """How the plan in force does that, with at most `limit` keys; None if there is no plan yet."""


@runtime_checkable
class Offline(Grouping, Protocol):
    """A grouping that is told the stream's keys beforehand: a bound that no running system can reach."""

    def learn(self, hashes: Hashes, weights: Weights) -> None:
        """Take the whole stream's weight per distinct key, shapes (k, len(seeds)) and (k,)."""
