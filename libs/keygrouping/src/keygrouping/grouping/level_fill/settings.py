"""The settings of level-fill, and sets of them for other aims."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from keygrouping.grouping.protocol import LEAST_CAPACITY, MOST_CAPACITY
from keygrouping.settings import Settings, setting

VARIANTS: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "hot-only": {"split": "hot-only"},
    "balance-first": {"eps": 0.0, "noise": 0.25, "slack": 1.0, "flexible": 0.2},
    "independent": {"planned": False, "noise": 1.0, "slack": 1.0},
}
"""Settings for what matters more: few partials (default), light keys that are whole, balance, or no plans at all."""


@dataclass(frozen=True)
class LevelFillSettings(Settings):
    """Settings of `level-fill`."""

    interval: float | None = setting(
        10.0, "time between two plans; null: the owner plans and applies", unit="s", least=0.001
    )
    eps: float = setting(
        0.01,
        "how far a worker may be above the average for a light key to stay whole, and within an interval 4.7 times "
        "that far for a run of events of one key to go on there",
        least=0,
        most=1,
    )
    noise: float = setting(
        0.5,
        "further allowance for light keys, in standard deviations of a load by chance, up to 2 % of an average load",
        least=0,
        most=10,
    )
    slack: float = setting(
        3.0,
        "further allowance, in events, for a key with a fair share; a lighter one has more in inverse proportion, so "
        "that the heavier ones are split first",
        least=0,
        most=100,
    )
    split: Literal["all", "hot-only"] = setting(
        "all", "hot-only: keys that fit on one worker are moved, but never split"
    )
    flexible: float = setting(
        0.0,
        "part of the cold keys that may use a second worker while hot keys have less than a tenth of the weight: "
        "balance first, at the cost of partials",
        least=0,
        most=1,
    )
    memory: int = setting(10, "shares are moving averages of this many intervals", unit="intervals", least=1, most=1000)
    counters: int = setting(
        32,
        "keys per worker that are counted; a key is tracked from a share of 1 / (counters x W) on",
        least=1,
        most=1024,
    )
    evidence: float = setting(16.0, "events that a key must have had to be tracked", least=1, most=1_000_000)
    widths: tuple[int, ...] = setting(
        (2, 3, 6),
        "most workers of keys below 2/3 of a fair share, below 0.95, and below 1.67 of it; heavier ones, those in "
        "runs, and by a plan those with a fair share and those that it pours, too, may have all",
        least=1,
        most=1_000_000,
    )
    planned: bool = setting(True, "false: no plans; keys are only tracked and spill")
    seed: int = setting(
        0,
        "a secret number by which hashes are scrambled, so that nobody can choose keys that meet in one place; 0: as "
        "they are. With another one all keys are placed again",
        least=0,
        most=2**53 - 1,
    )
    capacities: tuple[float, ...] = setting(
        (),
        "relative speed of each worker, worker 0 first; those that are missing are 1",
        least=LEAST_CAPACITY,
        most=MOST_CAPACITY,
    )

    def _faults(self) -> list[str]:
        return [] if len(self.widths) == 3 else [f"widths must be three numbers, not {len(self.widths)}"]
