"""Load for a pipeline: events into Kafka at a held rate, and calls of the HTTP interfaces."""
