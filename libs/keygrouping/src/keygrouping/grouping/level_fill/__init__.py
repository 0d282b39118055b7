"""Level-fill: shuffle's balance at key grouping's cost."""

from keygrouping.grouping.level_fill.grouping import LevelFill
from keygrouping.grouping.level_fill.settings import VARIANTS, LevelFillSettings

__all__ = ["VARIANTS", "LevelFill", "LevelFillSettings"]
