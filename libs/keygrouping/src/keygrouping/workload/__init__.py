"""Generated streams of keys with a known skew."""

from keygrouping.workload.countries import COUNTRIES, HOT_COUNTRY
from keygrouping.workload.registry import Workload, WorkloadError, names, workload

__all__ = ["COUNTRIES", "HOT_COUNTRY", "Workload", "WorkloadError", "names", "workload"]
