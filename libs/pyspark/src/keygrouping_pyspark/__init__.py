"""One line against skew in a PySpark program: hot keys spread over tasks, with the rows of plain Spark.

Needs PySpark on the driver, and pandas and pyarrow where PySpark needs them; executors need nothing of it.
"""

from keygrouping_pyspark.errors import NotMergeableError, SkewError
from keygrouping_pyspark.frames import Skewed, SkewedGroups, skewed
from keygrouping_pyspark.joins import skewed_join
from keygrouping_pyspark.own import Mergeable
from keygrouping_pyspark.widths import learned_widths

__all__ = [
    "Mergeable",
    "NotMergeableError",
    "SkewError",
    "Skewed",
    "SkewedGroups",
    "learned_widths",
    "skewed",
    "skewed_join",
]
