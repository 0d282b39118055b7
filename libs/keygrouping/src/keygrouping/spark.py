"""One line against skew in PySpark; comes with the extra `keygrouping[pyspark]`, the package `keygrouping-pyspark`."""

try:
    from keygrouping_pyspark import *  # noqa: F403
except ModuleNotFoundError as error:
    if error.name != "keygrouping_pyspark":
        raise
    raise ModuleNotFoundError(
        "keygrouping.spark needs the package keygrouping-pyspark: pip install 'keygrouping[pyspark]'"
    ) from None
