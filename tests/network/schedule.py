"""Faults drawn from a seed: what happens, to whom, when and for how long."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from keygrouping_local.cluster import BROKERS

REQUEST_TIMEOUT = 15.0
"""Seconds after which the services' clients send a request again, see `keygrouping_service.settings`."""

APIS = (
    "END_TXN",
    "END_TXN",
    "TXN_OFFSET_COMMIT",
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "INIT_PRODUCER_ID",
    "PRODUCE",
    "FETCH",
    "OFFSET_FETCH",
    "JOIN_GROUP",
    "SYNC_GROUP",
    "HEARTBEAT",
    "METADATA",
)
TRANSACTIONAL = ("END_TXN", "TXN_OFFSET_COMMIT", "ADD_OFFSETS_TO_TXN", "ADD_PARTITIONS_TO_TXN", "PRODUCE")
WAYS = ("both ways", "to the broker", "from the broker")
TOPICS = ("events", "routed", "partials", "results", "__transaction_state", "__consumer_offsets")

_LATEST = 14.0
_LONGEST = 30.0


@dataclass(frozen=True)
class Fault:
    """One fault: its kind, seconds from the schedule's begin, seconds that it lasts, whom it strikes, and how hard."""

    kind: str
    at: float
    lasts: float
    target: str
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.at:5.1f} s  {self.kind} {self.target}{detail}, {self.lasts:.1f} s"


@dataclass(frozen=True)
class Schedule:
    """The faults of one seed, by their beginnings."""

    seed: int
    faults: Sequence[Fault]

    def __str__(self) -> str:
        return "\n".join([f"schedule {self.seed}:", *(f"  {fault}" for fault in self.faults)])

    def data(self) -> list[dict[str, object]]:
        """The faults as JSON data."""
        return [asdict(fault) for fault in self.faults]


@dataclass(frozen=True)
class Possible:
    """What can be struck: the services' processes, those of them whose clocks can be moved, a small disk's broker."""

    services: Sequence[str]
    clocks: Sequence[str] = ()
    small_disk: int | None = None


def draw(seed: int, possible: Possible, faults: int = 5) -> Schedule:
    """The schedule of a seed; the same seed and processes give the same."""
    dice = _Dice(seed, possible)
    kinds = [name for name, (weight, _) in _KINDS.items() for _ in range(weight)]
    if not possible.clocks:
        kinds = [name for name in kinds if name != "clock"]
    if possible.small_disk is None:
        kinds = [name for name in kinds if name != "disk full"]
    drawn = []
    for _ in range(faults):
        kind = dice.chance.choice(kinds)
        at = round(dice.chance.uniform(0, _LATEST), 1)
        lasts, target, detail = _KINDS[kind][1](dice)
        drawn.append(Fault(kind, at, round(min(lasts, _LONGEST - at), 1), target, detail))
    return Schedule(seed, sorted(drawn, key=lambda fault: fault.at))


Drawn = tuple[float, str, str]
"""Seconds that a fault lasts, its target and detail."""


class _Dice:
    """Draws what belongs to each kind of fault."""

    def __init__(self, seed: int, possible: Possible) -> None:
        self.chance = random.Random(seed)
        self._possible = possible

    def hold(self) -> Drawn:
        # Half of them until after the client has sent it again.
        short, long = self.chance.uniform(0.5, 5), self.chance.uniform(REQUEST_TIMEOUT + 0.3, REQUEST_TIMEOUT + 4)
        return self._one(short, long), self._one(*APIS), self._one("request", "request", "answer")

    def lose(self) -> Drawn:
        return self.chance.uniform(0.5, 8), self._one(*APIS), self._one("request", "answer")

    def delay(self) -> Drawn:
        return self.chance.uniform(3, 15), self._one(*APIS, "all"), f"{self._one(0.05, 0.3, 1.0, 3.0)} s"

    def reorder(self) -> Drawn:
        return self.chance.uniform(2, 10), self._one(*TRANSACTIONAL), self._one(*TRANSACTIONAL)

    def cut(self) -> Drawn:
        return self._one(self.chance.uniform(0.5, 5), self.chance.uniform(8, 20)), self._broker(), self._one(*WAYS)

    def throttle(self) -> Drawn:
        return self.chance.uniform(4, 15), self._broker(), f"{self._one(5, 20, 100)} kB/s"

    def drop_connections(self) -> Drawn:
        return 0.0, self._broker(), ""

    def restart(self) -> Drawn:
        return self.chance.uniform(0, 5), self._broker(), ""

    def kill_broker(self) -> Drawn:
        return self.chance.uniform(0, 8), self._broker(), ""

    def freeze_broker(self) -> Drawn:
        return self.chance.uniform(2, 12), self._broker(), ""

    def rolling_restart(self) -> Drawn:
        return 0.0, "all brokers", ""

    def move_leaders(self) -> Drawn:
        return 0.0, self._one(*TOPICS), f"by {self._one(1, 2)}"

    def disk_full(self) -> Drawn:
        return self.chance.uniform(3, 12), f"broker-{self._possible.small_disk}", ""

    def kill(self) -> Drawn:
        return self._one(0.0, self.chance.uniform(0, 8)), self._one(*self._possible.services), ""

    def kill_in_commit(self) -> Drawn:
        return self.chance.uniform(0.5, 2), self._one(*self._possible.services), ""

    def freeze(self) -> Drawn:
        short, long = self.chance.uniform(2, 9), self.chance.uniform(21, 28)
        return self._one(short, long), self._one(*self._possible.services), ""

    def clock(self) -> Drawn:
        by = self._one(-86_400, -3600, -60, 60, 3600, 86_400)
        return self.chance.uniform(2, 15), self._one(*self._possible.clocks), f"{by:+} s"

    def _one(self, *choices: Any) -> Any:
        return self.chance.choice(choices)

    def _broker(self) -> str:
        return f"broker-{self.chance.randrange(BROKERS)}"


_KINDS: dict[str, tuple[int, Callable[[_Dice], Drawn]]] = {
    "hold": (5, _Dice.hold),
    "lose": (2, _Dice.lose),
    "delay": (2, _Dice.delay),
    "reorder": (2, _Dice.reorder),
    "cut": (3, _Dice.cut),
    "throttle": (1, _Dice.throttle),
    "drop connections": (1, _Dice.drop_connections),
    "restart": (1, _Dice.restart),
    "kill broker": (2, _Dice.kill_broker),
    "freeze broker": (2, _Dice.freeze_broker),
    "rolling restart": (1, _Dice.rolling_restart),
    "move leaders": (1, _Dice.move_leaders),
    "disk full": (1, _Dice.disk_full),
    "kill": (4, _Dice.kill),
    "kill in commit": (2, _Dice.kill_in_commit),
    "freeze": (3, _Dice.freeze),
    "clock": (1, _Dice.clock),
}
"""How often each kind is drawn, in relation, and how its rest is."""
