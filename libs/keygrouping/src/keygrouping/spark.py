"""One line against skew in PySpark; comes with the extra `keygrouping[pyspark]`, the package `keygrouping-pyspark`."""

try:
    from keygrouping_pyspark import *  # noqa: F403
except ModuleNotFoundError as error:
    if error.name != "keygrouping_pyspark":
        raise
    raise ModuleNotFoundError(
        "keygrouping.spark needs keygrouping-pyspark: in the repository's folder, pip install ./libs/pyspark"
    ) from None
