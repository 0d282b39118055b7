"""keygrouping beside other ways to do the same on Kafka: `python -m peers` in the folder above."""
