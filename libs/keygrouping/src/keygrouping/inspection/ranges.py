"""Which offsets are read of a partition: all in turn, or a sample that is spread evenly over them."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class Range(NamedTuple):
    """Offsets from `start` to before `stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def divided(wanted: int, sizes: Sequence[int]) -> list[int]:
    """How many of `wanted` records each partition gives, in proportion to its size and never more than that.

    They add up to `wanted`, or to all there are.
    """
    total = sum(sizes)
    wanted = min(wanted, total)
    ends = [wanted * end // total if total else 0 for end in accumulate(sizes)]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def spread(first: int, end: int, wanted: int, parts: int) -> list[Range]:
    """`parts` ranges in order, none over another, with `wanted` of the offsets from `first` to before `end`.

    Ranges and the gaps between them are alike but for one offset, with half a gap before the first; where all
    offsets are wanted, there are no gaps. A range may be empty where there are more parts than offsets wanted.
    """
    wanted = min(wanted, end - first)
    left_out = end - first - wanted
    begins = [left_out * (2 * part + 1) // (2 * parts) + first for part in range(parts)]
    return [
        Range(begin + wanted * part // parts, begin + wanted * (part + 1) // parts) for part, begin in enumerate(begins)
    ]
