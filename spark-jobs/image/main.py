"""What spark-submit runs."""

from keygrouping_spark.cli import main

if __name__ == "__main__":
    main()
