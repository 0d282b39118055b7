"""D-Choices: hot keys have as many choices as balance needs, all others two.

Source: Nasir, De Francisci Morales, Kourtellis, Serafini, "When Two Choices Are not Enough: Balancing at Scale in
Distributed Stream Processing" (ICDE 2016), D-Choices and the choice of d.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.choices.head import HeadGrouping, HeadSettings
from keygrouping.grouping.protocol import Weights
from keygrouping.settings import setting


@dataclass(frozen=True)
class DChoicesSettings(HeadSettings):
    """Settings of `d-choices`."""

    tolerance: float = setting(
        0.0001, "imbalance that the number of choices may leave, as a part of all weight", least=0, most=1
    )


class DChoices(HeadGrouping[DChoicesSettings]):
    """A key of the head goes to the least loaded of its d candidates, which are all different; see `HeadGrouping`.

    d is the same for all keys of the head, at least 2, and found by `choices_needed` whenever the head is reviewed.
    The first two candidates are those that the key has in the tail; the candidates for a smaller d are among those
    for a larger one. Where d reaches W the least loaded of all workers is taken, as in W-Choices.
    """

    name: ClassVar[str] = "d-choices"
    settings = DChoicesSettings

    def _new_rules(self) -> NDArray[Any]:
        rules = super()._new_rules()
        rules["solve"] = True
        rules["tolerance"] = self._settings.tolerance
        return rules


def choices_needed(shares: Weights, workers: int, tolerance: float) -> int:
    """The smallest number d >= 2 of choices for the head's keys with which no set of workers must be overloaded.

    `shares` are those of the head's keys, descending, shape (h,). The condition, for each prefix of i keys of the
    head, with the part b = 1 - ((W - 1) / W) ** (i d) of the workers that their choices reach: the weight of these
    keys, and b ** d of the head's others and b ** 2 of the tail, whose choices all lie there, is at most b plus the
    tolerance. W if no smaller number does.
    """
    from keygrouping.grouping.choices.head_kernel import solve

    return int(solve(np.ascontiguousarray(shares, np.float64), workers, tolerance))
