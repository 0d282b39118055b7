"""What follows from level-fill's settings for a number of workers: sizes, limits, empty arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._virtual_workers import capacities_of
from keygrouping.grouping.level_fill.buckets import owners_for
from keygrouping.grouping.level_fill.plan import ROCK
from keygrouping.grouping.level_fill.settings import LevelFillSettings
from keygrouping.grouping.level_fill.state import RULES, WAYS, Arrays
from keygrouping.grouping.protocol import Weights

_MOST_COUNTERS = 1 << 20
_BUCKETS_PER_WORKER = 64
_FEWEST_BUCKETS = 4096
"""So up to 64 workers share one table: where there are fewer buckets for fewer workers, about half of the keys move."""
_HOT_NOISE = 0.5


def capacities_for(settings: LevelFillSettings, workers: int) -> Weights:
    """The capacity of each worker, 1 on average."""
    capacities = capacities_of(settings.capacities, workers)
    relative: Weights = capacities * (workers / capacities.sum())
    return relative


def tracked_from(settings: LevelFillSettings, workers: int) -> float:
    """The share from which on a key is tracked."""
    return 1 / min(_MOST_COUNTERS, settings.counters * workers)


def hot_from(settings: LevelFillSettings, workers: int) -> float:
    """The share above which a key is hot without a plan."""
    return (1 if settings.split == "all" else ROCK) * (1 + settings.eps) / workers


def empty_arrays(settings: LevelFillSettings, workers: int) -> Arrays:
    """Arrays for this many workers with nothing in them."""
    capacities = capacities_for(settings, workers)
    counters = min(_MOST_COUNTERS, settings.counters * workers)
    most = max(_MOST_COUNTERS, 2 * workers)
    buckets = min(max(_FEWEST_BUCKETS, _BUCKETS_PER_WORKER * workers), most)
    owners = owners_for(capacities, 1 << (buckets - 1).bit_length())
    slots = max(WAYS, 1 << (counters - 1).bit_length())
    return Arrays.empty(slots, owners, capacities, _rules(settings, workers))


def _rules(settings: LevelFillSettings, workers: int) -> NDArray[Any]:
    rules = np.zeros(1, RULES)
    for name in ("eps", "noise", "slack", "evidence", "flexible"):
        rules[name] = getattr(settings, name)
    rules["hot_noise"] = _HOT_NOISE
    rules["threshold"] = tracked_from(settings, workers)
    rules["hot_share"] = hot_from(settings, workers)
    rules["caps"] = settings.widths
    rules["split_light"] = settings.split == "all"
    return rules
