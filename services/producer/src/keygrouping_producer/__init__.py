"""Writes events into Kafka: replays of files and workloads, and events that come by HTTP."""
