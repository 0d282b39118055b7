"""docs/howto/pyspark.md and README.md are true: their programs give the rows that they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from keygrouping_local.small_spark import submit_arguments
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "pyspark.md"
README = Path(__file__).parents[1] / "README.md"

pytestmark = pytest.mark.spark


def test_the_page_on_pyspark_works(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # The page's own session is this one: it asks for the session that there is.
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M))
    names: dict[str, object] = {"__name__": "a_page"}
    exec(compile(code, str(PAGE), "exec"), names)
    assert names["found"]


@pytest.mark.timeout(600)
def test_the_readme_works_with_pyspark_alone(tmp_path: Path) -> None:
    """With a join behind it, and in a process of its own, which finds neither pandas, pyarrow nor the library."""
    (code,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.S | re.M)
    lacks = 'import sys\nsys.modules.update(dict.fromkeys(["pandas", "pyarrow", "numpy", "numba", "keygrouping"]))\n'
    joined = (
        "from keygrouping_pyspark import skewed_join\n"
        'assert skewed_join(frame, frame.where("id < 5").select("user"), "user", widths=["hot"]).count() == 3400\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", lacks + code + joined],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": submit_arguments()},
        capture_output=True,
        text=True,
        check=False,
        timeout=580,  # three sessions of Spark start beside it
    )
    assert done.returncode == 0, done.stderr[-4000:]
