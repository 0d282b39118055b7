"""W-Choices: hot keys may go to any worker, all others to the less loaded of two.

Source: Nasir, De Francisci Morales, Kourtellis, Serafini, "When Two Choices Are not Enough: Balancing at Scale in
Distributed Stream Processing" (ICDE 2016), W-Choices and its comparison with Round-Robin.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from keygrouping.grouping.choices.head import HeadGrouping, HeadSettings
from keygrouping.settings import setting


@dataclass(frozen=True)
class WChoicesSettings(HeadSettings):
    """Settings of `w-choices`."""

    spread: Literal["least-loaded", "round-robin"] = setting(
        "least-loaded",
        "which worker an event of the head goes to; round-robin: each in turn, whatever the tail has left on it",
    )


class WChoices(HeadGrouping[WChoicesSettings]):
    """A key of the head goes to the least loaded of all workers, a tie to the lowest one; see `HeadGrouping`."""

    name: ClassVar[str] = "w-choices"
    settings = WChoicesSettings

    def _new_rules(self) -> NDArray[Any]:
        rules = super()._new_rules()
        rules["round_robin"] = self._settings.spread == "round-robin"
        return rules

    def _head_rule(self) -> str:
        return "the next in turn" if self._settings.spread == "round-robin" else super()._head_rule()
