"""docs/howto/pyspark.md is true: its programs give the rows that it says."""

import re
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "pyspark.md"

pytestmark = pytest.mark.spark


def test_the_page_on_pyspark_works(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # The page's own session is this one: it asks for the session that there is.
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M))
    names: dict[str, object] = {"__name__": "a_page"}
    exec(compile(code, str(PAGE), "exec"), names)
    assert names["found"]
