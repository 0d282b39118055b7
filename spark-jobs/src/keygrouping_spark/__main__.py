"""Lets `python -m keygrouping_spark` and `spark-submit .../keygrouping_spark/__main__.py` run the job."""

from keygrouping_spark.cli import main

if __name__ == "__main__":
    main()
