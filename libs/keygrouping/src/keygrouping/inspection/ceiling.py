"""How far a topic scales as it is, and what splitting its hot keys would do: figures, and sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from keygrouping.inspection.advice import EVEN
from keygrouping.inspection.scaling import useful_consumers, works_like
from keygrouping.inspection.top_keys import HeavyKey
from keygrouping.measure import lambda_

_NAMED = 3


class Split(NamedTuple):
    """A key that would be spread over several workers."""

    name: str
    share: float
    """Its part of all weight, 0 to 1."""
    width: int
    """Number of workers."""


@dataclass(frozen=True)
class Tried:
    """What so many workers would have had to bear."""

    workers: int
    by_key: float | None
    """λ of key hashing; None: nothing is known yet."""
    split: float | None
    """λ with hot keys split; None: nothing is known yet."""
    splitting: str
    """The grouping that splits them."""
    splits: Sequence[Split]
    """The keys that are split, the heaviest first."""


@dataclass(frozen=True)
class Ceiling:
    """What a topic's keys and partitions have been like in a window of time, and how far that scales."""

    events: float
    """An estimate where only a part of them was read."""
    partitions: Sequence[float]
    """The weight in each of the topic's partitions."""
    keys: Sequence[HeavyKey]
    """The heaviest first."""
    tried: Sequence[Tried]
    """By number of workers; one of them is the number of partitions."""

    @cached_property
    def partition_lambda(self) -> float | None:
        """λ of the topic's own partitions; None without load."""
        return lambda_(self.partitions) if any(self.partitions) else None

    @cached_property
    def works_like(self) -> float | None:
        """How many consumers' work the topic's consumers do at most, one a partition; None without load."""
        return works_like(self.partitions) if any(self.partitions) else None

    @cached_property
    def useful_consumers(self) -> int | None:
        """Consumers beyond this number do next to nothing more; None without load."""
        return useful_consumers(self.partitions) if any(self.partitions) else None

    @property
    def key_ceiling(self) -> float | None:
        """What any number of workers does at most while no key is split; None where no key is known for certain."""
        return 1 / self.keys[0].low if self.keys and self.keys[0].low else None

    @property
    def here(self) -> Tried | None:
        """What as many workers as there are partitions would have had to bear; None without partitions."""
        return next((each for each in self.tried if each.workers == len(self.partitions)), None)

    def sentences(self) -> list[str]:
        """What it means and what to do, for people."""
        return list(_sentences(self))


def _sentences(found: Ceiling) -> Iterator[str]:
    count, like, useful = len(found.partitions), found.works_like, found.useful_consumers
    if like is None or useful is None:
        yield "Nothing came lately: there is nothing to say."
        return
    yield f"This topic works like {like:.1f} of {count} workers, one a partition."
    if count / like <= EVEN:
        yield f"Its partitions are even: more pods do more, up to {count}."
        return
    busiest = max(range(count), key=lambda partition: found.partitions[partition])
    share = found.partitions[busiest] / sum(found.partitions)
    more = "more pods do nothing" if useful == count else f"pods beyond {useful} do next to nothing"
    yield f"Partition {busiest} has {share:.1%} of the load: {more}."
    yield from _of_keys(found)


def _of_keys(found: Ceiling) -> Iterator[str]:
    count, here = len(found.partitions), found.here
    if not found.keys:
        yield "No key can be seen: the load is spread unevenly by whoever writes it."
        return
    if here is None or here.by_key is None or here.split is None:
        yield "What splitting keys would do is not known yet."
        return
    if found.key_ceiling is not None and found.key_ceiling < count:
        key = found.keys[0]
        yield (
            f"{key.name} alone has {key.share:.1%}: unless it is split, any number of workers does the work of "
            f"{found.key_ceiling:.1f} at most."
        )
    by_key, split = count / here.by_key, count / here.split
    if here.splits:
        named = ", ".join(f"{each.name} {each.width} wide" for each in here.splits[:_NAMED])
        more = len(here.splits) - _NAMED
        also = f" and {more} more {'keys' if more > 1 else 'key'}" if more > 0 else ""
        yield f"Splitting {named}{also} makes it {split:.1f} of {count} ({here.splitting}), hashing keys {by_key:.1f}."
    else:
        yield (
            f"No key is too heavy for one worker: they lie unevenly. Placing them by load makes it {split:.1f} of "
            f"{count} ({here.splitting}), hashing them {by_key:.1f}."
        )
