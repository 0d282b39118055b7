"""Clients of Kafka, the loop over a topic's partitions, and progress in event time."""
