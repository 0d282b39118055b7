"""Dynamic Key Grouping: keys that stay frequent for long are spread, by the paper and by its public code."""

from keygrouping.grouping.dkg.grouping import Dkg, DkgSettings, Thresholds

__all__ = ["Dkg", "DkgSettings", "Thresholds"]
